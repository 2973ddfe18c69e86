"""What is wrong with a run of a workflow."""

from typing import Literal, NamedTuple

#: message: the message of a step is in no place of its queue; dead: that of a started step is a dead letter; start: a
#: step or callback is not published; queue: the queue of a step is not in the settings; unlisted: the run is missing in
#: a list of runs; stopped: it has nothing left to do, and has not ended; steps: its steps do not exist; run: it is
#: listed, and does not exist.
RunProblemKind = Literal["message", "dead", "start", "queue", "unlisted", "stopped", "steps", "run"]


class RunProblem(NamedTuple):
    """A problem of a run, with what its repair needs."""

    kind: RunProblemKind
    run: str
    #: The home that lists it: see `WorkflowKeys`.
    home: str = ""
    #: A number, the kind of a callback, or "".
    step: str = ""
    queue: str = ""
    #: The id of the step's message.
    message_id: str = ""
    #: The round in which the step was started, and the number of the latest note about it.
    round: int = 0
    seq: int = 0
    #: The entry of the start.
    entry: str = ""
