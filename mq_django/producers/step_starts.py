"""Publish the steps and callbacks of workflows that may start."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from mq_django.conf import get_config
from mq_django.core import clock
from mq_django.core.jsontext import loads
from mq_django.core.logs import get_logger
from mq_django.core.publication import Publication, publication
from mq_django.core.step_ids import message_id_of
from mq_django.core.workflow_keys import HOMES, WorkflowKeys
from mq_django.errors import MQError
from mq_django.producers.queues import Queue, queues
from mq_django.producers.sinks import announce
from mq_django.stores.stream_store import StreamStore
from mq_django.stores.workflow_home import Advanced, Event, Start, WorkflowHome
from mq_django.transport.connections import open_wire

logger = get_logger(__name__)

#: Script calls for one change of a run. What is left then, a supervisor does.
MAX_CALLS = 100


def open_home(run_id: str) -> WorkflowHome:
    """Return the home of a run, on the server of the project."""
    return WorkflowHome(WorkflowKeys(get_config().namespace, run_id[0]), open_wire("produce", ""))


def open_homes() -> list[WorkflowHome]:
    """Return all homes."""
    return [open_home(digit) for digit in HOMES]


def advance(home: WorkflowHome, run_id: str, events: Sequence[Event] = ()) -> Advanced:
    """Apply events to a run, and publish what may start. Returns the last change."""
    advanced = Advanced("")
    for _ in range(MAX_CALLS):
        advanced = home.advance(run_id, events)
        events = ()
        publish_starts(home, run_id, advanced.starts)
        if not advanced.is_left:
            break
    return advanced


def publish_starts(home: WorkflowHome, run_id: str, starts: Sequence[Start]) -> None:
    """Publish steps and callbacks of a run. What a full queue refuses is tried again by a supervisor."""
    by_queue: dict[str, list[tuple[Start, Publication]]] = defaultdict(list)
    gone = []
    for start in starts:
        try:
            made = _publication(run_id, start)
        except MQError as error:
            logger.warning("Step %s of run %s cannot be published: %s", start.step, run_id, error)
            continue
        if made is None:
            gone.append(start.entry)
        else:
            by_queue[made.message.queue].append((start, made))
    for name, pairs in by_queue.items():
        store = queues[name].sink.store
        assert isinstance(store, StreamStore)
        # Some with a result, and some without, are in batches of their own.
        done = store.start([made for _, made in pairs])
        for (start, made), is_published in zip(pairs, done, strict=True):
            if is_published:
                gone.append(start.entry)
                announce(Queue, made, made.message.id)
    if gone:
        home.forget_starts(gone)


def _publication(run_id: str, start: Start) -> Publication | None:
    if not start.body:
        return None
    body: Mapping[str, Any] = loads(start.body)
    due = body.get("due")
    made = publication(
        queues[body["queue"]].config,
        body["name"],
        body["data"],
        delay=body.get("delay"),
        deliver_at=None if due is None else datetime.fromisoformat(due),
        key=body.get("key"),
        priority=body.get("priority", 0),
        published_ms=clock.now_ms(),
        runs_task=True,
    )
    return made._replace(message=made.message._replace(id=message_id_of(run_id, start.step, start.round)))
