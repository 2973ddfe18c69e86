"""Choose the reader for a queue. The rest of the inspector does not depend on the kind of queue."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from mq_django.conf import GroupConfig, QueueConfig, RsmqConfig, get_config
from mq_django.core import clock
from mq_django.core.filters import Filterable
from mq_django.core.messages import LookupState
from mq_django.core.numbers import score_ms
from mq_django.errors import StoreError, UnknownQueue
from mq_django.inspector.message_views import MessageState, MessageView
from mq_django.inspector.rsmq_reader import RsmqReader
from mq_django.inspector.stream_reader import GroupReader, Receipt, StreamReader, one_queue
from mq_django.stores.dead_letters import next_to, open_dead_letters
from mq_django.transport.connections import open_transport, open_transports
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Transport, fan_out, reply_or_raise

Reader = StreamReader | RsmqReader


def reader_of(config: QueueConfig, transport: Transport, *, with_log: bool = True) -> Reader:
    """Return the reader of a queue, or of a group, which has the log of its topic unless `with_log` is False."""
    if isinstance(config, GroupConfig) and with_log:
        return GroupReader(config, transport)
    return RsmqReader(config, transport) if isinstance(config, RsmqConfig) else StreamReader(config, transport)


def open_reader(name: str, *, with_log: bool = True) -> Reader:
    """Return the reader of the queue with a name; see reader_of().

    Raises:
        UnknownQueue: the queue is not configured.
    """
    config = one_queue(name)
    return reader_of(config, open_transport("inspect", config.connection), with_log=with_log)


def held(receipts: Mapping[str, Sequence[Receipt]]) -> Mapping[str, Mapping[Receipt, MessageView]]:
    """Return the messages of deliveries that still exist, by their receipts, for each queue; a round trip per server.

    Queues that are not configured here, or cannot be read, have none.

    Raises:
        StoreError: cannot reach Redis.
    """
    found: dict[str, Mapping[Receipt, MessageView]] = {queue: {} for queue in receipts}
    asked: list[tuple[str, Reader, Transport, Command]] = []
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
    config = one_queue(name)
    keys = (config.keys.expired, config.keys.replaced)
    replies = open_transport("inspect", config.connection).pipeline([("ZSCORE", key, message_id) for key in keys])
    expired_ms, replaced_ms = (score_ms(reply_or_raise(reply)) for reply in replies)
    if expired_ms is not None:
        return Ended(LookupState.EXPIRED, expired_ms)
    # As in lua/parts/replaced.lua: the ids are deleted later.
    if replaced_ms is not None and replaced_ms > clock.now_ms() - DAY_MS:
        return Ended(LookupState.REPLACED, replaced_ms)
    return None


class _Ids(list[str]):
    """A matcher that matches nothing, so that no view is built, and collects the ids of all messages."""

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
