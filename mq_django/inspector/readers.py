"""Choose the reader for a queue. The rest of the inspector does not depend on the kind of queue."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from mq_django.conf import GroupConfig, QueueConfig, RsmqConfig, get_config
from mq_django.core import clock
from mq_django.core.filters import Filterable
from mq_django.core.jsontext import score_ms
from mq_django.core.keys import RsmqKeys
from mq_django.core.messages import LookupState, Message, Undecodable
from mq_django.core.rsmq_format import decode
from mq_django.core.texts import line
from mq_django.errors import DecodeError, StoreError, UnknownQueue
from mq_django.inspector import stream_reader
from mq_django.inspector.message_views import Matcher, MessageState, MessageView, Rows, WaitingState, name_of
from mq_django.stores.dead_letters import next_to, open_dead_letters
from mq_django.stores.rsmq_store import waiting_command
from mq_django.transport import scripts
from mq_django.transport.connections import open_transport, open_transports
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Transport, fan_out, reply_or_raise

# Read a queue in RSMQ's format: all its messages are in one sorted set, by the time they become visible.


class RsmqReader(stream_reader.StreamReader):
    """Reads one queue in RSMQ's format: see StreamReader for each method."""

    _keys: RsmqKeys

    def __init__(self, config: RsmqConfig, transport: Transport) -> None:
        super().__init__(config, transport)
        self._vt_ms = config.vt * 1000

    def read_command(self, hour: int, this_hour: Sequence[bytes], last_hour: Sequence[bytes]) -> Command:
        """See StreamReader.read_command()."""
        keys = self._keys
        key_names = [keys.zset, keys.hash, keys.owners, keys.unhandled, keys.dead, keys.control, keys.consumers]
        key_names += [keys.minutes(hour), keys.minutes(hour - 1), keys.jobs]
        return scripts.command("rsmq_stats", keys=key_names, args=[len(this_hour), *this_hour, *last_hour])

    def _ready(self, where: Matcher, after: str, limit: int, max_bytes: int) -> Rows:
        return self._ranked(self._keys.zset, where, stream_reader.index_in(after), limit, max_bytes)

    def _is_ready(self, score: bytes) -> bool:
        return float(score) <= self.now_ms

    def _pending(self, where: Matcher, after: str, limit: int, max_bytes: int) -> Rows:
        keys, start = self._keys, stream_reader.index_in(after)
        (reply,) = self._transport.pipeline([("HGETALL", keys.owners)])
        flat = reply_or_raise(reply)
        owners = dict(sorted(zip(flat[::2], flat[1::2], strict=True))[start : start + limit])
        if not owners:
            return
        clock = scripts.command("clock_read", keys=[keys.zset], args=[])
        commands: list[Command] = [("HMGET", keys.hash, *owners), ("ZMSCORE", keys.zset, *owners), clock]
        bodies, scores, now_us = (reply_or_raise(reply) for reply in self._transport.pipeline(commands))
        held = zip(owners.items(), bodies, scores, strict=True)
        for state, ((member, owner), body, score) in enumerate(held, start + 1):
            held_ms = self._held_ms(score, now_us // 1000)
            view = self._entry_view(member, body, where, consumer=_owner(owner), held_ms=held_ms)
            yield f"priority.{state}", view

    def entry(self, source: stream_reader.Source, entry: bytes) -> MessageView | None:
        """See StreamReader.entry()."""
        keys = self._keys
        score, body, history = self._stored(entry)
        if score is None:
            return None
        clock = scripts.command("clock_read", keys=[keys.zset], args=[])
        commands: list[Command] = [("HGET", keys.owners, entry), ("HGET", keys.hash, entry + b":rc"), clock]
        owner, count, now_us = (reply_or_raise(reply) for reply in self._transport.pipeline(commands))
        # With another count, another program has received it since.
        if owner is None or float(score) <= now_us // 1000 or owner.rpartition(b" ")[2] != count:
            return self._entry_view(entry, body, history=history)
        held_ms = self._held_ms(score, now_us // 1000)
        return self._entry_view(entry, body, history=history, consumer=_owner(owner), held_ms=held_ms)

    def find_entry(self, named: bytes) -> MessageView | None:
        """See StreamReader.find_entry()."""
        return self.entry("priority", named)

    def ref_of(self, receipt: stream_reader.Receipt) -> str | None:
        """See StreamReader.ref_of()."""
        return f"priority.{receipt[1].rpartition(':')[0]}"

    def held_command(self, receipts: Sequence[stream_reader.Receipt]) -> Command | None:
        """See StreamReader.held_command(): a receipt here is the id and the receive count."""
        args: list[Argument] = [stream_reader.MAX_LISTED]
        for source, entry in receipts:
            args += (source + 1, entry.rpartition(":")[0])
        return scripts.command("rsmq_read", keys=[self._keys.hash], args=args) if receipts else None

    def held_views(
        self, receipts: Sequence[stream_reader.Receipt], reply: Any
    ) -> Mapping[stream_reader.Receipt, MessageView]:
        """See StreamReader.held_views()."""
        held = zip(receipts, reply_or_raise(reply), strict=True)
        views = {
            at: self._entry_view(at[1].rpartition(":")[0].encode(), body, consumer="") for at, body in held if body
        }
        return {receipt: view for receipt, view in views.items() if view}

    def before(self, ref: str) -> int:
        """See StreamReader.before()."""
        return int(self._transport.ask(("ZRANK", self._keys.zset, name_of(ref.partition(".")[2]))) or 0)

    def find_command(self, named: str | bytes) -> Command:
        """See StreamReader.find_command()."""
        return ("ZSCORE", self._keys.zset, named)

    def length_commands(self) -> list[Command]:
        """See StreamReader.length_commands(): all places have an index."""
        return []

    def find_waiting(self, named: bytes) -> MessageView | None:
        """See StreamReader.find_waiting()."""
        (reply,) = self._transport.pipeline([waiting_command(self._keys, named, "find")])
        if reply_or_raise(reply) == b"MISSING":
            return None
        state: WaitingState = "delayed" if reply[0] == b"DELAYED" else "unhandled"
        score, body, history = self._stored(named)
        return None if score is None else self._waiting_view(state, named, named, score, body, history=history)

    def _waiting_command(self, state: WaitingState, start: int, limit: int, max_bytes: int) -> Command:
        if state != "delayed":
            return super()._waiting_command(state, start, limit, max_bytes)
        keys = self._keys
        key_names = [keys.zset, keys.hash, keys.owners, keys.unhandled]
        return scripts.command("rsmq_delayed", keys=key_names, args=[start, limit, max_bytes])

    def _waiting_members(self, state: MessageState, named: Sequence[bytes]) -> list[bytes]:
        # The script that takes them looks at their state.
        return [*named]

    def _handles(self, members: Sequence[bytes]) -> Mapping[bytes, bytes]:
        return {}

    def _stored(self, message_id: bytes) -> tuple[bytes | None, stream_reader.Body, str]:
        """Return the score, the body and the history of a message, wherever it is."""
        keys = self._keys
        commands: list[Command] = [
            ("ZSCORE", keys.zset, message_id),
            ("HGET", keys.hash, message_id),
            ("HGET", keys.notes, message_id + b":story"),
        ]
        score, body, history = (reply_or_raise(reply) for reply in self._transport.pipeline(commands))
        return score, body, "" if history is None else history.decode(errors="replace")

    def _held_ms(self, score: bytes | None, now_ms: int) -> int:
        """Return for how long a message has been held since it was received or extended."""
        visible_ms = score_ms(score)
        return 0 if visible_ms is None else max(0, now_ms + self._vt_ms - visible_ms)

    def _decoded(self, member: bytes, body: bytes) -> tuple[Message, str]:
        found = decode(
            *(body,), queue=self.queue, message_id=line(member), first_ms=0, attempt=1, alone="", receipt=member
        )
        if isinstance(found, Undecodable):
            raise DecodeError(found.reason)
        return found.message, ""


def _owner(holder: bytes) -> str:
    return holder.rpartition(b" ")[0].decode(errors="backslashreplace")


def reader_of(config: QueueConfig, transport: Transport, *, with_log: bool = True) -> stream_reader.StreamReader:
    """Return the reader of a queue, or of a group, which has the log of its topic unless `with_log` is False."""
    if isinstance(config, GroupConfig) and with_log:
        return stream_reader.GroupReader(config, transport)
    return (
        RsmqReader(config, transport)
        if isinstance(config, RsmqConfig)
        else stream_reader.StreamReader(config, transport)
    )


def open_reader(name: str, *, with_log: bool = True) -> stream_reader.StreamReader:
    """Return the reader of the queue with a name; see reader_of().

    Raises:
        UnknownQueue: the queue is not configured.
    """
    config = stream_reader.one_queue(name)
    return reader_of(config, open_transport("inspect", config.connection), with_log=with_log)


def held(
    receipts: Mapping[str, Sequence[stream_reader.Receipt]],
) -> Mapping[str, Mapping[stream_reader.Receipt, MessageView]]:
    """Return the messages of deliveries that still exist, by their receipts, for each queue; a round trip per server.

    Queues that are not configured here, or cannot be read, have none.

    Raises:
        StoreError: cannot reach Redis.
    """
    found: dict[str, Mapping[stream_reader.Receipt, MessageView]] = {queue: {} for queue in receipts}
    asked: list[tuple[str, stream_reader.StreamReader, Transport, Command]] = []
    configs = [config for queue in receipts if (config := _config(queue)) is not None]
    for config, transport in zip(
        configs, open_transports("inspect", [config.connection for config in configs]), strict=True
    ):
        reader = reader_of(config, transport)
        if command := reader.held_command(receipts[config.name]):
            asked.append((config.name, reader, transport, command))
    replies = fan_out([transport for _, _, transport, _ in asked], [[command] for *_, command in asked])
    for (queue, reader, *_), (reply,) in zip(asked, replies, strict=True):
        with suppress(StoreError):
            found[queue] = reader.held_views(receipts[queue], reply)
    return found


def _config(queue: str) -> QueueConfig | None:
    try:
        return get_config().queue(queue)
    except UnknownQueue:
        return None


# The ids of all messages of a queue, wherever they are.

#: The states of messages that have not ended, in an order in which a message that moves on is seen.
STATES: Sequence[MessageState] = ("delayed", "unhandled", "parked", "pending", "ready", "dead")

#: Messages read at a time.
BATCH = 500
DAY_MS = 86_400_000


class Ended(NamedTuple):
    """What became of a message, and when, in ms since 1970."""

    state: Literal[LookupState.EXPIRED, LookupState.REPLACED]
    ms: int


def ended(name: str, message_id: str) -> Ended | None:
    """Return that a message has expired within the last week, or was replaced within the last day; else None.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
    """
    config = stream_reader.one_queue(name)
    keys = (config.keys.expired, config.keys.replaced)
    replies = open_transport("inspect", config.connection).pipeline([("ZSCORE", key, message_id) for key in keys])
    expired_ms, replaced_ms = (score_ms(reply_or_raise(reply)) for reply in replies)
    if expired_ms is not None:
        return Ended(LookupState.EXPIRED, expired_ms)
    # As in lua/parts/waiting_members.lua: the ids are deleted later.
    if replaced_ms is not None and replaced_ms > clock.now_ms() - DAY_MS:
        return Ended(LookupState.REPLACED, replaced_ms)
    return None


class _Ids(list[str]):
    """A matcher that matches nothing, so that no view is built, and collects the ids of all messages."""

    data = ""

    def matches(self, message: Filterable) -> bool:
        self.append(message.id)
        return False


def ids(name: str) -> Iterator[tuple[MessageState, list[str]]]:
    """Yield the ids of all messages in a queue, in pages of at most 500 with their place.

    A message that moves meanwhile may be returned twice, or not at all.
    """
    config = get_config().queue(name)
    for part in config.parts:
        yield from ids(part.name)
    if config.parts:
        return
    transport = open_transport("inspect", config.connection)
    reader, dead = reader_of(config, transport), open_dead_letters(config, transport)

    def dead_rows(found: _Ids, after: str) -> Iterable[tuple[str, Any]]:
        letters = dead.traits(limit=BATCH, first=next_to(after, "-"))
        return ((letter.entry, found.matches(letter)) for letter in letters)

    for state in STATES:
        rows = (
            dead_rows
            if state == "dead"
            else lambda found, after, at=state: reader.rows(at, found, after=after, limit=BATCH)
        )
        yield from ((state, found) for found in _pages(rows))


def _pages(read: Callable[[_Ids, str], Iterable[tuple[str, Any]]]) -> Iterator[list[str]]:
    after = ""
    while True:
        found = _Ids()
        for cursor, _ in read(found, after):
            after = cursor
        if not found:
            return
        yield found
