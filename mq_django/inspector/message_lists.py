"""Lists of messages in any state, and single ones, for display.

messages() lists a state, get_message() reads one of a list again, in_log() lists a range of a topic's log.
"""

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Literal, NamedTuple

from mq_django.conf import QueueConfig, TopicConfig, get_config
from mq_django.core import offsets
from mq_django.core.filters import NOTHING, Filter
from mq_django.core.jsontext import whole
from mq_django.core.keys import UNIQUE_PREFIX
from mq_django.core.message_format import MAX_ENTRY_BYTES
from mq_django.core.offsets import BEGINNING, END, Offset, parse
from mq_django.core.partitions import SEPARATOR, number_in, partition_name, public_name
from mq_django.core.redaction import redact
from mq_django.errors import MQError, StoreError, WrongKeyType
from mq_django.inspector import dead_letters
from mq_django.inspector.message_views import Matcher, MessageState, MessageView, Rows, ScannedRows, view_of_entry
from mq_django.inspector.queues import all_configs, transports_of
from mq_django.inspector.readers import Ended, ended, open_reader, reader_of
from mq_django.inspector.stream_reader import MAX_LISTED, Scanned, StreamReader, most_bytes, one_queue, scan
from mq_django.stores.dead_letters import next_to
from mq_django.stores.handled import HandledMessage, MessageHistory
from mq_django.stores.results import find_result
from mq_django.transport import scripts
from mq_django.transport.connections import open_transport
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Transport, fan_out, reply_or_raise


def messages(
    name: str,
    state: MessageState,
    where: Filter = NOTHING,
    *,
    after: str = "",
    limit: int,
    with_log: bool = True,
    by_end: bool = False,
) -> Scanned[MessageView]:
    """Return up to `limit` messages of a queue in a state that match, and the cursor at which the list goes on.

    Of ready, pending and waiting messages those that are next come first, of dead and handled ones the newest. A queue
    with partitions has them partition by partition.

    Args:
        name: the queue, or the group of a topic as `topic:group`.
        state: any but "log", see in_log().
        where: which messages.
        after: the cursor at the end of the list before.
        limit: maximum messages.
        with_log: whether the ready messages of a group include the ones in the log of its topic.
        by_end: whether the times of `where` are those when handled messages ended, which are found without a scan of
            later ones.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    if parts := get_config().queue(name).parts:
        # The cursor begins with the number of the partition and a slash.
        number, _, cursor = after.rpartition("/")
        at = min(whole(number) or 0, len(parts) - 1)
        found = messages(parts[at].name, state, where, after=cursor, limit=limit, with_log=with_log, by_end=by_end)
        more = f"{at}/{found.after}" if found.after else f"{at + 1}/" if at + 1 < len(parts) else ""
        return Scanned(found.rows, found.scanned, more)
    if state == "dead":
        return dead_letters.search_dead_letters(name, where, after=after, limit=limit)
    if state == "handled":
        history = _history(name)
        return scan(partial(_handled, history, where, by_end), where, after=after, limit=limit)
    reader = open_reader(name, with_log=with_log)

    def read(cursor: str, count: int) -> ScannedRows:
        return reader.rows(state, where, after=cursor, limit=count)

    return scan(read, where, after=after, limit=limit)


def get_message(name: str, state: MessageState, ref: str) -> MessageView | None:
    """Return a message with all it has, by its reference; None if it is gone.

    A message that is in another state now may be found there, as a ready one that is pending.

    Args:
        name: the queue, or for its log a topic.
        state: the state in which it was listed.
        ref: the reference in its view.

    Raises:
        UnknownQueue, UnknownTopic: it is not configured.
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    if state == "log":
        return get_in_log(name, ref)
    if state == "dead":
        return dead_letters.get(name, ref)
    if state == "handled":
        entry, _, member = ref.partition(".")
        found = _history(name).get(entry, member)
        return None if found is None else _handled_view(found)
    return open_reader(name).get(state, ref)


def find_waiting(name: str, text: str, *, by_unique: bool = True) -> MessageView | None:
    """Return a waiting message by its id, or if `by_unique` by its unique key, with or without `u:`; or None."""
    read = open_reader(name).find_waiting
    if not by_unique:
        return None if text.startswith(UNIQUE_PREFIX) else read(text.encode())
    return read(text.encode()) or read((UNIQUE_PREFIX + text).encode())


def find_entry(name: str, text: str) -> MessageView | None:
    """Return a ready or pending message by its id if it can be found without a scan, else None.

    That is so for prioritised messages, for messages that were published without an id, and in RSMQ's format.
    """
    return open_reader(name).find_entry(text.encode())


def in_indexes(name: str, message_id: str, *, by_unique: bool = True) -> Iterator[MessageView]:
    """Yield what is known of a message without a scan: where it waits or is ready, its dead letter, its ending."""
    if (found := find_waiting(name, message_id, by_unique=by_unique) or find_entry(name, message_id)) is not None:
        yield found
    if (entry := dead_letters.find(name, message_id)) is not None and (letter := dead_letters.get(name, entry)):
        yield letter
    if (ended := find_handled(name, message_id)) is not None:
        yield ended


def find_message(name: str, message_id: str) -> MessageView | None:
    """Return a message by its id, or one that waits by its unique key; what became of it if that is kept; or None.

    Ready and pending messages have no index: they are scanned if nothing else has the id, which can take some seconds
    for a million.

    Args:
        name: the queue.
        message_id: its id, or its unique key.

    Raises:
        UnknownQueue: the queue is not configured.
        NotSupported: it has partitions, and the message is in one of these.
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    known = list(in_indexes(name, message_id))
    found = next((view for view in known if view.state != "handled"), None)
    return found or _scanned_for(name, message_id) or next(iter(known), None)


def _scanned_for(name: str, message_id: str) -> MessageView | None:
    states: tuple[MessageState, ...] = ("ready", "pending")
    for state in states:
        after: str | None = ""
        while after is not None:
            found = messages(name, state, Filter(id=message_id), after=after, limit=1)
            if found.rows:
                return found.rows[0]
            after = found.after or None
    return None


# What became of the messages of a queue that has HISTORY, for display.


def find_handled(name: str, message_id: str) -> MessageView | None:
    """Return what became of a message the last time, or None if the history of the queue does not have it.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
    """
    for partition in get_config().queue(name).partitions_for_id(message_id):
        try:
            found = _history(partition.name).find(message_id)
        except WrongKeyType:
            # Another program uses the key, and the message may still be in another place.
            continue
        if found is not None:
            return _handled_view(found)
    return None


def _history(name: str) -> MessageHistory:
    config = one_queue(name)
    return MessageHistory(config, open_transport("inspect", config.connection))


def _handled(history: MessageHistory, where: Filter, by_end: bool, after: str, limit: int) -> Rows:
    ended = (where.since_ms, where.until_ms) if by_end else (None, None)
    where = replace(where, since_ms=None, until_ms=None) if by_end else where
    for at, found in history.newest(after=after, limit=limit, since_ms=ended[0], until_ms=ended[1]):
        yield at, None if found is None or not where.matches(_Filterable(found)) else _handled_view(found)


class _Filterable:
    """The attributes of a message that a filter uses, as its view has them."""

    def __init__(self, found: HandledMessage) -> None:
        self.id, self.name, self.key, self.published_ms = found.id, found.name, found.key, found.published_ms
        self.data = found.data


def _handled_view(found: HandledMessage) -> MessageView:
    return MessageView(
        state="handled",
        ref=f"{found.entry}.{found.id}",
        id=found.id,
        name=found.name,
        # Secrets were replaced before it was written, if a consumer of ours has written it.
        data=redact(found.data),
        headers=redact(found.headers),
        has_data=found.has_data,
        size=found.size,
        attempt=found.attempt,
        key=found.key,
        priority=found.priority,
        unique=found.unique,
        published_ms=found.published_ms,
        at_ms=found.finished_ms,
        consumer=found.consumer,
        ending=found.ending,
        started_ms=found.started_ms,
        seconds=None if found.micros is None else found.micros / 1_000_000,
    )


# Rows of the log of a topic. Those of a topic with partitions are merged by their time.
#
# Entries of a topic with partitions are named with the number of their partition: `1700000000000-0.3`. The cursor
# behind an entry is its name.

#: The fewest entries of a partition that are read at a time.
LEAST = 10

Row = tuple[str, MessageView | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    """A part of a log between two offsets, both included."""

    since: Offset
    until: Offset
    newest_first: bool = False
    where: Matcher = NOTHING
    #: The most bytes of data of a message that are read.
    max_bytes: int = MAX_LISTED


def log_rows(config: TopicConfig, transport: Transport, chosen: LogRange, *, after: str = "", limit: int) -> Rows:
    """Yield up to `limit` entries of a topic's log that follow a cursor, each with the cursor behind it.

    Raises:
        InvalidOffset: an offset or the cursor is invalid.
        StoreError: cannot reach Redis.
    """
    if not config.parts:
        part = _Part(config, transport, chosen, limit, "")
        yield from islice(part.rows(transport.ask(part.command(after))), limit)
        return
    size = max(LEAST, 2 * limit // len(config.parts))
    parts = [_Part(part, transport, chosen, size, f"{SEPARATOR}{part.number}") for part in config.parts]
    cursors = [_cursor(part, chosen, after) for part in config.parts]
    commands = [[part.command(*cursor)] for part, cursor in zip(parts, cursors, strict=True)]
    replies = fan_out([transport] * len(parts), commands)
    each = [part.rows(reply_or_raise(reply)) for part, (reply,) in zip(parts, replies, strict=True)]
    yield from islice(heapq.merge(*each, key=_order, reverse=chosen.newest_first), limit)


def _order(row: Row) -> tuple[tuple[int, int], int]:
    return parse(row[0].partition(SEPARATOR)[0]), number_in(row[0]) or 0


def _cursor(part: TopicConfig, chosen: LogRange, after: str) -> tuple[str, bool]:
    """Return the entry after which a partition goes on, and whether that entry itself follows the cursor."""
    at = number_in(after) or 0
    return after.partition(SEPARATOR)[0], (part.number < at if chosen.newest_first else part.number > at)


class _Part:
    """A log, or the log of a partition, read `size` entries at a time."""

    def __init__(self, config: TopicConfig, transport: Transport, chosen: LogRange, size: int, suffix: str) -> None:
        self._config = config
        self._transport = transport
        self._chosen = chosen
        self._size = size
        self._suffix = suffix

    def command(self, after: str, is_included: bool = False) -> Command:
        chosen = self._chosen
        begins, ends = offsets.first(chosen.since), offsets.last(chosen.until)
        if after:
            parse(after)
            edge = after if is_included else next_to(after, "")
            begins, ends = (begins, edge) if chosen.newest_first else (edge, ends)
        order = "xrevrange" if chosen.newest_first else "xrange"
        args: list[Argument] = [begins, ends, order, self._size, most_bytes(chosen.where, chosen.max_bytes)]
        return scripts.command("topic_page", keys=[self._config.keys.log], args=args)

    def rows(self, reply: Sequence[Any]) -> Iterator[Row]:
        """Yield the entries in a first reply, and all that follow."""
        while True:
            more, *flat = reply
            for entry, fields in zip(flat[::2], flat[1::2], strict=True):
                name = f"{entry.decode()}{self._suffix}"
                yield name, view_of_entry(self._config.name, entry, fields, self._chosen.where, state="log", ref=name)
            if not more and len(flat) < 2 * self._size:
                return
            reply = self._transport.ask(self.command(flat[-2].decode()))


def in_log(
    topic: str,
    where: Filter = NOTHING,
    *,
    since: Offset = BEGINNING,
    until: Offset = END,
    newest_first: bool = False,
    after: str = "",
    limit: int,
) -> Scanned[MessageView]:
    """Return a page of the messages of a topic's log that match, between two offsets, both included.

    `after` is the cursor at the end of the previous page.

    Args:
        topic: its name.
        where: which messages.
        since: the first offset, or a time.
        until: the last offset, or a time.
        newest_first: the order.
        after: the cursor at the end of the page before.
        limit: maximum messages.

    Raises:
        UnknownTopic: the topic is not configured.
        InvalidOffset: `since`, `until` or `after` is invalid.
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    config = get_config().topic(topic)
    transport = open_transport("inspect", config.connection)
    chosen = LogRange(since=since, until=until, newest_first=newest_first, where=where)

    def read(cursor: str, count: int) -> Rows:
        return log_rows(config, transport, chosen, after=cursor, limit=count)

    return scan(read, where, after=after, limit=limit)


def get_in_log(topic: str, entry: str) -> MessageView | None:
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
    return next(
        (view for _, view in log_rows(config, open_transport("inspect", config.connection), chosen, limit=1)), None
    )


# Find a message in all places of all queues, in a bounded time.
#
# Places with an index are asked in all queues, in one round trip per server. Ready and pending messages have none:
# they are scanned, if the message is in no other place.

#: Where a message is, or what became of it. `log` is that of a topic.
FoundIn = MessageState | Literal["expired", "replaced", "result"]

#: The most places that are returned.
MAX_FOUND = 50


class TaskEnding(NamedTuple):
    """The end of a task whose result is kept."""

    #: The task's path.
    name: str
    #: That of Django's TaskResultStatus: SUCCESSFUL or FAILED.
    status: str
    #: When its last attempt finished, in ms since 1970; None if unknown.
    ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundMessageIn:
    """A place that has a message, or knows what became of it."""

    #: A queue, a group as `topic:group`, or for its log a topic.
    queue: str
    state: FoundIn
    view: MessageView | Ended | TaskEnding

    @property
    def is_current(self) -> bool:
        """Return whether this is the latest that is known: it is not if the message may have been redriven since."""
        return not isinstance(self.view, MessageView) or self.view.ending != "buried"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The result of a search over all queues."""

    found: Sequence[FoundMessageIn]
    #: Queues and topics whose ready and pending messages were not all searched in the time.
    not_searched: Sequence[str]
    #: Queue -> why it could not be read.
    errors: Mapping[str, str]


def find_everywhere(message_id: str, *, seconds: float) -> SearchResult:
    """Find a message by its id, or by `u:` and the unique key of a waiting message, in all places of all queues.

    Ready and pending messages are scanned only if no other place has it, for up to `seconds` in total.

    Args:
        message_id: its id, or `u:` and its unique key.
        seconds: for how long ready and pending messages are searched.

    Raises:
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    deadline = time.monotonic() + seconds
    # An argument of a command line may have what UTF-8 cannot encode.
    message_id = message_id.encode(errors="replace").decode()
    configs = all_configs() if message_id else []
    transports = transports_of(configs)
    readers = [reader_of(config, transport) for config, transport in zip(configs, transports, strict=True)]
    lengths = [reader.length_commands() for reader in readers]
    searches = [[*_find_commands(reader, config, message_id)] for reader, config in zip(readers, configs, strict=True)]
    replies = fan_out(
        transports, [[*search_commands, *length] for search_commands, length in zip(searches, lengths, strict=True)]
    )
    errors = {
        config.name: str(error)
        for config, reply in zip(configs, replies, strict=True)
        if (error := next((one for one in reply if isinstance(one, Exception)), None)) is not None
    }
    # Of each queue: whether an index has it, and whether there is something to scan.
    asked = [
        (any(map(_is_hit, reply[: len(search_commands)])), any(map(_is_hit, reply[len(search_commands) :])))
        for search_commands, reply in zip(searches, replies, strict=True)
    ]
    hits = [config for config, (is_hit, _) in zip(configs, asked, strict=True) if is_hit]
    found: list[FoundMessageIn] = []
    for config in hits[:MAX_FOUND]:
        try:
            found += _in_indexes(config, message_id)
        except StoreError as error:
            errors[config.name] = str(error)
    if message_id.startswith(UNIQUE_PREFIX) or any(one.is_current for one in found):
        return SearchResult(found=found, not_searched=[], errors=errors)
    filled = [reader for reader, (_, is_filled) in zip(readers, asked, strict=True) if is_filled]
    # Its task has a result there, so the message is most likely there, too.
    known = {config.name for config in hits}
    filled.sort(key=lambda reader: reader.queue not in known)
    scanned = _scanned(message_id, filled, deadline)
    return SearchResult(
        found=[*scanned.found, *found], not_searched=scanned.not_searched, errors={**errors, **scanned.errors}
    )


def _find_commands(reader: StreamReader, config: QueueConfig, message_id: str) -> Iterator[Command]:
    """Yield the commands that ask the indexes of a queue."""
    keys = config.keys
    yield reader.find_command(message_id)
    yield ("HGET", keys.dead_ids, message_id)
    yield ("HGET", keys.handled_ids, f"i:{message_id}")
    yield ("ZSCORE", keys.expired, message_id)
    yield ("ZSCORE", keys.replaced, message_id)
    yield ("EXISTS", keys.result(message_id))


def _is_hit(reply: Any) -> bool:
    return bool(reply) and not isinstance(reply, Exception) and reply != b"MISSING"


def _in_indexes(config: QueueConfig, message_id: str) -> Iterator[FoundMessageIn]:
    """Yield the places of a queue that have a message and an index."""
    name, is_handled = config.name, False
    is_unique = message_id.startswith(UNIQUE_PREFIX)
    for view in in_indexes(name, message_id, by_unique=is_unique):
        is_handled = view.state == "handled"
        yield FoundMessageIn(queue=name, state=view.state, view=view)
    gone = ended(name, message_id)
    if gone is not None:
        yield FoundMessageIn(queue=name, state=_ENDED[gone.state.value], view=gone)
    if not is_handled and (task := _task(config, message_id)) is not None:
        yield FoundMessageIn(queue=name, state="result", view=task)


_ENDED: Mapping[str, FoundIn] = {"expired": "expired", "replaced": "replaced"}


def _task(config: QueueConfig, message_id: str) -> TaskEnding | None:
    """Return how a task has ended; None if it has not, or keeps no result."""
    with suppress(StoreError):
        found = find_result([open_transport("inspect", config.connection)], [config], message_id)
        if found is not None and found.has_ended:
            return TaskEnding(found.name, found.status, found.attempts[-1].finished_ms)
    return None


def _scanned(message_id: str, readers: Sequence[StreamReader], deadline: float) -> SearchResult:
    """Search ready and pending messages until the message is found; each queue gets a part in turn."""
    where, errors = Filter(id=message_id), dict[str, str]()
    names = [reader.queue for reader in readers]
    topics = {public_name(reader.topic) for reader in readers if reader.topic}
    # Nothing is pending for long, so these are short. Those of a group have what is pending in the log.
    reads: list[tuple[str, Callable[..., Scanned[MessageView]]]] = [
        *((name, partial(messages, name, "pending")) for name in names),
        *((name, partial(messages, name, "ready", with_log=False)) for name in names),
        *((topic, partial(in_log, topic)) for topic in sorted(topics)),
    ]
    left = deque((name, read, "") for name, read in reads)
    while left and time.monotonic() <= deadline:
        name, read, after = left.popleft()
        try:
            found = read(where=where, after=after, limit=1)
        except MQError as error:
            errors[name] = str(error)
            continue
        if found.rows:
            here = [FoundMessageIn(queue=name, state=view.state, view=view) for view in found.rows]
            return SearchResult(found=here, not_searched=[], errors=errors)
        if found.after:
            left.append((name, read, found.after))
    return SearchResult(found=[], not_searched=sorted({name for name, *_ in left}), errors=errors)
