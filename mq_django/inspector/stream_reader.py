"""Read queues and groups of topics: ready and pending messages in streams and in `priority`."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar, get_args

from mq_django.conf import GroupConfig, QueueConfig, get_config
from mq_django.core.filters import NOTHING, Filter, may_match
from mq_django.core.jsontext import score_ms
from mq_django.core.keys import FRONT, LOG, READY, UNIQUE_PREFIX, GroupKeys, QueueKeys
from mq_django.core.message_format import MAX_ENTRY_BYTES, decode_body, history_of, message_of
from mq_django.core.messages import Message
from mq_django.errors import DecodeError, NotSupported
from mq_django.inspector.message_views import (
    MAX_LISTED,
    Matcher,
    MessageState,
    MessageView,
    Rows,
    ScannedRows,
    WaitingState,
    name_of,
    ref_of,
    view_if,
    view_of_entry,
    without_data,
)
from mq_django.stores.dead_letters import FIRST, is_entry, next_count
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Transport, reply_or_raise

#: The most messages that are counted before a message.
MAX_BEFORE = 1000

#: No entry follows the largest id, and to ask for them is an error.
LAST_ENTRY = b"18446744073709551615-18446744073709551615"

#: Where ready and pending messages are, in the order of reading: the first part of their references. Only groups of
#: topics have "log". Queues in RSMQ's format have only "priority", which is RSMQ's sorted set.
Source = Literal["front", "priority", "ready", "log"]

#: A delivery as in a heartbeat: the number of its stream, and its entry.
Receipt = tuple[int, str]

#: A body; its length if it is too long for a page; None if it is missing.
Body = bytes | int | None


def most_bytes(where: Matcher, otherwise: int) -> int:
    """Return how many bytes of a value a script returns: all for a filter of data, of a few megabytes at a time."""
    return MAX_ENTRY_BYTES if where.data else otherwise


def index_in(cursor: str) -> int:
    """Return the rank in a cursor of a sorted set; 0 if it is invalid."""
    cursor = cursor.removeprefix("priority.")
    return int(cursor) if cursor.isdecimal() and len(cursor) < 16 else 0


SOURCES: tuple[Source, ...] = get_args(Source)
_STREAMS: dict[Source, int] = {"front": FRONT, "ready": READY, "log": LOG}

#: The indexes in the reply of `waiting_find`. 3, by priority, is missing because such messages are ready.
_WAITING: dict[int, WaitingState] = {1: "delayed", 2: "unhandled", 4: "parked"}


def _stream(keys: QueueKeys, source: Source) -> str:
    return keys.streams()[_STREAMS[source]]


class _ReadyStream(NamedTuple):
    """A stream whose undelivered entries are read."""

    transport: Transport
    queue: str
    source: Source
    key: str
    where: Matcher

    def rows(self, group: str, after: str, limit: int, max_bytes: int) -> ScannedRows:
        """Yield up to `limit` entries after one, or from the first undelivered one on."""
        more = 1
        while more:
            # For a search the script only finds the first ones.
            count = min(limit, FIRST) if self.where.data else limit
            args: list[Argument] = [group, after, count, most_bytes(self.where, max_bytes)]
            more, *flat = self.transport.run("entries_ready", [self.key], args)
            for entry, fields in zip(flat[::2], flat[1::2], strict=True):
                after, limit = entry.decode(), limit - 1
                yield self._row(entry, fields)
            if self.where.data and (more or len(flat) == 2 * count):
                yield from self._searched(after.encode(), limit)
                return

    def _searched(self, after: bytes, limit: int) -> ScannedRows:
        """Yield up to `limit` entries that follow one. For Redis a script would be seven times as much work."""
        count = FIRST
        while limit > 0 and after != LAST_ENTRY:
            count = min(count, limit)
            command: Command = ("XRANGE", self.key, b"(" + after, "+", "COUNT", count)
            found = self.transport.ask(command)
            texts = [text for entry, fields in found for text in (entry, *fields)]
            if found and not may_match(texts, self.where.data):
                yield f"{self.source}.{found[-1][0].decode()}", len(found)
            else:
                for entry, fields in found:
                    yield self._row(entry, fields)
            if len(found) < count:
                return
            after, limit = found[-1][0], limit - count
            count = next_count(count, texts)

    def _row(self, entry: bytes, fields: list[Any]) -> tuple[str, MessageView | None]:
        ref = f"{self.source}.{entry.decode()}"
        return ref, view_of_entry(self.queue, entry, fields, self.where, ref=ref)


class StreamReader:
    """Reads the messages of one queue. Read-only."""

    sources: ClassVar[Sequence[Source]] = SOURCES[:-1]
    #: The topic of a group.
    topic: str = ""

    def __init__(self, config: QueueConfig, transport: Transport) -> None:
        self.queue = config.name
        self._keys = config.keys
        self._transport = transport
        #: When waiting messages were read last, by the clock of Redis, in ms since 1970.
        self.now_ms = 0

    def rows(
        self,
        state: MessageState,
        where: Matcher = NOTHING,
        *,
        after: str = "",
        limit: int,
        max_bytes: int = MAX_LISTED,
    ) -> ScannedRows:
        """Yield up to `limit` messages after a cursor, of those that are ready, pending or wait.

        Ready ones are in the order of delivery: urgent ones, prioritised ones, then the others. Prioritised ones
        include those with a negative priority, though they are delivered last, and with PRIORITY_AGEING those that
        others precede: before() counts these. Delayed ones are ordered by due time,
        unhandled ones by name, parked ones by key and position.
        """
        if state == "ready":
            return self._ready(where, after, limit, max_bytes)
        if state == "pending":
            return self._pending(where, after, limit, max_bytes)
        for waiting in get_args(WaitingState):
            if state == waiting:
                return self._waiting(waiting, where, index_in(after), limit, max_bytes)
        raise NotSupported("The log of a topic is read by in_log()")

    def _waiting(self, state: WaitingState, where: Matcher, start: int, limit: int, max_bytes: int) -> Rows:
        found = self._page(self._waiting_command(state, start, limit, max_bytes))
        handles = self._handles([member for member, _, _ in found])
        for rank, (member, score, body) in enumerate(found, start + 1):
            yield str(rank), self._waiting_view(state, handles.get(member, member), member, score, body, where)

    def get(self, state: MessageState, ref: str) -> MessageView | None:
        """Return a message by its reference in the state that it has now, or None if it has ended or moved on."""
        if state in get_args(WaitingState):
            return self.find_waiting(name_of(ref))
        source, _, name = ref.partition(".")
        return next((self.entry(each, name_of(name)) for each in get_args(Source) if each == source), None)

    def members(self, state: MessageState, refs: Sequence[str]) -> dict[str, list[bytes]]:
        """Return the entries or members of messages that are ready or wait, by the names of their sources: "" waits."""
        found: dict[str, list[bytes]] = {}
        if state != "ready":
            return {"": self._waiting_members(state, [name_of(ref) for ref in refs])}
        for ref in refs:
            source, _, name = ref.partition(".")
            if source == "priority" or (source in ("front", "ready") and is_entry(name)):
                found.setdefault(source, []).append(name_of(name))
        return found

    def _waiting_members(self, state: MessageState, named: Sequence[bytes]) -> list[bytes]:
        replies = self._transport.pipeline([self.find_command(name) for name in named]) if named else []
        found = [reply for reply in map(reply_or_raise, replies) if not isinstance(reply, bytes)]
        return [reply[3] for reply in found if _WAITING.get(reply[0]) == state]

    def _waiting_command(self, state: WaitingState, start: int, limit: int, max_bytes: int) -> Command:
        keys = {"delayed": self._keys.due, "unhandled": self._keys.unhandled, "parked": self._keys.parked}
        return self._page_command(keys[state], start, limit, max_bytes)

    def _page_command(self, key: str, start: int, limit: int, max_bytes: int) -> Command:
        args: list[Argument] = ["PAGE", start, start + limit - 1, max_bytes]
        return scripts.command("waiting_page", keys=[key, self._keys.waiting], args=args)

    def _page(self, command: Command) -> list[tuple[bytes, bytes, Body]]:
        self.now_ms, _cursor, *flat = self._transport.ask(command)
        bodies = [None if body == -1 else body for body in flat[2::3]]
        return list(zip(flat[::3], flat[1::3], bodies, strict=True))

    def _waiting_view(
        self,
        state: WaitingState,
        handle: bytes,
        member: bytes,
        score: bytes,
        body: Body,
        where: Matcher = NOTHING,
        *,
        history: str = "",
    ) -> MessageView | None:
        due_ms = score_ms(score) if state == "delayed" else None
        about = {"state": state, "ref": ref_of(handle or member), "at_ms": due_ms}
        return self._view(member, body, where, history=history, handle=handle, **about)

    def _entry_view(
        self, member: bytes, body: Body, where: Matcher = NOTHING, *, history: str = "", **held: Any
    ) -> MessageView | None:
        """Return a message of a sorted set that is ready, or pending if it is `held`; None if it does not match."""
        state = "pending" if held else "ready"
        return self._view(member, body, where, history=history, state=state, ref=f"priority.{ref_of(member)}", **held)

    def _ranked(self, key: str, where: Matcher, start: int, limit: int, max_bytes: int) -> Rows:
        """Yield the ready messages of a sorted set."""
        found = self._page(self._page_command(key, start, limit, max_bytes))
        for rank, (member, score, body) in enumerate(found, start + 1):
            if self._is_ready(score):
                yield f"priority.{rank}", self._entry_view(member, body, where)

    def _is_ready(self, score: bytes) -> bool:
        return True

    def _view(
        self, member: bytes, body: Body, where: Matcher, *, history: str = "", handle: bytes = b"", **about: Any
    ) -> MessageView | None:
        """Return the view of a message in a sorted set, or None if it does not match."""
        size, why = body if isinstance(body, int) else len(body or b""), ""
        if isinstance(body, int) and where.data:
            # Alone, so that no reply has many of them.
            body = self._transport.ask(("HGET", self._keys.waiting, member))
        if isinstance(body, bytes) and where.data and not may_match([handle, member, body], where.data):
            return None
        if body is None:
            why = "The message has no body. It will be dropped when it is due."
        if isinstance(body, bytes):
            try:
                message, own_history = self._decoded(member, body)
                return view_if(where, message, size=size, history=history or own_history, **about)
            except (DecodeError, UnicodeDecodeError) as error:
                why = str(error)
        message_id = (handle or member).decode(errors="backslashreplace")
        return without_data(where, message_id, size=size, why=why, **about)

    def _decoded(self, member: bytes, body: bytes) -> tuple[Message, str]:
        """Return the message in a body, and its history."""
        found = decode_body(body)
        return message_of(found, queue=self.queue, entry=member), history_of(found)

    def read_command(self, hour: int, this_hour: Sequence[bytes], last_hour: Sequence[bytes]) -> Command:
        """Return the command that counts the messages by place, and reads fields of the counters of two hours."""
        keys = self._keys
        key_names = [keys.ready, keys.front, keys.priority, keys.due, keys.unhandled, keys.dead, keys.control]
        key_names += [keys.consumers, keys.minutes(hour), keys.minutes(hour - 1), keys.parked, keys.jobs, keys.permits]
        key_names += [keys.runtime_schedules, keys.holds]
        args: list[Argument] = [keys.group, len(this_hour), *this_hour, *last_hour]
        return scripts.command("queue_stats", keys=key_names, args=args)

    def _ready(self, where: Matcher, after: str, limit: int, max_bytes: int) -> ScannedRows:
        return self._by_source(partial(self._ready_in, where, max_bytes), after, limit)

    def _pending(self, where: Matcher, after: str, limit: int, max_bytes: int) -> ScannedRows:
        return self._by_source(partial(self._pending_in, where, max_bytes), after, limit)

    def _by_source(self, read: Callable[[Source, str, int], ScannedRows], after: str, limit: int) -> ScannedRows:
        begin, position = _cursor(after)
        for source in self.sources[SOURCES.index(begin) :]:
            for row in read(source, position if source == begin else "", limit) if limit > 0 else ():
                limit -= scanned_in(row[1])
                yield row

    def _ready_in(self, where: Matcher, max_bytes: int, source: Source, after: str, limit: int) -> ScannedRows:
        if source == "priority":
            return self._ranked(self._keys.priority, where, index_in(after), limit, max_bytes)
        stream = _ReadyStream(self._transport, self.queue, source, _stream(self._keys, source), where)
        return stream.rows(self._keys.group, after, limit, max_bytes)

    def _pending_in(self, where: Matcher, max_bytes: int, source: Source, after: str, limit: int) -> Rows:
        if source == "priority":
            return
        first = f"({after}" if after else "-"
        args: list[Argument] = [self._keys.group, first, limit, most_bytes(where, max_bytes)]
        flat = self._transport.run("entries_pending", [_stream(self._keys, source)], args)
        for entry, consumer, idle, fields in zip(flat[::4], flat[1::4], flat[2::4], flat[3::4], strict=True):
            ref = f"{source}.{entry.decode()}"
            yield ref, view_of_entry(self.queue, entry, fields, where, ref=ref, **_held_by(consumer, idle))

    def entry(self, source: Source, entry: bytes) -> MessageView | None:
        """Return a ready or pending message, or None."""
        keys, text = self._keys, entry.decode(errors="replace")
        if source == "priority":
            replies = self._transport.pipeline([("ZSCORE", keys.priority, entry), ("HGET", keys.waiting, entry)])
            score, body = (reply_or_raise(reply) for reply in replies)
            return None if score is None else self._entry_view(entry, body)
        if source not in self.sources or not is_entry(text):
            return None
        stream = _stream(self._keys, source)
        found, pending = self._transport.pipeline(
            [("XRANGE", stream, text, text), ("XPENDING", stream, keys.group, text, text, 1)]
        )
        if not reply_or_raise(found):
            return None
        held = _held_by(*pending[0][1:3]) if not isinstance(pending, Exception) and pending else {}
        return view_of_entry(self.queue, entry, found[0][1], ref=f"{source}.{text}", **held)

    def find_entry(self, named: bytes) -> MessageView | None:
        """Return a ready or pending message that can be found by its id without a scan, or None.

        Prioritised messages can, and messages that were published without an id.
        """
        sources = sorted(self.sources, key=lambda source: source != "priority")
        return next((found for source in sources if (found := self.entry(source, named))), None)

    def ref_of(self, receipt: Receipt) -> str | None:
        """Return the reference of the message of a delivery; None if the receipt is not valid."""
        source = next((source for source in self.sources if _STREAMS.get(source) == receipt[0]), None)
        # The receipt of a log's entry ends with the group's generation.
        return None if source is None else f"{source}.{receipt[1].partition('@')[0]}"

    def held_command(self, receipts: Sequence[Receipt]) -> Command | None:
        """Return the command that reads the messages of deliveries; None if there is nothing to read."""
        args: list[Argument] = [MAX_LISTED]
        for (number, _), entry in self._held(receipts).items():
            args += (number + 1, entry)
        return scripts.command("entries_read", keys=list(self._keys.streams()), args=args) if args[1:] else None

    def held_views(self, receipts: Sequence[Receipt], reply: Any) -> Mapping[Receipt, MessageView]:
        """Return the messages of the deliveries that still exist, from the reply to held_command()."""
        names = {number: source for source, number in _STREAMS.items()}
        found = zip(self._held(receipts).items(), reply_or_raise(reply), strict=True)
        views = {
            at: view_of_entry(self.queue, entry.encode(), flat, state="pending", ref=f"{names[at[0]]}.{entry}")
            for (at, entry), flat in found
            if flat
        }
        return {receipt: view for receipt, view in views.items() if view}

    def _held(self, receipts: Sequence[Receipt]) -> Mapping[Receipt, str]:
        """Return the stream entry of each receipt. That of a log's entry ends with the group's generation."""
        numbers = {_STREAMS[source] for source in self.sources if source in _STREAMS}
        entries = {receipt: receipt[1].partition("@")[0] for receipt in receipts if receipt[0] in numbers}
        return {receipt: entry for receipt, entry in entries.items() if is_entry(entry)}

    def before(self, ref: str) -> int:
        """Count the messages before a ready one, up to about `MAX_BEFORE`."""
        keys = self._keys
        source, _, entry = ref.partition(".")
        return self._before([keys.ready, keys.front, keys.priority], source, entry)

    def _before(self, key_names: Sequence[str], source: str, entry: str) -> int:
        args: list[Argument] = [self._keys.group, source, name_of(entry), MAX_BEFORE]
        return int(self._transport.run("entries_before", key_names, args))

    def length_commands(self) -> list[Command]:
        """Return the commands that count the entries that only a scan can find a message in."""
        return [("XLEN", stream) for stream in self._keys.streams()]

    def find_waiting(self, named: bytes) -> MessageView | None:
        """Return a waiting message by its id, by `u:` + its unique key, or by its member; or None."""
        (reply,) = self._transport.pipeline([self.find_command(named)])
        if isinstance(reply_or_raise(reply), bytes) or reply[0] not in _WAITING:
            return None
        number, score, body, member = reply
        handle = self._handles([member]).get(member, member)
        return self._waiting_view(_WAITING[number], handle, member, score, body or None)

    def found(self, reply: Any) -> MessageView | None:
        """Return the message in the reply to find_command() by an id; None if a stream has it, or no place."""
        if isinstance(reply, Exception | bytes):
            return None
        number, score, body, member = reply
        if number not in _WAITING:
            return self._entry_view(member, body or None)
        return self._waiting_view(_WAITING[number], member, member, score, body or None)

    def find_command(self, named: str | bytes) -> Command:
        """Return the command whose reply is false or MISSING, unless a place with an index has a message."""
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
        (found,) = self._transport.pipeline([("HMGET", self._keys.unique, *names)]) if names else ([],)
        pairs = [] if isinstance(found, Exception) else zip(names, found, strict=True)
        return {name: value for name, value in pairs if value is not None}


class GroupReader(StreamReader):
    """Reads one group of a topic: its own streams, and the topic's log."""

    sources = SOURCES
    _keys: GroupKeys

    def __init__(self, config: GroupConfig, transport: Transport) -> None:
        super().__init__(config, transport)
        self.topic = config.topic

    def before(self, ref: str) -> int:
        """See StreamReader.before(): a group reads its own messages before the log."""
        source, _, entry = ref.partition(".")
        if source != "log":
            return super().before(ref)
        return self._before([_stream(self._keys, "log"), self._keys.ready, self._keys.priority], "ready", entry)


def _held_by(consumer: bytes, held_ms: int) -> dict[str, Any]:
    """Return what a view says of a pending message."""
    return {"state": "pending", "consumer": consumer.decode(errors="backslashreplace"), "held_ms": held_ms}


def _cursor(text: str) -> tuple[Source, str]:
    """Return the source and position of a cursor; the beginning if it is invalid."""
    source, _, position = text.partition(".")
    if source == "priority" and position.isdecimal() and len(position) < 16:
        return "priority", position
    for known in _STREAMS:
        if source == known and is_entry(position):
            return known, position
    return SOURCES[0], ""


# Scan many messages for those that match, a bounded number at a time.

__all__ = ["MAX_LISTED", "NOTHING", "Filter", "Scanned", "scan"]

#: Messages that a scan reads.
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


def scanned_in(row: object) -> int:
    """Return how many messages a row stands for."""
    return row if isinstance(row, int) else 1


def scan(
    read: Callable[[str, int], Iterator[tuple[str, T | int | None]]], where: object, *, after: str, limit: int
) -> Scanned[T]:
    """Return up to `limit` of the rows of `read` that match, and the cursor to continue from.

    `read` gets a cursor and the number of messages to scan. At most `MAX_SCANNED` are scanned.
    """
    rows: list[T] = []
    scanned, deadline = 0, time.monotonic() + SECONDS
    batch, reads_data = BATCH if where else limit + 1, isinstance(where, Filter) and bool(where.data)
    while True:
        before = scanned
        for cursor, row in read(after, batch):
            if len(rows) == limit or scanned >= MAX_SCANNED:
                return Scanned(rows, scanned, after)
            scanned += scanned_in(row)
            after = cursor
            if not isinstance(row, int | None):
                rows.append(row)
            if reads_data and time.monotonic() > deadline:
                return Scanned(rows, scanned, after)
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
