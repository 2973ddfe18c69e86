"""The default store: a Redis stream with one consumer group, and a waiting room."""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain, groupby
from typing import Any

from mq_django.conf import QueueConfig
from mq_django.core.keys import FRONT, READY
from mq_django.core.logs import get_logger
from mq_django.core.message_format import decode_entries, encode_entry
from mq_django.core.messages import CancelResult, Delivery, Undecodable
from mq_django.core.publication import Publication
from mq_django.errors import ConnectionLost, MQError, NotReplicated, QueueFull, StoreError
from mq_django.stores.base import NOTHING, Also, CancelRequest, Depths, Fetched, Settlement
from mq_django.stores.control import CancelRequests, OrderSwitch
from mq_django.stores.results import ready_command
from mq_django.stores.settling import Receipts, Settles, Settling, stream_receipts
from mq_django.stores.waiting import WaitingMessages
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Transport, is_gone, reply_or_raise

#: From this batch size on, a plain read is faster than the script: see StreamSource.take_commands().
FULL = 50
#: Pending entries read in one round trip: their bodies are in memory at once.
READ = 100

Taken = list[Delivery | Undecodable]


class Source(ABC):
    """The streams that a store's deliveries come from.

    Methods that take messages return None when the queue has to be prepared: its consumer group does not exist, or it
    is used with ORDERED.
    """

    def __init__(self, config: QueueConfig, transport: Transport, receipts: Sequence[Receipts]) -> None:
        #: By `Delivery.stream`. The first key of each is its stream.
        self.receipts = receipts
        self._keys = config.keys
        self._name = config.public_name
        self._id_end = config.id_end
        self._transport = transport
        self._read_at = 0.0

    def begin_read(self) -> None:
        """Note the time before a read: `Delivery.read_at` of what it returns."""
        self._read_at = time.monotonic()

    @abstractmethod
    def take_commands(self, consumer: str, count: int) -> list[Command]:
        """Return the commands that take messages without waiting, urgent ones first."""

    @abstractmethod
    def taken(self, replies: Sequence[Any], consumer: str, count: int) -> Taken | None:
        """Return the deliveries in the replies of these commands."""

    @abstractmethod
    def fetch(self, consumer: str, *, count: int, block_ms: int) -> Taken | None:
        """Take ready messages; wait for the first."""

    def held_by(self, consumer: str, *, limit: int) -> Taken:
        """Return the deliveries that a consumer holds."""
        held: Taken = []
        for stream in range(len(self.receipts)):
            if len(held) < limit:
                held += self.held_in(stream, consumer, limit - len(held))
        return held

    def held_in(self, stream: int, consumer: str, limit: int) -> Taken:
        """Return the deliveries of one stream that a consumer holds."""
        key = next(iter(self.receipts[stream].keys.values()))
        (pending,) = self._transport.pipeline([("XPENDING", key, self._keys.group, "-", "+", limit, consumer)])
        entries = [] if is_gone(pending) else [row[0] for row in reply_or_raise(pending)]
        held: Taken = []
        # A few at a time: bodies may be large.
        for at in range(0, len(entries), READ):
            batch = entries[at : at + READ]
            for entry, reply in zip(
                batch, self._transport.pipeline([("XRANGE", key, e, e) for e in batch]), strict=True
            ):
                if reply_or_raise(reply):
                    held += self._decoded(reply, stream)
                else:
                    # It still has to be settled to leave the pending list.
                    held.append(Undecodable(stream, entry, [], "deleted while it was pending"))
        return held

    def _decoded(self, entries: list[Any], stream: int) -> Taken:
        """Return the deliveries in the entries of a reply, which is emptied."""
        return decode_entries(entries, queue=self._name, stream=stream, read_at=self._read_at, id_end=self._id_end)

    def read_at(self, entries: list[Any], began: float) -> Taken:
        """Return the deliveries in entries of `ready`, by the time of the monotonic clock before they were read."""
        return decode_entries(entries, queue=self._name, stream=READY, read_at=began, id_end=self._id_end)

    def _read_command(self, consumer: str, count: int, streams: Sequence[str], *, block_ms: int | None) -> Command:
        """Return the command that reads new entries. It waits for the first unless `block_ms` is None."""
        waits = () if block_ms is None else ("BLOCK", block_ms)
        new = [">"] * len(streams)
        return ("XREADGROUP", "GROUP", self._keys.group, consumer, "COUNT", count, *waits, "STREAMS", *streams, *new)


class StreamSource(Source):
    """The streams of a queue: `ready` and `front`."""

    def __init__(self, config: QueueConfig, transport: Transport, receipts: Sequence[Receipts] = ()) -> None:
        keys = config.keys
        retained = config.keeps_rows
        own = [stream_receipts(keys, stream, keeps_rows=retained) for stream in keys.streams()]
        super().__init__(config, transport, receipts or own)
        #: Whether the queue ever had a message with a priority, as of the last reply.
        self.ranked = False
        self._ageing_ms = config.ageing_ms
        #: Whether the last take returned a full batch without priorities: see take_commands().
        self._flows = False

    def take_commands(self, consumer: str, count: int) -> list[Command]:
        """See Source.take_commands(): a script that keeps the order, or a plain read while batches are full.

        The script copies every message into Lua and back, which takes Redis longer than the read itself. With the plain
        read two commands check for urgent messages and a pause: these take effect one batch later.
        """
        if not self._flows or count < FULL:
            return [self._ordered_command(consumer, count)]
        keys = self._keys
        read = self._read_command(consumer, count, [keys.ready], block_ms=None)
        return [("XLEN", keys.front), ("HMGET", keys.control, "paused", "ranked", "ordered"), read]

    def taken(self, replies: Sequence[Any], consumer: str, count: int) -> Taken | None:
        """See Source.taken()."""
        if len(replies) == 1:
            return self._taken_in_order(replies[0], count)
        front, control, read = replies
        self._flows = not reply_or_raise(front) and reply_or_raise(control) == [None, None, None]
        if (found := self._read(read)) != []:
            return found
        # Urgent messages may have come since the check: only the script can tell that there are none.
        return self._taken_in_order(self._transport.pipeline([self._ordered_command(consumer, count)])[0], count)

    def fetch(self, consumer: str, *, count: int, block_ms: int) -> Taken | None:
        """See Source.fetch()."""
        commands = [self._read_command(consumer, count, [self._keys.ready], block_ms=block_ms)]
        if self.ranked:
            # Wakes the next blocked reader, if prioritised messages are left.
            commands.append(self._ordered_command(consumer, 0))
        return self._read(self._transport.pipeline(commands)[0])

    def in_order(self, ready: list[Any], front: list[Any], lead: int, positions: Sequence[int] = ()) -> Taken:
        """Return the entries of both streams. The first `lead` entries of `front` precede `ready`.

        With ageing, `positions` say how many entries of `ready` precede each of `front`.
        """
        first, others = self._decoded(front, FRONT), self._decoded(ready, READY)
        if not positions:
            return [*first[:lead], *others, *first[lead:]]
        found, begin = list[Delivery | Undecodable](), 0
        for item, position in zip(first, positions, strict=True):
            found += [*others[begin:position], item]
            begin = position
        return found + others[begin:]

    def note_ranked(self, ranked: int) -> None:
        """Note what a reply says of priorities, and tell Redis if the settings differ from its ageing."""
        self.ranked = bool(ranked)
        if ranked and ranked != (self._ageing_ms or 1):
            # Messages are ranked by what is there. The consumer that was started last decides.
            self._transport.pipeline([("HSET", self._keys.control, "ageing", self._ageing_ms)])

    def _ordered_command(self, consumer: str, count: int) -> Command:
        keys = self._keys
        key_names = [keys.ready, keys.front, keys.control, keys.priority, keys.waiting]
        return scripts.command("stream_fetch", keys=key_names, args=[keys.group, consumer, count])

    def _taken_in_order(self, reply: Any, count: int) -> Taken | None:
        if is_gone(reply) or reply_or_raise(reply) == b"ORDERED":
            return None
        if reply == b"PAUSED":
            return []
        ready, front, ranked, lead, *positions = reply
        self.note_ranked(ranked)
        self._flows = len(ready) == count and not ranked
        return self.in_order(ready, front, lead, *positions)

    def _read(self, reply: Any) -> Taken | None:
        if is_gone(reply):
            return None
        return self._decoded(reply[0][1], READY) if reply_or_raise(reply) else []


logger = get_logger(__name__)


def _shared_fields(publication: Publication) -> tuple[object, ...]:
    """Return all fields but id, name and data: messages that are published together mostly share them."""
    return publication.message[3:]


class StreamStore(Settles, WaitingMessages):
    """A queue in a Redis stream: see `mq_django.stores.base.Store` for each method."""

    def __init__(self, config: QueueConfig, transport: Transport, source: Source | None = None) -> None:
        super().__init__(config, transport)
        self._requests = CancelRequests(config, transport)
        self._source = source or StreamSource(config, transport)
        self._settling = Settling(transport, config, self._source.receipts)
        self._order = OrderSwitch(config, transport)

    def publish(self, publications: Sequence[Publication]) -> list[str]:
        """See Store.publish()."""
        if not publications[0].options.keeps_result:
            return self._publish(publications, [])
        # Before the message: its handler may finish at once.
        also = [ready_command(self.config, each) for each in publications]
        ids = list[str]()
        try:
            ids = self._publish(publications, also)
        except MQError as error:
            # A message that may be there keeps its result.
            if not isinstance(error, ConnectionLost | NotReplicated):
                self._forget_results(publications, ids)
            raise
        if any(message.id != known for (message, *_), known in zip(publications, ids, strict=True)):
            self._forget_results(publications, ids)
        return ids

    def _forget_results(self, publications: Sequence[Publication], ids: Sequence[str]) -> None:
        """Delete the results of messages that were not written, because the queue is full or another has their key."""
        written = set(ids)
        gone = [message.id for message, *_ in publications if message.id not in written]
        # They expire in any case.
        with suppress(StoreError):
            self._transport.pipeline([("DEL", self.keys.result(message_id)) for message_id in gone])

    def _publish(self, publications: Sequence[Publication], also: Sequence[Command]) -> list[str]:
        options = publications[0].options
        if options.claim_ms is not None:
            (publication,) = publications
            return [self.claim(publication, also=also)]
        if options.delay_ms is not None or options.due_ms is not None:
            return self.add(publications, also=also)
        if any([message.priority for message, _, _ in publications]):  # noqa: C419 - a list is faster
            return self.rank(publications, also=also)
        where = self._slots.now()
        args: list[Argument] = [self.config.max_depth or 0, where.minute, where.hour]
        for _, run in groupby(publications, _shared_fields):
            alike = list(run)
            fields = encode_entry(alike[0].message, alike[0].data_text)
            shared = fields[5:-2:2]
            args += (len(alike), len(fields) // 2, *fields[::2])
            args.extend(chain.from_iterable([(message.id, message.name, *shared, text) for message, text, _ in alike]))
        others = [self.keys.front, self.keys.waiting] if self.config.max_depth else []
        command = scripts.command("stream_publish", keys=[self.keys.ready, *where.keys, *others], args=args)
        if reply_or_raise(self._transport.pipeline([*also, command])[-1]) == b"FULL":
            raise QueueFull(f"Queue {self.config.name!r} is at its MAX_DEPTH of {self.config.max_depth}")
        return [message.id for message, _, _ in publications]

    def create_groups(self) -> None:
        """Create the consumer group at the stream's beginning, if it does not exist."""
        keys = self.keys
        key_names = [keys.control, keys.front, keys.ready]
        command = scripts.command("stream_subscribe", keys=key_names, args=[keys.group])
        if reply_or_raise(self._transport.pipeline([command])[0]) and not self.config.ordered:
            self._order.begin()

    def take(self, consumer: str, *, count: int) -> Taken:
        """See Store.take()."""
        self._source.begin_read()
        replies = self._transport.pipeline(self._source.take_commands(consumer, count))
        return self._taken(self._source.taken(replies, consumer, count))

    def fetch(self, consumer: str, *, count: int, block_ms: int) -> Taken:
        """See Store.fetch()."""
        self._source.begin_read()
        return self._taken(self._source.fetch(consumer, count=count, block_ms=block_ms))

    def woken(self, entries: list[Any], began: float) -> Taken:
        """Return the deliveries in entries of `ready`, of a read for several queues that began at a time."""
        return self._source.read_at(entries, began)

    def rest(self) -> float:
        """See Store.rest()."""
        return self._order.rest()

    def next_check(self) -> float | None:
        """Return after how many seconds a take that has found nothing may find something; None: when it is told."""
        return None

    def settle_and_take(
        self, consumer: str, settlements: Sequence[Settlement], *, count: int, also: Also = NOTHING
    ) -> Fetched:
        """See Store.settle_and_take()."""
        self._source.begin_read()
        take = self._source.take_commands(consumer, count)
        stale, replies = self._settling.settle(consumer, settlements, also=also, then=take)
        return Fetched(self._taken(self._source.taken(replies, consumer, count)), stale)

    def cancel_running(self, id_or_unique: str | bytes, *, force: bool = False) -> CancelResult:
        """See Store.cancel_running()."""
        found = self.cancel(id_or_unique)
        return self._requests.ask(id_or_unique, force=force) if found is CancelResult.NOT_WAITING else found

    def cancel_requests(self) -> Mapping[str, CancelRequest]:
        """See Store.cancel_requests()."""
        return self._requests.read()

    def is_cancelled(self, delivery: Delivery) -> bool:
        """See Store.is_cancelled()."""
        return self._requests.has(delivery)

    def held_by(self, consumer: str, *, limit: int) -> Taken:
        """See Store.held_by()."""
        self._source.begin_read()
        return self._source.held_by(consumer, limit=limit)

    def depths(self) -> Depths:
        """See Store.depths()."""
        keys = self.keys
        replies = self._transport.pipeline(
            [
                ("XLEN", keys.ready),
                ("XLEN", keys.front),
                ("ZCARD", keys.due),
                ("ZCARD", keys.unhandled),
                ("XLEN", keys.dead),
                ("ZCARD", keys.priority),
                ("ZCOUNT", keys.parked, 0, "+inf"),
                ("XPENDING", keys.ready, self.keys.group),
                ("XPENDING", keys.front, self.keys.group),
            ]
        )
        ready, front, due, unhandled, dead, ranked, parked = (reply_or_raise(reply) for reply in replies[:7])
        pending = sum(0 if is_gone(reply) else reply_or_raise(reply)[0] for reply in replies[7:])
        return Depths(ready + front + ranked - pending, due, unhandled, pending, dead, parked)

    def _taken(self, found: Taken | None) -> Taken:
        """Return the deliveries; prepare the queue if that is necessary."""
        if found is None:
            self.create_groups()
        return found or []
