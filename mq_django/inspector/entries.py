"""Ready and pending messages, and the logs of topics, for display."""

from mq_django.conf import get_config
from mq_django.core.filters import NOTHING, Filter
from mq_django.core.offsets import BEGINNING, END, Offset
from mq_django.core.partitions import SEPARATOR, number_in, partition_name
from mq_django.core.wire import MAX_ENTRY_BYTES
from mq_django.inspector.log_rows import LogRange, log_rows
from mq_django.inspector.message_views import EntrySource, EntryView, Rows
from mq_django.inspector.readers import open_reader
from mq_django.inspector.scan import Scanned, scan
from mq_django.transport.connections import open_wire


def ready(name: str, where: Filter, *, after: str = "", limit: int, with_log: bool = True) -> Scanned[EntryView]:
    """Return a page of the ready messages that match: prioritised ones first, then in order.

    Those of a group include the ones in the log of its topic, unless `with_log` is False.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
    """
    read = open_reader(name, with_log=with_log).ready
    return scan(lambda cursor, count: read(where, after=cursor, limit=count), where, after=after, limit=limit)


def pending(name: str, where: Filter, *, after: str = "", limit: int) -> Scanned[EntryView]:
    """Return a page of the pending messages that match, in the order of delivery."""
    read = open_reader(name).pending
    return scan(lambda cursor, count: read(where, after=cursor, limit=count), where, after=after, limit=limit)


def in_log(
    topic: str,
    where: Filter = NOTHING,
    *,
    since: Offset = BEGINNING,
    until: Offset = END,
    newest_first: bool = False,
    after: str = "",
    limit: int,
) -> Scanned[EntryView]:
    """Return a page of the messages of a topic's log that match, between two offsets, both included.

    `after` is the cursor at the end of the previous page.

    Raises:
        UnknownTopic: the topic is not configured.
        InvalidOffset: `since`, `until` or `after` is invalid.
        StoreError: cannot reach Redis.
    """
    config = get_config().topic(topic)
    wire = open_wire("inspect", config.connection)
    chosen = LogRange(since=since, until=until, newest_first=newest_first, where=where)

    def read(cursor: str, count: int) -> Rows[EntryView]:
        return log_rows(config, wire, chosen, after=cursor, limit=count)

    return scan(read, where, after=after, limit=limit)


def get_in_log(topic: str, entry: str) -> EntryView | None:
    """Return a message of a topic's log with all fields, or None if it no longer exists.

    Args:
        topic: its name.
        entry: the id; of a topic with partitions followed by the number of the partition, as in `1700000000000-0.3`.

    Raises:
        InvalidOffset: `entry` is invalid.
    """
    config = get_config().topic(topic)
    number = number_in(entry)
    if number is not None:
        config, entry = get_config().topic(partition_name(topic, number)), entry.partition(SEPARATOR)[0]
    chosen = LogRange(since=entry, until=entry, max_bytes=MAX_ENTRY_BYTES)
    return next((view for _, view in log_rows(config, open_wire("inspect", config.connection), chosen, limit=1)), None)


def get(name: str, source: EntrySource, entry: bytes) -> EntryView | None:
    """Return a ready or pending message, or None if it is neither now."""
    return open_reader(name).entry(source, entry)


def find(name: str, text: str) -> EntryView | None:
    """Return a ready or pending message by its id if it can be found without a scan, else None.

    That is so for prioritised messages, for messages that were published without an id, and in RSMQ's format.
    """
    return open_reader(name).find_entry(text.encode())
