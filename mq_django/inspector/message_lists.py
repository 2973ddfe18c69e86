"""Waiting messages, for display."""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from mq_django.conf import TopicConfig, get_config
from mq_django.core import offsets
from mq_django.core.filters import NOTHING, Filter
from mq_django.core.keys import UNIQUE_PREFIX
from mq_django.core.offsets import BEGINNING, END, Offset, parse
from mq_django.core.partitions import SEPARATOR, number_in, partition_name
from mq_django.core.redaction import redact
from mq_django.core.wire import MAX_ENTRY_BYTES
from mq_django.errors import WrongKeyType
from mq_django.inspector.message_views import (
    EntrySource,
    EntryView,
    Matcher,
    MessageView,
    Room,
    Rows,
    WaitingView,
    view_of_entry,
)
from mq_django.inspector.readers import open_reader
from mq_django.inspector.stream_reader import MAX_LISTED, Scanned, one_queue, place_in, scan
from mq_django.stores.handled import Ending, HandledMessage, MessageHistory
from mq_django.transport import scripts
from mq_django.transport.connections import open_wire
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Wire, fan_out, reply_or_raise


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingList:
    """A page of waiting messages, and their total number."""

    now_ms: int
    total: int
    waiting: Sequence[WaitingView]


def waiting(name: str, room: Room, *, start: int, limit: int) -> WaitingList:
    """Return a page of a queue's delayed messages, in the order of their due times, or of other waiting ones.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
    """
    now_ms, total, rows = open_reader(name).waiting(room, start=start, limit=limit)
    return WaitingList(now_ms=now_ms, total=total, waiting=[view for _, view in rows if view])


def look_among_waiting(name: str, room: Room, where: Filter, *, after: str = "", limit: int) -> Scanned[WaitingView]:
    """Return the waiting messages of one kind that match, in the order of `waiting`."""
    reader = open_reader(name)

    def read(cursor: str, count: int) -> Rows[WaitingView]:
        return reader.waiting(room, where, start=place_in(cursor), limit=count)[2]

    return scan(read, where, after=after, limit=limit)


def find_waiting(name: str, named: bytes) -> WaitingView | None:
    """Return a waiting message by its id, by `u:` + its unique key, or by its member; or None."""
    return open_reader(name).find_waiting(named)


def search_waiting(name: str, text: str, *, by_unique: bool = True) -> WaitingView | None:
    """Return a waiting message by its id, or by its unique key if `by_unique`; or None."""
    if not by_unique:
        return None if text.startswith(UNIQUE_PREFIX) else find_waiting(name, text.encode())
    return find_waiting(name, text.encode()) or find_waiting(name, (UNIQUE_PREFIX + text).encode())


# What became of the messages of a queue that has KEEP_HANDLED, for display.


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


# Rows of the log of a topic. Those of a topic with partitions are merged by their time.
#
# Entries of a topic with partitions are named with the number of their partition: `1700000000000-0.3`. The cursor
# behind an entry is its name.

#: The fewest entries of a partition that are read at a time.
LEAST = 10

Row = tuple[str, EntryView | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    """A part of a log between two offsets, both included."""

    since: Offset
    until: Offset
    newest_first: bool = False
    where: Matcher = NOTHING
    #: The most bytes of data of a message that are read.
    max_bytes: int = MAX_LISTED


def log_rows(config: TopicConfig, wire: Wire, chosen: LogRange, *, after: str = "", limit: int) -> Rows[EntryView]:
    """Yield up to `limit` entries of a topic's log that follow a cursor, each with the cursor behind it.

    Raises:
        InvalidOffset: an offset or the cursor is invalid.
        StoreError: cannot reach Redis.
    """
    if not config.parts:
        yield from _Part(config, wire, chosen, limit, "").rows(after)
        return
    size = max(LEAST, 2 * limit // len(config.parts))
    parts = [_Part(part, wire, chosen, size, f"{SEPARATOR}{part.number}") for part in config.parts]
    cursors = [_cursor(part, chosen, after) for part in config.parts]
    commands = [[part.command(*cursor)] for part, cursor in zip(parts, cursors, strict=True)]
    replies = fan_out([wire] * len(parts), commands)
    each = [part.from_first(reply) for part, (reply,) in zip(parts, replies, strict=True)]
    yield from islice(heapq.merge(*each, key=_order, reverse=chosen.newest_first), limit)


def _order(row: Row) -> tuple[tuple[int, int], int]:
    return parse(row[0].partition(SEPARATOR)[0]), number_in(row[0]) or 0


def _cursor(part: TopicConfig, chosen: LogRange, after: str) -> tuple[str, bool]:
    """Return the entry after which a partition goes on, and whether that entry itself follows the cursor."""
    at = number_in(after) or 0
    return after.partition(SEPARATOR)[0], (part.number < at if chosen.newest_first else part.number > at)


class _Part:
    """A log, or the log of a partition, read `size` entries at a time."""

    def __init__(self, config: TopicConfig, wire: Wire, chosen: LogRange, size: int, suffix: str) -> None:
        self._config = config
        self._wire = wire
        self._chosen = chosen
        self._size = size
        self._suffix = suffix

    def command(self, after: str, is_included: bool = False) -> Command:
        chosen = self._chosen
        begins, ends = offsets.first(chosen.since), offsets.last(chosen.until)
        if after:
            parse(after)
            edge = after if is_included else f"({after}"
            begins, ends = (begins, edge) if chosen.newest_first else (edge, ends)
        order = "xrevrange" if chosen.newest_first else "xrange"
        args: list[Argument] = [begins, ends, order, self._size, chosen.max_bytes]
        return scripts.command("topic_page", keys=[self._config.keys.log], args=args)

    def rows(self, after: str) -> Iterator[Row]:
        """Yield the next entries after one, or from the beginning."""
        return self._decoded(reply_or_raise(self._wire.trip([self.command(after)])[0]))

    def from_first(self, reply: Any) -> Iterator[Row]:
        """Yield the entries in a first reply, and all that follow."""
        found = list(self._decoded(reply_or_raise(reply)))
        while found:
            yield from found
            last = found[-1][0].partition(SEPARATOR)[0]
            found = list(self.rows(last)) if len(found) == self._size else []

    def _decoded(self, flat: Sequence[Any]) -> Iterator[Row]:
        for entry, fields in zip(flat[::2], flat[1::2], strict=True):
            name = f"{entry.decode()}{self._suffix}"
            view = view_of_entry(self._config.name, "log", entry, fields, self._chosen.where)
            yield name, None if view is None else replace(view, entry=name.encode())


# Ready and pending messages, and the logs of topics, for display.


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
