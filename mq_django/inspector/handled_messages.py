"""What became of the messages of a queue that has KEEP_HANDLED, for display."""

from dataclasses import dataclass

from mq_django.conf import get_config
from mq_django.core.filters import Filter
from mq_django.core.redaction import redact
from mq_django.errors import WrongKeyType
from mq_django.inspector.message_views import MessageView, Rows
from mq_django.inspector.one_queue import one_queue
from mq_django.inspector.scan import Scanned, scan
from mq_django.stores.handled import Ending, HandledMessage, MessageHistory
from mq_django.transport.connections import open_wire


@dataclass(frozen=True, slots=True, kw_only=True)
class HandledView:
    """A message in the history of a queue."""

    #: The entry of the history that has it.
    entry: str
    #: Its id as it is stored.
    member: str
    ending: Ending
    message: MessageView
    #: When its handler started and finished, in ms since 1970; None if unknown.
    started_ms: int | None
    finished_ms: int | None
    #: How long its handler ran, in seconds; None if none ran.
    seconds: float | None
    consumer: str


def keeps_handled(name: str) -> bool:
    """Return whether a queue keeps what became of its messages.

    Raises:
        UnknownQueue: the queue is not configured.
    """
    return get_config().queue(name).keep_handled is not None


def look_among_handled(name: str, where: Filter, *, after: str = "", limit: int) -> Scanned[HandledView]:
    """Return a page of a queue's history: the messages that match, the newest first.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
    """
    history = _history(name)

    def read(cursor: str, count: int) -> Rows[HandledView]:
        for at, found in history.newest(after=cursor, limit=count):
            yield at, None if found is None or not where.matches(_Filterable(found)) else _view(found)

    return scan(read, where, after=after, limit=limit)


def find_handled(name: str, message_id: str) -> HandledView | None:
    """Return what became of a message the last time, or None if the history of the queue does not have it.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
    """
    for place in get_config().queue(name).places_of(message_id):
        try:
            found = _history(place.name).find(message_id)
        except WrongKeyType:
            # Another program uses the key, and the message may still be in another place.
            continue
        if found is not None:
            return _view(found)
    return None


def get_handled(name: str, entry: str, member: str) -> HandledView | None:
    """Return a message of an entry of a queue's history by its id, or None if it is no longer kept.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
    """
    found = _history(name).get(entry, member)
    return None if found is None else _view(found)


def _history(name: str) -> MessageHistory:
    config = one_queue(name)
    return MessageHistory(config, open_wire("inspect", config.connection))


class _Filterable:
    """The attributes of a message that a filter uses, as its view has them."""

    def __init__(self, found: HandledMessage) -> None:
        self.id, self.name, self.key, self.published_ms = found.id, found.name, found.key, found.published_ms


def _view(found: HandledMessage) -> HandledView:
    message = MessageView(
        id=found.id,
        name=found.name,
        # Secrets were replaced before it was written, if a consumer of ours has written it.
        data=redact(found.data),
        has_data=found.has_data,
        size=found.size,
        attempt=found.attempt,
        key=found.key,
        priority=found.priority,
        unique=found.unique,
        published_ms=found.published_ms,
    )
    return HandledView(
        entry=found.entry,
        member=found.id,
        ending=found.ending,
        message=message,
        started_ms=found.started_ms,
        finished_ms=found.finished_ms,
        seconds=None if found.micros is None else found.micros / 1_000_000,
        consumer=found.consumer,
    )
