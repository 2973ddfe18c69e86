"""Read deliveries from streams."""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from mq_django.conf import QueueConfig
from mq_django.core.keys import READY, URGENT
from mq_django.core.messages import Delivery, Undecodable
from mq_django.core.wire import decode_entries
from mq_django.stores.settling import Receipts, stream_receipts
from mq_django.transport import scripts
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Wire, is_gone, reply_or_raise

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

    def __init__(self, config: QueueConfig, wire: Wire, receipts: Sequence[Receipts]) -> None:
        #: By `Delivery.stream`. The first key of each is its stream.
        self.receipts = receipts
        self._keys = config.keys
        self._name = config.public_name
        self._id_end = config.id_end
        self._wire = wire
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
        (pending,) = self._wire.trip([("XPENDING", key, self._keys.group, "-", "+", limit, consumer)])
        entries = [] if is_gone(pending) else [row[0] for row in reply_or_raise(pending)]
        held: Taken = []
        # A few at a time: bodies may be large.
        for at in range(0, len(entries), READ):
            batch = entries[at : at + READ]
            for entry, reply in zip(batch, self._wire.trip([("XRANGE", key, e, e) for e in batch]), strict=True):
                if reply_or_raise(reply):
                    held += self._decoded(reply, stream)
                else:
                    # It still has to be settled to leave the pending list.
                    held.append(Undecodable(stream, entry, [], "deleted while it was pending"))
        return held

    def _decoded(self, entries: list[Any], stream: int) -> Taken:
        """Return the deliveries in the entries of a reply, which is emptied."""
        return decode_entries(entries, queue=self._name, stream=stream, read_at=self._read_at, id_end=self._id_end)

    def _read_command(self, consumer: str, count: int, streams: Sequence[str], *, block_ms: int | None) -> Command:
        """Return the command that reads new entries. It waits for the first unless `block_ms` is None."""
        waits = () if block_ms is None else ("BLOCK", block_ms)
        new = [">"] * len(streams)
        return ("XREADGROUP", "GROUP", self._keys.group, consumer, "COUNT", count, *waits, "STREAMS", *streams, *new)


class StreamSource(Source):
    """The streams of a queue: `ready` and `urgent`."""

    def __init__(self, config: QueueConfig, wire: Wire, receipts: Sequence[Receipts] = ()) -> None:
        keys = config.keys
        retained = config.keeps_rows
        own = [stream_receipts(keys, stream, keeps_rows=retained) for stream in keys.streams()]
        super().__init__(config, wire, receipts or own)
        #: Whether the queue ever had a message with a priority, as of the last reply.
        self.ranked = False
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
        return [("XLEN", keys.urgent), ("HMGET", keys.control, "paused", "ranked", "ordered"), read]

    def taken(self, replies: Sequence[Any], consumer: str, count: int) -> Taken | None:
        """See Source.taken()."""
        if len(replies) == 1:
            return self._taken_in_order(replies[0], count)
        urgent, control, read = replies
        self._flows = not reply_or_raise(urgent) and reply_or_raise(control) == [None, None, None]
        if (found := self._read(read)) != []:
            return found
        # Urgent messages may have come since the check: only the script can tell that there are none.
        return self._taken_in_order(self._wire.trip([self._ordered_command(consumer, count)])[0], count)

    def fetch(self, consumer: str, *, count: int, block_ms: int) -> Taken | None:
        """See Source.fetch()."""
        commands = [self._read_command(consumer, count, [self._keys.ready], block_ms=block_ms)]
        if self.ranked:
            # Wakes the next blocked reader, if prioritised messages are left.
            commands.append(self._ordered_command(consumer, 0))
        return self._read(self._wire.trip(commands)[0])

    def in_order(self, ready: list[Any], urgent: list[Any], lead: int) -> Taken:
        """Return the entries of both streams. The first `lead` entries of `urgent` precede those of `ready`."""
        first = self._decoded(urgent, URGENT)
        return [*first[:lead], *self._decoded(ready, READY), *first[lead:]]

    def _ordered_command(self, consumer: str, count: int) -> Command:
        keys = self._keys
        key_names = [keys.ready, keys.urgent, keys.control, keys.priority, keys.waiting]
        return scripts.command("stream_fetch", keys=key_names, args=[keys.group, consumer, count])

    def _taken_in_order(self, reply: Any, count: int) -> Taken | None:
        if is_gone(reply) or reply_or_raise(reply) == b"ORDERED":
            return None
        if reply == b"PAUSED":
            return []
        ready, urgent, ranked, lead = reply
        self.ranked = bool(ranked)
        self._flows = len(ready) == count and not ranked
        return self.in_order(ready, urgent, lead)

    def _read(self, reply: Any) -> Taken | None:
        if is_gone(reply):
            return None
        return self._decoded(reply[0][1], READY) if reply_or_raise(reply) else []
