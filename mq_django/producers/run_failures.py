"""Which step of a run has failed, with its arguments and its error."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from mq_django.conf import get_config
from mq_django.core.jsontext import loads
from mq_django.core.numbers import whole
from mq_django.core.step_ids import STEP_NAME, message_id_of
from mq_django.errors import MQError
from mq_django.stores.dead_letter_queue import open_dead_letters
from mq_django.stores.workflow_home import WorkflowHome
from mq_django.transport.connections import open_wire

#: The most bytes of what a step publishes of which the arguments are returned.
MAX_BODY = 16 * 1024


class RunFailure(NamedTuple):
    """A step of a run that has failed. Callbacks that take a `failure` get it as a dict."""

    step: int
    #: The path of its task.
    task: str
    #: Its arguments; values of other steps are None. Both are None if they have more than 16 KiB of JSON.
    args: Sequence[Any] | None
    kwargs: Mapping[str, Any] | None
    #: The exception's class and text, such as "ValueError: b.csv cannot be read"; only its class without a dead letter.
    error: str
    message_id: str


def failure_of(home: WorkflowHome, run_id: str) -> RunFailure | None:
    """Return the step that has failed last, or another failed one if that runs again; None if none has failed.

    Raises:
        StoreError: the server of the project cannot be reached.
    """
    number, _, noted = home.read(run_id).get("failure", b"").partition(b" ")
    step = home.state_of(run_id, whole(number, 10**9) or 0)
    if step is None or step.state != "F":
        step, noted = next((each for each in home.each_record(run_id) if each.state == "F"), None), b""
    if step is None:
        return None
    (body,), message_id = home.bodies(run_id, [step.number]), message_id_of(run_id, step.number, step.round)
    # The queue has noted the group of the failure: an error, and the name of the message.
    error = noted.decode(errors="replace").partition(f"|{STEP_NAME}")[0]
    args = kwargs = None
    task = ""
    # Another program may have changed the step; and a callback does not wait for the server of a step's queue.
    with suppress(AttributeError, LookupError, TypeError, MQError):
        fields = loads(body)
        task = str(fields["name"]).removeprefix(STEP_NAME)
        if len(body) <= MAX_BODY:
            args, kwargs = fields["data"]["args"], fields["data"]["kwargs"]
        error = _error_of(fields, message_id) or error
    return RunFailure(step.number, task, args, kwargs, error, message_id)


def _error_of(fields: Mapping[str, Any], message_id: str) -> str:
    """Return the error of a step's dead letter; "" if there is none."""
    config = get_config().queue(fields["queue"]).place_of(key=fields.get("key"), message_id=message_id)
    letters = open_dead_letters(config, open_wire("produce", config.connection))
    (entry,) = letters.find([message_id])
    found = letters.traits(limit=1, first=entry, last=entry) if entry else []
    return found[0].error if found else ""
