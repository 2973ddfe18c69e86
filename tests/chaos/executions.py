"""What handlers have run, by what they themselves have noted: more exact than what is noted around them."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.chaos.history import Event

#: After everything.
NEVER = float("inf")


@dataclass(slots=True, eq=False)
class HandlerRun:
    """One time that a handler ran a message."""

    message: str
    pid: int
    thread: int
    began: float
    ended: float = NEVER
    #: "returned", or the name of an exception; "" if its process did not live to tell.
    how: str = ""


class Executions:
    """All executions of a history, which is read event by event."""

    def __init__(self) -> None:
        self.all: list[HandlerRun] = []
        #: Those without an end, by process and message.
        self._open: dict[tuple[int, str], list[HandlerRun]] = defaultdict(list)
        #: (process, thread) -> when its executions began.
        self._begun: dict[tuple[int, int], list[float]] = defaultdict(list)

    def entered(self, event: Event) -> None:
        """Read that a handler has begun."""
        execution = HandlerRun(event.id, event.pid, int(event.told["thread"]), event.at)
        self.all.append(execution)
        self._open[event.pid, event.id].append(execution)
        self._begun[event.pid, execution.thread].append(event.at)

    def left(self, event: Event) -> None:
        """Read that a handler has returned or raised."""
        for execution in list(self._open[event.pid, event.id]):
            if execution.thread == event.told["thread"]:
                self._end(execution, event.at, str(event.told["how"]))

    def settled(self, pid: int, messages: Iterable[str], began: float) -> None:
        """Read that a process has sent the outcomes of messages: their handlers had ended, whatever they could note."""
        for message in messages:
            for execution in list(self._open.get((pid, message), ())):
                if execution.began < began:
                    self._end(execution, began)

    def finish(self, last_of: Mapping[int, float]) -> None:
        """End what has no end when its process was last heard of: it is not certain that it ran for longer."""
        for executions in list(self._open.values()):
            for execution in list(executions):
                self._end(execution, last_of[execution.pid])

    def is_next(self, execution: HandlerRun, since: float) -> bool:
        """Tell whether it is the first that its thread began after a time."""
        begun = self._begun[execution.pid, execution.thread]
        return execution.began > since and begun[bisect_right(begun, since)] == execution.began

    def _end(self, execution: HandlerRun, at: float, how: str = "") -> None:
        execution.ended, execution.how = at, how
        self._open[execution.pid, execution.message].remove(execution)
