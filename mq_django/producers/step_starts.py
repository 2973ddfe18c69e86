"""Publish the steps and callbacks of workflows that may start."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from mq_django.conf import get_config
from mq_django.core import clock
from mq_django.core.exceptions import repr_of
from mq_django.core.jsontext import dumps, loads
from mq_django.core.logs import get_logger
from mq_django.core.publication import Publication, publication
from mq_django.core.step_ids import message_id_of
from mq_django.core.workflow_keys import HOMES, WorkflowKeys
from mq_django.errors import DecodeError, MQError
from mq_django.producers.partition_check import check_partitions
from mq_django.producers.queues import Queue, queues
from mq_django.producers.run_failures import failure_of
from mq_django.producers.sinks import announce
from mq_django.stores.partition_wire import wire_of
from mq_django.stores.stream_store import StreamStore
from mq_django.stores.workflow_home import Advanced, Event, Start, WorkflowHome
from mq_django.transport.connections import open_wire

logger = get_logger(__name__)

#: Script calls for one change of a run. What is left then, a supervisor does.
MAX_CALLS = 100
#: The argument of a callback that gets the step that has failed.
FAILURE = "failure"
#: Messages that one round trip publishes.
BATCH = 100


def open_home(run_id: str) -> WorkflowHome:
    """Return the home of a run, on the server of the project."""
    return WorkflowHome(WorkflowKeys(get_config().namespace, run_id[0]), open_wire("produce", ""))


def open_homes() -> list[WorkflowHome]:
    """Return all homes."""
    return [open_home(digit) for digit in HOMES]


def advance(home: WorkflowHome, run_id: str, events: Sequence[Event] = ()) -> Advanced:
    """Apply events to a run, and publish what may start. Returns the last change.

    Raises:
        StoreError: the server of the project cannot be reached, or refuses the command.
    """
    advanced = Advanced("")
    for _ in range(MAX_CALLS):
        advanced = home.advance(run_id, events)
        events = ()
        if error := publish_starts(home, run_id, advanced.starts):
            logger.warning("Steps of run %s are not published yet: %s", run_id, error)
        if not advanced.is_left:
            break
    return advanced


def publish_starts(home: WorkflowHome, run_id: str, starts: Sequence[Start]) -> MQError | None:
    """Publish steps and callbacks of a run.

    What cannot be published remains in the list of starts, and a supervisor tries it again. Another queue does not
    wait for that.

    Returns:
        The first error; None if there was none. A full queue is not an error.

    Raises:
        StoreError: the server of the project cannot be reached.
    """
    by_place: dict[str, list[tuple[Start, Publication]]] = defaultdict(list)
    published = [start.entry for start in starts if not start.body]
    errors: list[MQError] = []
    for start in starts:
        try:
            if start.body:
                made = _publication(home, run_id, start)
                by_place[made.options.destination.name].append((start, made))
        except MQError as error:
            errors.append(error)
    for name, pairs in by_place.items():
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
    store = StreamStore(config, wire_of(config, open_wire("produce", config.connection)))
    for at in range(0, len(pairs), BATCH):
        batch = pairs[at : at + BATCH]
        done = store.start([made for _, made in batch])
        for (start, made), is_published in zip(batch, done, strict=True):
            if is_published:
                yield start.entry
                announce(Queue, made, made.message.id)
        if not all(done):
            return


def _with_failure(home: WorkflowHome, run_id: str, data: Mapping[str, Any], most: int) -> dict[str, Any]:
    """Return the data of a callback with the step that has failed, but little of one of more bytes than `most`."""
    failed = failure_of(home, run_id)
    if failed and len(dumps(failed)) > most:
        failed = failed._replace(args=None, kwargs=None, error=failed.error[:100])
    return {**data, "kwargs": {FAILURE: failed and failed._asdict()}}


def _publication(home: WorkflowHome, run_id: str, start: Start) -> Publication:
    message_id = message_id_of(run_id, start.step, start.round)
    try:
        body: Mapping[str, Any] = loads(start.body)
        data, config = body["data"], queues[body["queue"]].config
        if not start.step.isdigit() and FAILURE in data["kwargs"]:
            data = _with_failure(home, run_id, data, config.max_size // 2)
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
    # Whoever starts it again chooses the same partition, which knows that it is published.
    place = queues[made.message.queue].config.place_of(key=made.message.key, message_id=message_id)
    message, options = made.message._replace(id=message_id), made.options._replace(destination=place)
    return made._replace(message=message, options=options)
