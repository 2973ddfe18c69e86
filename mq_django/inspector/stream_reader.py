"""Read queues and groups of topics: ready and pending messages in streams and in `priority`."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar, get_args

from mq_django.conf import GroupConfig, QueueConfig, get_config
from mq_django.core.filters import NOTHING, Filter
from mq_django.core.keys import LOG, READY, UNIQUE_PREFIX, URGENT, GroupKeys
from mq_django.core.messages import Message
from mq_django.core.numbers import score_ms
from mq_django.core.wire import decode_body, history_of, message_of
from mq_django.errors import DecodeError, NotSupported
from mq_django.inspector.message_views import (
    EntrySource,
    EntryView,
    Matcher,
    MessageView,
    Room,
    Rows,
    WaitingView,
    view_if,
    view_of_entry,
    without_data,
)
from mq_django.stores.dead_letters import is_entry
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Wire, reply_or_raise

# Read pages of waiting messages: the common part of all readers.

#: A body of more bytes than this is left out of a page of messages.
MAX_LISTED = 32 * 1024

#: The most messages that are counted before a message.
MAX_BEFORE = 1000

#: A delivery as in a heartbeat: the number of its stream, and its entry.
Receipt = tuple[int, str]

#: A body; its length if it is too long for a page; None if it is missing.
Body = bytes | int | None


class RoomReader(ABC):
    """Reads the waiting messages of one queue. Read-only."""

    #: The topic of a group.
    topic: str = ""

    def __init__(self, config: QueueConfig, wire: Wire) -> None:
        self._queue = config.name
        self._keys = config.keys
        self._wire = wire

    @property
    def queue(self) -> str:
        """The name of the queue."""
        return self._queue

    @abstractmethod
    def find_command(self, named: str) -> Command:
        """Return the command whose reply is false or MISSING, unless a place with an index has a message."""

    @abstractmethod
    def length_commands(self) -> list[Command]:
        """Return the commands that count the entries that only a scan can find a message in."""

    @abstractmethod
    def held_command(self, receipts: Sequence[Receipt], *, max_bytes: int = MAX_LISTED) -> Command | None:
        """Return the command that reads the messages of deliveries; None if there is nothing to read."""

    @abstractmethod
    def held_views(self, receipts: Sequence[Receipt], reply: Any) -> Mapping[Receipt, EntryView]:
        """Return the messages of the deliveries that still exist, from the reply to held_command()."""

    def held(self, receipts: Sequence[Receipt], *, max_bytes: int = MAX_LISTED) -> Mapping[Receipt, EntryView]:
        """Return the messages of the deliveries that still exist, by their receipts."""
        command = self.held_command(receipts, max_bytes=max_bytes)
        return self.held_views(receipts, self._wire.trip([command])[0]) if command else {}

    def waiting(
        self, room: Room, where: Matcher = NOTHING, *, start: int, limit: int, max_bytes: int = MAX_LISTED
    ) -> tuple[int, int, Rows[WaitingView]]:
        """Return now, the number of waiting messages of one kind, and those from `start` on.

        Delayed ones are ordered by due time, unhandled ones by name, parked ones by key and position.
        """
        now_ms, total, found = self._page(self._room_command(room, start, limit, max_bytes))
        handles = self._handles([member for member, _, _ in found])
        rows = (
            (str(rank), self._waiting_view(room, handles.get(member, member), member, score, body, where))
            for rank, (member, score, body) in enumerate(found, start + 1)
        )
        return now_ms, total, rows

    def _room_command(self, room: Room, start: int, limit: int, max_bytes: int) -> Command:
        keys = {"delayed": self._keys.due, "unhandled": self._keys.unhandled, "parked": self._keys.parked}
        return self._page_command(keys[room], start, limit, max_bytes)

    def _page_command(self, key: str, start: int, limit: int, max_bytes: int) -> Command:
        args = [start, start + limit - 1, max_bytes]
        return scripts.command("waiting_page", keys=[key, self._keys.waiting], args=args)

    def _page(self, command: Command) -> tuple[int, int, list[tuple[bytes, bytes, Body]]]:
        now_ms, total, *flat = reply_or_raise(self._wire.trip([command])[0])
        bodies = [None if body == -1 else body for body in flat[2::3]]
        return now_ms, total, list(zip(flat[::3], flat[1::3], bodies, strict=True))

    def _handles(self, members: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Return the handles of members that contain a unique key: see WaitingView.handle."""
        return {}

    def _waiting_view(
        self,
        room: Room,
        handle: bytes,
        member: bytes,
        score: bytes,
        body: Body,
        where: Matcher = NOTHING,
        *,
        history: str = "",
    ) -> WaitingView | None:
        view = self._view(member, body, where, history=history, handle=handle)
        due_ms = score_ms(score) if room == "delayed" else None
        return (
            None if view is None else WaitingView(member=member, handle=handle, room=room, message=view, due_ms=due_ms)
        )

    def _entry_view(
        self,
        member: bytes,
        body: Body,
        where: Matcher = NOTHING,
        *,
        history: str = "",
        consumer: str = "",
        held_ms: int = 0,
    ) -> EntryView | None:
        """Return a message of a sorted set that is ready or pending, or None if it does not match."""
        view = self._view(member, body, where, history=history)
        return (
            None
            if view is None
            else EntryView(source="priority", entry=member, message=view, consumer=consumer, held_ms=held_ms)
        )

    def _ranked(self, key: str, where: Matcher, start: int, limit: int, max_bytes: int) -> Rows[EntryView]:
        """Yield the ready messages of a sorted set."""
        now_ms, _, found = self._page(self._page_command(key, start, limit, max_bytes))
        for rank, (member, score, body) in enumerate(found, start + 1):
            if self._is_ready(score, now_ms):
                yield f"priority.{rank}", self._entry_view(member, body, where)

    def _is_ready(self, score: bytes, now_ms: int) -> bool:
        return True

    def _view(
        self, member: bytes, body: Body, where: Matcher = NOTHING, *, history: str = "", handle: bytes = b""
    ) -> MessageView | None:
        """Return the view of a message in a sorted set, or None if it does not match."""
        size, why = body if isinstance(body, int) else len(body or b""), ""
        if body is None:
            why = "The message has no body. It will be dropped when it is due."
        if isinstance(body, bytes):
            try:
                message, own_history = self._decoded(member, body)
                return view_if(where, message, size=size, history=history or own_history)
            except (DecodeError, UnicodeDecodeError) as error:
                why = str(error)
        message_id = (handle or member).decode(errors="backslashreplace")
        return without_data(where, message_id, size=size, why=why)

    def _decoded(self, member: bytes, body: bytes) -> tuple[Message, str]:
        """Return the message in a body, and its history."""
        found = decode_body(body)
        return message_of(found, queue=self._queue, entry=member), history_of(found)


def place_in(cursor: str) -> int:
    """Return the rank in a cursor of a sorted set; 0 if it is invalid."""
    cursor = cursor.removeprefix("priority.")
    return int(cursor) if cursor.isdecimal() and len(cursor) < 16 else 0


# Read queues and groups of topics: ready and pending messages in streams and in `priority`.

SOURCES: tuple[EntrySource, ...] = get_args(EntrySource)
_STREAMS: dict[EntrySource, int] = {"urgent": URGENT, "ready": READY, "log": LOG}

#: The indexes in the reply of `waiting_find`. 3, by priority, is missing because such messages are ready.
_ROOMS: dict[int, Room] = {1: "delayed", 2: "unhandled", 4: "parked"}


class StreamReader(RoomReader):
    """Reads the messages of one queue. Read-only."""

    sources: ClassVar[Sequence[EntrySource]] = SOURCES[:-1]

    def look_command(self, hour: int, this_hour: Sequence[bytes], last_hour: Sequence[bytes]) -> Command:
        """Return the command that counts the messages by place, and reads fields of the counters of two hours."""
        keys = self._keys
        key_names = [keys.ready, keys.urgent, keys.priority, keys.due, keys.unhandled, keys.dead, keys.control]
        key_names += [keys.consumers, keys.minutes(hour), keys.minutes(hour - 1), keys.parked, keys.jobs]
        args: list[Argument] = [keys.group, len(this_hour), *this_hour, *last_hour]
        return scripts.command("queue_stats", keys=key_names, args=args)

    def ready(
        self, where: Matcher = NOTHING, *, after: str = "", limit: int, max_bytes: int = MAX_LISTED
    ) -> Rows[EntryView]:
        """Yield up to `limit` ready messages: urgent ones, prioritised ones, then the others in order.

        Prioritised ones include those with a negative priority, though they are delivered last. `after` is the cursor
        of the last message of the previous page.
        """
        return self._by_source(partial(self._ready, where, max_bytes), after, limit)

    def _by_source(
        self, read: Callable[[EntrySource, str, int], Rows[EntryView]], after: str, limit: int
    ) -> Rows[EntryView]:
        begin, position = _cursor(after)
        for source in self.sources[SOURCES.index(begin) :]:
            for row in read(source, position if source == begin else "", limit) if limit > 0 else ():
                limit -= 1
                yield row

    def _ready(self, where: Matcher, max_bytes: int, source: EntrySource, after: str, limit: int) -> Rows[EntryView]:
        if source == "priority":
            yield from self._ranked(self._keys.priority, where, place_in(after), limit, max_bytes)
            return
        more = 1
        while more:
            args: list[Argument] = [self._keys.group, after, limit, max_bytes]
            command = scripts.command("entries_ready", keys=[self._stream(source)], args=args)
            more, *flat = reply_or_raise(self._wire.trip([command])[0])
            for entry, fields in zip(flat[::2], flat[1::2], strict=True):
                after, limit = entry.decode(), limit - 1
                yield f"{source}.{after}", view_of_entry(self._queue, source, entry, fields, where)

    def pending(
        self, where: Matcher = NOTHING, *, after: str = "", limit: int, max_bytes: int = MAX_LISTED
    ) -> Rows[EntryView]:
        """Yield up to `limit` pending messages, with their consumers and for how long these hold them."""
        return self._by_source(partial(self._pending, where, max_bytes), after, limit)

    def _pending(self, where: Matcher, max_bytes: int, source: EntrySource, after: str, limit: int) -> Rows[EntryView]:
        if source == "priority":
            return
        args: list[Argument] = [self._keys.group, f"({after}" if after else "-", limit, max_bytes]
        command = scripts.command("entries_pending", keys=[self._stream(source)], args=args)
        flat = reply_or_raise(self._wire.trip([command])[0])
        for entry, consumer, idle, fields in zip(flat[::4], flat[1::4], flat[2::4], flat[3::4], strict=True):
            holder = consumer.decode(errors="backslashreplace")
            view = view_of_entry(self._queue, source, entry, fields, where, consumer=holder, held_ms=idle)
            yield f"{source}.{entry.decode()}", view

    def entry(self, source: EntrySource, entry: bytes) -> EntryView | None:
        """Return a ready or pending message, or None."""
        keys, text = self._keys, entry.decode(errors="replace")
        if source == "priority":
            replies = self._wire.trip([("ZSCORE", keys.priority, entry), ("HGET", keys.waiting, entry)])
            score, body = (reply_or_raise(reply) for reply in replies)
            return None if score is None else self._entry_view(entry, body)
        if source not in self.sources or not is_entry(text):
            return None
        stream = self._stream(source)
        found, pending = self._wire.trip(
            [("XRANGE", stream, text, text), ("XPENDING", stream, keys.group, text, text, 1)]
        )
        if not reply_or_raise(found):
            return None
        flat = found[0][1]
        if isinstance(pending, Exception) or not pending:
            return view_of_entry(self._queue, source, entry, flat)
        _, consumer, idle, _ = pending[0]
        holder = consumer.decode(errors="backslashreplace")
        return view_of_entry(self._queue, source, entry, flat, consumer=holder, held_ms=idle)

    def find_entry(self, named: bytes) -> EntryView | None:
        """Return a message that can be found by its id without a scan, or None: see entries.find()."""
        first: EntrySource = "priority"
        sources = (first, *(source for source in self.sources if source != first))
        return next((found for source in sources if (found := self.entry(source, named))), None)

    def place_of(self, receipt: Receipt) -> tuple[EntrySource, bytes] | None:
        """Return where the message of a delivery is, as in an EntryView; None if the receipt is not valid."""
        source = next((source for source in self.sources if _STREAMS.get(source) == receipt[0]), None)
        # The receipt of a log's entry ends with the group's generation.
        return None if source is None else (source, receipt[1].partition("@")[0].encode())

    def held_command(self, receipts: Sequence[Receipt], *, max_bytes: int = MAX_LISTED) -> Command | None:
        """See RoomReader.held_command()."""
        args: list[Argument] = [max_bytes]
        for (number, _), entry in self._held(receipts).items():
            args += (number + 1, entry)
        return scripts.command("entries_read", keys=list(self._keys.streams()), args=args) if args[1:] else None

    def held_views(self, receipts: Sequence[Receipt], reply: Any) -> Mapping[Receipt, EntryView]:
        """See RoomReader.held_views()."""
        names = {number: source for source, number in _STREAMS.items()}
        found = zip(self._held(receipts).items(), reply_or_raise(reply), strict=True)
        views = {
            at: view_of_entry(self._queue, names[at[0]], entry.encode(), flat) for (at, entry), flat in found if flat
        }
        return {receipt: view for receipt, view in views.items() if view}

    def _held(self, receipts: Sequence[Receipt]) -> Mapping[Receipt, str]:
        """Return the stream entry of each receipt. That of a log's entry ends with the group's generation."""
        numbers = {_STREAMS[source] for source in self.sources if source in _STREAMS}
        entries = {receipt: receipt[1].partition("@")[0] for receipt in receipts if receipt[0] in numbers}
        return {receipt: entry for receipt, entry in entries.items() if is_entry(entry)}

    def before(self, source: EntrySource, entry: bytes) -> int:
        """Count the messages before a ready one, up to about `MAX_BEFORE`."""
        keys = self._keys
        return self._before([keys.ready, keys.urgent, keys.priority], source, entry)

    def _before(self, key_names: Sequence[str], source: EntrySource, entry: bytes) -> int:
        command = scripts.command("entries_before", keys=key_names, args=[self._keys.group, source, entry, MAX_BEFORE])
        return int(reply_or_raise(self._wire.trip([command])[0]))

    def find_command(self, named: str) -> Command:
        """See RoomReader.find_command()."""
        return self._find_command(named.encode())

    def length_commands(self) -> list[Command]:
        """See RoomReader.length_commands()."""
        return [("XLEN", stream) for stream in self._keys.streams()]

    def find_waiting(self, named: bytes) -> WaitingView | None:
        """Return a waiting message by its id, by `u:` + its unique key, or by its member; or None."""
        (reply,) = self._wire.trip([self._find_command(named)])
        if isinstance(reply_or_raise(reply), bytes) or reply[0] not in _ROOMS:
            return None
        number, score, body, member = reply
        handle = self._handles([member]).get(member, member)
        return self._waiting_view(_ROOMS[number], handle, member, score, body or None)

    def _find_command(self, named: bytes) -> Command:
        keys = self._keys
        key_names = [keys.due, keys.unhandled, keys.priority, keys.parked]
        index = [keys.waiting, keys.unique, keys.claims, keys.replaced]
        return scripts.command("waiting_find", keys=[*key_names, *index], args=[named])

    def _handles(self, members: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Return for unique keys the ids of their messages; empty if another message has the same id."""
        unique = [member for member in members if member.startswith(UNIQUE_PREFIX.encode())]
        ids = self._indexed(unique)
        back = self._indexed(list(ids.values()))
        return {member: ids[member] if back.get(ids.get(member, b"")) == member else b"" for member in unique}

    def _indexed(self, names: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the values of the index of unique keys. Errors are ignored, so that the page can be shown."""
        (found,) = self._wire.trip([("HMGET", self._keys.unique, *names)]) if names else ([],)
        pairs = [] if isinstance(found, Exception) else zip(names, found, strict=True)
        return {name: value for name, value in pairs if value is not None}

    def _stream(self, source: EntrySource) -> str:
        return self._keys.streams()[_STREAMS[source]]


class GroupReader(StreamReader):
    """Reads one group of a topic: its own streams, and the topic's log."""

    sources = SOURCES
    _keys: GroupKeys

    def __init__(self, config: GroupConfig, wire: Wire) -> None:
        super().__init__(config, wire)
        self.topic = config.topic

    def before(self, source: EntrySource, entry: bytes) -> int:
        """See StreamReader.before(): a group reads its own messages before the log."""
        if source != "log":
            return super().before(source, entry)
        return self._before([self._stream("log"), self._keys.ready, self._keys.priority], "ready", entry)


def _cursor(text: str) -> tuple[EntrySource, str]:
    """Return the source and position of a cursor; the beginning if it is invalid."""
    source, _, position = text.partition(".")
    if source == "priority" and position.isdecimal() and len(position) < 16:
        return "priority", position
    for known in _STREAMS:
        if source == known and is_entry(position):
            return known, position
    return SOURCES[0], ""


# Scan many messages for those that match, a bounded number at a time.

__all__ = ["NOTHING", "Filter", "Scanned", "scan"]

#: Messages that one scan reads.
MAX_SCANNED = 5000

#: Messages read at a time.
BATCH = 500

#: Seconds after which a scan ends early: a page should take less than 0.3.
SECONDS = 0.12

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scanned(Generic[T]):
    """The result of a scan."""

    rows: Sequence[T]
    #: The number of scanned messages.
    scanned: int
    #: The cursor to continue from; empty at the end.
    after: str


def scan(read: Callable[[str, int], Rows[T]], where: Filter, *, after: str, limit: int) -> Scanned[T]:
    """Return up to `limit` of the rows of `read` that match, and the cursor to continue from.

    `read` gets a cursor and the number of messages to scan. At most `MAX_SCANNED` are scanned.
    """
    rows: list[T] = []
    scanned, deadline = 0, time.monotonic() + SECONDS
    batch = BATCH if where else limit + 1
    while True:
        before = scanned
        for cursor, row in read(after, batch):
            if len(rows) == limit or scanned == MAX_SCANNED:
                return Scanned(rows, scanned, after)
            scanned += 1
            after = cursor
            if row is not None:
                rows.append(row)
        if scanned - before < batch:
            return Scanned(rows, scanned, "")
        if time.monotonic() > deadline:
            return Scanned(rows, scanned, after)


def one_queue(name: str) -> QueueConfig:
    """Return the options of a queue, a partition or a group.

    Raises:
        UnknownQueue: the queue is not configured.
        NotSupported: it has partitions, and the messages are in these.
    """
    config = get_config().queue(name)
    if config.parts:
        first, last = config.parts[0].name, config.parts[-1].name
        raise NotSupported(f"Queue {name!r} has partitions: name one of them, {first!r} to {last!r}")
    return config
