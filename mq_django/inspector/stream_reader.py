"""Read queues and groups of topics: ready and pending messages in streams and in `priority`."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, get_args

from mq_django.conf import GroupConfig
from mq_django.core.filters import NOTHING
from mq_django.core.keys import LOG, READY, UNIQUE_PREFIX, URGENT, GroupKeys
from mq_django.inspector.message_views import EntrySource, EntryView, Matcher, Room, Rows, WaitingView, view_of_entry
from mq_django.inspector.room_reader import MAX_BEFORE, MAX_LISTED, Receipt, RoomReader, place_in
from mq_django.stores.dead_letter_queue import is_entry
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Wire, reply_or_raise

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
        key_names += [
            keys.consumers,
            keys.minutes(hour),
            keys.minutes(hour - 1),
            keys.parked,
            keys.dead_job,
            keys.message_job,
        ]
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
        args: list[Argument] = [self._keys.group, after, limit, max_bytes]
        command = scripts.command("entries_ready", keys=[self._stream(source)], args=args)
        flat = reply_or_raise(self._wire.trip([command])[0])
        for entry, fields in zip(flat[::2], flat[1::2], strict=True):
            yield f"{source}.{entry.decode()}", view_of_entry(self._queue, source, entry, fields, where)

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
