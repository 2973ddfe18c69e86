"""Messages that are ready, and those that consumers hold, as people see them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mq_django.conf import get_config
from mq_django.core.filters import NOTHING, Filter
from mq_django.core.keys import READY
from mq_django.core.messages import Delivery
from mq_django.core.offsets import BEGINNING, END, Place, parse
from mq_django.core.wire import MAX_ENTRY_BYTES, decode_entry, entry_ms
from mq_django.inspector.messages import Broken, MessageView, Read, read_waiter, shown, traits
from mq_django.inspector.scan import Scanned, scan
from mq_django.inspector.stream_reader import MAX_BEFORE, Entries, Entry, Home, page_of_log
from mq_django.stores.entry_fields import text_of
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled

__all__ = ["MAX_BEFORE", "EntryView", "Home", "before", "get", "get_in_log", "in_log", "pending", "ready", "some"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryView:
    """A message that is ready or pending."""

    home: Home
    #: Its name in its home.
    entry: bytes
    message: MessageView
    #: When it became ready, in ms since 1970; None when that is not known.
    ready_ms: int | None
    #: Who holds it; empty when it is ready.
    consumer: str
    #: Milliseconds since it was handed out, or its consumer last said that it still works on it.
    held_ms: int


def ready(name: str, wanted: Filter, *, after: str = "", limit: int) -> Scanned[EntryView]:
    """Return a page of the ready messages that are wanted, with a priority first, then as they came.

    Raises:
        UnknownQueue: it is not configured.
        StoreError: Redis is away.
    """
    entries = _entries(name)
    return _scan(name, lambda cursor, count: entries.ready(after=cursor, limit=count), wanted, after, limit)


def pending(name: str, wanted: Filter, *, after: str = "", limit: int) -> Scanned[EntryView]:
    """Return a page of the messages that consumers hold and that are wanted, those handed out first coming first."""
    entries = _entries(name)
    return _scan(name, lambda cursor, count: entries.pending(after=cursor, limit=count), wanted, after, limit)


def in_log(
    topic: str,
    wanted: Filter = NOTHING,
    *,
    since: Place = BEGINNING,
    until: Place = END,
    newest_first: bool = False,
    after: str = "",
    limit: int,
) -> Scanned[EntryView]:
    """Return a page of what a topic's log has between two places, both included, and that is wanted.

    `after` is where the page before ended.

    Raises:
        UnknownTopic: it is not configured.
        InvalidOffset: `since`, `until` or `after` is no place in a log.
        StoreError: Redis is away.
    """
    log, wire = get_config().topic(topic).keys, Pooled(get_client("inspect"))
    if after:
        parse(after)

    def read(cursor: str, count: int) -> Sequence[Entry]:
        return page_of_log(log, wire, since, until, after=cursor, limit=count, newest_first=newest_first)

    return _scan(topic, read, wanted, after, limit)


def get_in_log(topic: str, entry: str) -> EntryView | None:
    """Return a message of a topic's log whole, or None when it is no longer there.

    Raises:
        InvalidOffset: `entry` is none.
    """
    log, wire = get_config().topic(topic).keys, Pooled(get_client("inspect"))
    found = page_of_log(log, wire, entry, entry, limit=1, max_bytes=MAX_ENTRY_BYTES)
    return _view(found[0], _read(topic, found[0])) if found else None


def get(name: str, home: Home, entry: bytes) -> EntryView | None:
    """Return a message that is ready or pending, or None when it is no longer there."""
    found = _entries(name).get(home, entry, max_bytes=MAX_ENTRY_BYTES)
    return None if found is None else _view(found, _read(name, found))


def find(name: str, text: str) -> EntryView | None:
    """Return a message that is ready or pending by its id, where that leads to it without looking through others.

    That is so while others stand before it by priority, when it was published without an id, and in RSMQ's format.
    """
    found = _entries(name).find(text.encode(), max_bytes=MAX_ENTRY_BYTES)
    return None if found is None else _view(found, _read(name, found))


def some(name: str, receipts: Sequence[tuple[int, str]]) -> dict[tuple[int, str], EntryView]:
    """Return those of some deliveries that are still there, by the number of their stream and their entry."""
    return {receipt: _view(found, _read(name, found)) for receipt, found in _entries(name).some(receipts).items()}


def before(name: str, view: EntryView) -> int:
    """Count the messages that stand before a ready one; from `MAX_BEFORE` on there may be more."""
    return _entries(name).before(view.home, view.entry)


def _scan(
    name: str, read: Callable[[str, int], Sequence[Entry]], wanted: Filter, after: str, limit: int
) -> Scanned[EntryView]:
    def read_all(cursor: str, count: int) -> Sequence[tuple[str, tuple[Entry, Read | Broken]]]:
        return [(found.cursor, (found, _read(name, found))) for found in read(cursor, count)]

    def matches(row: tuple[Entry, Read | Broken]) -> bool:
        return wanted.matches(traits(row[1]))

    found = scan(read_all, matches if wanted else None, after=after, limit=limit)
    return found.shown(lambda row: _view(row[0], row[1]))


def _entries(name: str) -> Entries:
    return Entries(get_config().queue(name), Pooled(get_client("inspect")))


def _view(found: Entry, read: Read | Broken) -> EntryView:
    in_stream = found.waiter is None
    return EntryView(
        home=found.home,
        entry=found.entry,
        message=shown(read),
        ready_ms=entry_ms(found.entry) if in_stream else None,
        consumer=found.consumer,
        held_ms=found.idle_ms,
    )


def _read(name: str, found: Entry) -> Read | Broken:
    if found.waiter is not None:
        return read_waiter(name, found.waiter)
    entry, values = found.entry.decode(), found.values
    size = sum(value if isinstance(value, int) else len(value) for value in values.values())
    message_id = text_of(values.get(b"id")) or entry
    if not values:
        return Broken(entry, 0, "deleted while it was pending")
    if any(isinstance(value, int) for value in values.values()):
        return Broken(message_id, size, name=text_of(values.get(b"type")))
    flat = [part for key, value in values.items() if isinstance(value, bytes) for part in (key, value)]
    decoded = decode_entry(flat, queue=name, home=READY, entry=found.entry)
    if isinstance(decoded, Delivery):
        return Read(decoded.message, size, decoded.history)
    return Broken(message_id, size, decoded.reason)
