"""Publish the steps and callbacks of workflows that may start."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from mq_django.conf import QueueConfig, get_config
from mq_django.core import clock
from mq_django.core.ids import STEP_NAME, message_id_of
from mq_django.core.jsontext import dumps, loads, whole
from mq_django.core.keys import HOMES, WorkflowKeys
from mq_django.core.logs import get_logger
from mq_django.core.publication import Publication, publication
from mq_django.core.texts import repr_of
from mq_django.errors import DecodeError, MQError, WrongKeyType
from mq_django.producers.queues import Queue, check_partitions, queues
from mq_django.producers.sinks import announce
from mq_django.stores.dead_letters import open_dead_letters
from mq_django.stores.partition_transport import transport_of
from mq_django.stores.stream_store import StreamStore
from mq_django.stores.workflow_home import BATCH, Advanced, Event, Note, Start, StepNotes, WorkflowHome
from mq_django.transport.connections import open_transport
from mq_django.transport.sessions import Transport

# Which step of a run has failed, with its arguments and its error.

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


def failure_of(home: WorkflowHome, run_id: str, *, is_past: bool = False) -> RunFailure | None:
    """Return the step that has failed last, or another failed one if that runs again; None if none has failed.

    With `is_past` it is the one that has failed last, also if that runs again.

    Raises:
        StoreError: the server of the project cannot be reached.
    """
    number, _, noted = home.read(run_id).get("failure", b"").partition(b" ")
    step = home.state_of(run_id, whole(number, 10**9) or 0)
    if step is None or (step.state != "F" and not is_past):
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
    config = get_config().queue(fields["queue"]).partition_for(key=fields.get("key"), message_id=message_id)
    letters = open_dead_letters(config, open_transport("produce", config.connection))
    (entry,) = letters.find([message_id])
    found = letters.traits(limit=1, first=entry, last=entry) if entry else []
    return found[0].error if found else ""


logger = get_logger(__name__)

#: Script calls for one change of a run. What is left then, a supervisor does.
MAX_CALLS = 100
#: The argument of a callback that gets the step that has failed.
FAILURE = "failure"
#: Messages that a round trip publishes.
STARTS_AT_ONCE = 100


def open_home(run_id: str) -> WorkflowHome:
    """Return the home of a run, on the server of the project."""
    return WorkflowHome(WorkflowKeys(get_config().namespace, run_id[0]), open_transport("produce", ""))


def open_homes() -> list[WorkflowHome]:
    """Return all homes."""
    return [open_home(digit) for digit in HOMES]


def advance(home: WorkflowHome, run_id: str, events: Sequence[Event] = ()) -> Advanced:
    """Apply events to a run, and publish what may start. Returns the last change, with what the events have changed.

    Raises:
        StoreError: the server of the project cannot be reached, or refuses the command.
    """
    advanced = first = home.advance(run_id, events)
    for _ in range(MAX_CALLS):
        if error := publish_starts(home, run_id, advanced.starts):
            logger.warning("Steps of run %s are not published yet: %s", run_id, error)
        if not advanced.is_left:
            break
        advanced = home.advance(run_id)
    return advanced._replace(changed=first.changed)


def publish_starts(home: WorkflowHome, run_id: str, starts: Sequence[Start]) -> MQError | None:
    """Publish steps and callbacks of a run.

    What cannot be published remains in the list of starts, and a supervisor tries it again. Another queue does not
    wait for that.

    Returns:
        The first error; None if there was none. A full queue is not an error.

    Raises:
        StoreError: the server of the project cannot be reached.
    """
    by_partition: dict[str, list[tuple[Start, Publication]]] = defaultdict(list)
    published = [start.entry for start in starts if not start.body]
    errors: list[MQError] = []
    for start in starts:
        try:
            if start.body:
                made = _publication(home, run_id, start)
                by_partition[made.options.destination.name].append((start, made))
        except MQError as error:
            errors.append(error)
    for name, pairs in by_partition.items():
        try:
            published.extend(_publish(name, pairs))
        except MQError as error:
            errors.append(error)
    if published:
        home.forget_starts(published)
    return errors[0] if errors else None


def _publish(name: str, pairs: Sequence[tuple[Start, Publication]]) -> Iterator[bytes]:
    """Publish to one queue or partition, and yield the entries of the starts; those after a full batch are left out."""
    config = get_config().queue(name)
    check_partitions(config)
    store = StreamStore(config, transport_of(config, open_transport("produce", config.connection)))
    for at in range(0, len(pairs), STARTS_AT_ONCE):
        batch = pairs[at : at + STARTS_AT_ONCE]
        done = store.start([made for _, made in batch])
        for (start, made), is_published in zip(batch, done, strict=True):
            if is_published:
                yield start.entry
                announce(Queue, made, made.message.id)
        if not all(done):
            return


def _with_failure(home: WorkflowHome, run_id: str, kind: str, data: Mapping[str, Any], most: int) -> dict[str, Any]:
    """Return the data of a callback with the step that has failed, but little of one of more bytes than `most`."""
    # Somebody may have retried the step since the run has ended. An end without a failure has none.
    is_past = kind == FAILURE or home.read(run_id).get("state") not in (b"succeeded", b"cancelled")
    failed = failure_of(home, run_id, is_past=is_past)
    if failed and len(dumps(failed)) > most:
        failed = failed._replace(args=None, kwargs=None, error=failed.error[:100])
    return {**data, "kwargs": {FAILURE: failed and failed._asdict()}}


def _publication(home: WorkflowHome, run_id: str, start: Start) -> Publication:
    message_id = message_id_of(run_id, start.step, start.round)
    try:
        body: Mapping[str, Any] = loads(start.body)
        data, config = body["data"], queues[body["queue"]].config
        if not start.step.isdigit() and FAILURE in data["kwargs"]:
            data = _with_failure(home, run_id, start.step, data, config.max_size // 2)
        due = body.get("due")
        made = publication(
            config,
            body["name"],
            data,
            delay=body.get("delay"),
            deliver_at=None if due is None else datetime.fromisoformat(due),
            key=body.get("key"),
            priority=body.get("priority", 0),
            headers=body.get("headers") or {},
            published_ms=clock.now_ms(),
            runs_task=True,
        )
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise DecodeError(
            f"Another program has changed step {start.step} of run {run_id}: {repr_of(error, 200)}"
        ) from error
    # A second start chooses the same partition, which knows that it is published.
    target = queues[made.message.queue].config.partition_for(key=made.message.key, message_id=message_id)
    message, options = made.message._replace(id=message_id), made.options._replace(destination=target)
    return made._replace(message=message, options=options)


# Pass the notes of queues about steps on to their runs, and publish what may start then.


class StepDelivery:
    """Delivers the notes of a queue. A note that is delivered a second time changes nothing."""

    def __init__(self, config: QueueConfig, transport: Transport) -> None:
        self._notes = StepNotes(config.keys, transport)

    def deliver(self, message_ids: Sequence[str]) -> None:
        """Deliver the notes about these messages."""
        if message_ids and (error := self._deliver(self._notes.read(message_ids))):
            raise error

    def deliver_left(self, *, age_ms: int) -> int:
        """Deliver the notes that are older than this, which processes that have ended have left; return how many."""
        cursor, delivered, errors = "", 0, list[WrongKeyType | None]()
        while cursor != "0":
            cursor, found = self._notes.left(age_ms=age_ms, cursor=cursor or "0")
            errors.append(self._deliver(found))
            delivered += len(found)
        if error := next(filter(None, errors), None):
            raise error
        return delivered

    def _deliver(self, notes: Sequence[Note]) -> WrongKeyType | None:
        """Deliver notes, and return an error of a run with a damaged key: others do not wait for that."""
        by_run: dict[str, list[Note]] = defaultdict(list)
        for note in notes:
            by_run[note.step.run if note.step is not None else ""].append(note)
        delivered, failed = by_run.pop("", []), None
        for run_id, group in by_run.items():
            home = open_home(run_id)
            try:
                for at in range(0, len(group), BATCH):
                    advance(home, run_id, [note.event for note in group[at : at + BATCH]])
            except WrongKeyType as error:
                failed = error
            else:
                delivered += group
        if delivered:
            self._notes.forget(delivered)
        return failed
