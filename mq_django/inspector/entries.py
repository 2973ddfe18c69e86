"""Messages that are ready, and those that consumers hold, as people see them."""

from mq_django.conf import get_config
from mq_django.core.filters import NOTHING, Filter
from mq_django.core.offsets import BEGINNING, END, Place, parse
from mq_django.core.wire import MAX_ENTRY_BYTES
from mq_django.inspector.message_views import EntryView, Home, Rows
from mq_django.inspector.readers import open_reader
from mq_django.inspector.scan import Scanned, scan
from mq_django.inspector.stream_reader import page_of_log
from mq_django.transport.connections import open_wire


def ready(name: str, where: Filter, *, after: str = "", limit: int) -> Scanned[EntryView]:
    """Return a page of the ready messages that are wanted, with a priority first, then as they came.

    Raises:
        UnknownQueue: it is not configured.
        StoreError: Redis is away.
    """
    read = open_reader(name).ready
    return scan(lambda cursor, count: read(where, after=cursor, limit=count), where, after=after, limit=limit)


def pending(name: str, where: Filter, *, after: str = "", limit: int) -> Scanned[EntryView]:
    """Return a page of the messages that consumers hold and that are wanted, those handed out first coming first."""
    read = open_reader(name).pending
    return scan(lambda cursor, count: read(where, after=cursor, limit=count), where, after=after, limit=limit)


def in_log(
    topic: str,
    where: Filter = NOTHING,
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
    log, wire = get_config().topic(topic).keys, open_wire("inspect")
    if after:
        parse(after)

    def read(cursor: str, count: int) -> Rows[EntryView]:
        return page_of_log(log, wire, since, until, where, after=cursor, limit=count, newest_first=newest_first)

    return scan(read, where, after=after, limit=limit)


def get_in_log(topic: str, entry: str) -> EntryView | None:
    """Return a message of a topic's log whole, or None when it is no longer there.

    Raises:
        InvalidOffset: `entry` is none.
    """
    log, wire = get_config().topic(topic).keys, open_wire("inspect")
    return next((view for _, view in page_of_log(log, wire, entry, entry, limit=1, max_bytes=MAX_ENTRY_BYTES)), None)


def get(name: str, home: Home, entry: bytes) -> EntryView | None:
    """Return a message that is ready or pending, or None when it is no longer there."""
    return open_reader(name).entry(home, entry)


def find(name: str, text: str) -> EntryView | None:
    """Return a message that is ready or pending by its id, where that leads to it without looking through others.

    That is so while others stand before it by priority, when it was published without an id, and in RSMQ's format.
    """
    return open_reader(name).find_entry(text.encode())
