"""Note what a consumer does, from outside: signals, and the store's own methods."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mq_django import signals
from mq_django.consumers.worker.dispatcher import BATCH, Isolation
from mq_django.core.messages import Ack, Bury, Delivery, Message, Retry
from mq_django.stores.base import Settlement
from mq_django.stores.line_store import LineStore
from mq_django.stores.log import TopicStore
from mq_django.stores.rsmq_store import RsmqStore
from mq_django.stores.stream_store import StreamStore
from tests.chaos.history import History
from tests.chaos.places import label

#: The history of this process; handlers note their effects in it.
history: History | None = None


def observe(into: History) -> None:
    """Note from now on what this process takes, starts, ends and settles."""
    global history  # noqa: PLW0603 - a process has one
    history = into
    signals.handler_started.connect(_started)
    signals.handler_finished.connect(_finished)
    # The fetch of RSMQ, and of a queue with order, is a wait and a take.
    taking: list[tuple[type, str]] = [(StreamStore, "take"), (StreamStore, "fetch"), (TopicStore, "fetch")]
    for store, name in (*taking, (RsmqStore, "take"), (LineStore, "take")):
        setattr(store, name, _taking(into, getattr(store, name)))
    Isolation._pass_on = _passing(into, Isolation._pass_on)  # type: ignore[method-assign]
    for store in (StreamStore, LineStore, RsmqStore):
        store.settle = _settling(into, store.settle)  # type: ignore[method-assign]
        store.settle_and_take = _settling_and_taking(into, store.settle_and_take)  # type: ignore[method-assign]


def _passing(into: History, reassign: Callable[..., None]) -> Callable[..., None]:
    def observed(self: Isolation, number: int, *args: Any) -> None:
        some = [id_of(delivery.message) for delivery in self._waiting[number][:BATCH]]
        reassign(self, number, *args)
        if ids := [known for known in some if known]:
            # Whatever becomes of this consumer now, they wait for the quarantine.
            into.note("settled", back=ids)

    return observed


def note(what: str, **told: Any) -> None:
    """Note something, if this process is observed."""
    if history is not None:
        history.note(what, **told)


def id_of(message: Message) -> str | None:
    """Return the id that the run gave a message."""
    return label({"data": message.data})


def _started(*, message: Message, **_: Any) -> None:
    if found := id_of(message):
        note("started", id=found, attempt=message.attempt, thread=threading.get_ident())


def _finished(*, message: Message, outcome: Any, **_: Any) -> None:
    if found := id_of(message):
        note("ended", id=found, outcome=type(outcome).__name__)


def _taking(into: History, taking: Callable[..., Any]) -> Callable[..., Any]:
    def observed(store: Any, *args: Any, **options: Any) -> Any:
        found = taking(store, *args, **options)
        _note_taken(into, found)
        return found

    return observed


def _settling(into: History, settling: Callable[..., Any]) -> Callable[..., Any]:
    def observed(store: Any, consumer: str, settlements: Sequence[Settlement], **options: Any) -> Any:
        began = time.monotonic()
        stale = settling(store, consumer, settlements, **options)
        _note_settled(into, settlements, stale, began)
        return stale

    return observed


def _settling_and_taking(into: History, settling: Callable[..., Any]) -> Callable[..., Any]:
    def observed(store: Any, consumer: str, settlements: Sequence[Settlement], **options: Any) -> Any:
        began = time.monotonic()
        fetched = settling(store, consumer, settlements, **options)
        _note_settled(into, settlements, fetched.stale, began)
        _note_taken(into, fetched.deliveries)
        return fetched

    return observed


def _note_taken(into: History, found: Iterable[Any]) -> None:
    ids = [known for item in found if isinstance(item, Delivery) and (known := id_of(item.message))]
    if ids:
        into.note("taken", ids=ids)


def _note_settled(into: History, settlements: Sequence[Settlement], stale: Sequence[str], began: float) -> None:
    told: dict[str, list[Any]] = {}
    lost = set(stale)
    for delivery, outcome, delay_ms, *_ in settlements:
        known = id_of(delivery.message) if isinstance(delivery, Delivery) else None
        if known is None or not isinstance(delivery, Delivery):
            continue
        if delivery.message.id in lost:
            told.setdefault("stale", []).append(known)
        elif isinstance(outcome, Retry):
            told.setdefault("retried", []).append([known, delay_ms])
        else:
            told.setdefault(_WORDS.get(type(outcome), "back"), []).append(known)
    if told:
        into.note("settled", began=began, **told)


_WORDS: dict[type, str] = {Ack: "acked", Bury: "buried"}
