"""The default store: a Redis stream with one consumer group, and a waiting room beside it."""

from collections.abc import Iterable, Sequence
from itertools import chain, groupby
from typing import Any, Literal

from mq_django.conf import QueueConfig
from mq_django.core.keys import READY, URGENT
from mq_django.core.lookup import CancelResult, Lookup
from mq_django.core.messages import Delivery, Undecodable
from mq_django.core.publication import Publication
from mq_django.core.wire import decode_entry, encode_entry
from mq_django.errors import QueueFull
from mq_django.stores.base import Depths, Fetched, HomeEntry, Promoted, Settlement
from mq_django.stores.counters import Slots
from mq_django.stores.results import ready_command
from mq_django.stores.settling import Settling, stream_receipts
from mq_django.stores.waiting_room import WaitingRoom
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Wire, is_gone, reply_or_raise

#: So many messages at once are a batch of a queue that flows.
FULL = 50
#: Entries read in one trip by who recovers: at most so many bodies are in memory at once.
READ = 100


def _like(publication: Publication) -> tuple[object, ...]:
    """Return what messages that are published together mostly share: all but id, name and data."""
    return publication.message[3:]


class StreamStore:
    """A queue in a Redis stream: see `mq_django.stores.base.Store` for what each method promises."""

    def __init__(self, config: QueueConfig, wire: Wire) -> None:
        self.config = config
        self.keys = config.keys
        self.waiting = WaitingRoom(config, wire)
        self._wire = wire
        self._slots = Slots(config.keys)
        self._settling = Settling(wire, [stream_receipts(config.keys, stream) for stream in config.keys.homes()])
        #: Whether the queue ever had a message with a priority, as far as this store has seen.
        self._ranked = False
        #: Whether the last take brought a full batch, and nothing goes before what is ready.
        self._flows = False

    def publish(self, publications: Sequence[Publication]) -> list[str]:
        """See Store.publish()."""
        options = publications[0].options
        # Before the message is there: its handler may end at once.
        also = [ready_command(self.config, each) for each in publications] if options.keeps_result else []
        if options.claim_ms is not None:
            (publication,) = publications
            return [self.waiting.claim(publication, also=also)]
        if options.delay_ms is not None or options.due_ms is not None:
            return self.waiting.add(publications, also=also)
        if any([message.priority for message, _, _ in publications]):  # noqa: C419 - a list is faster
            return self.waiting.rank(publications, also=also)
        where = self._slots.now()
        args: list[Argument] = [self.config.max_depth or 0, where.minute, where.hour]
        for _, run in groupby(publications, _like):
            alike = list(run)
            fields = encode_entry(alike[0].message, alike[0].data_text)
            shared = fields[5:-2:2]
            args += (len(alike), len(fields) // 2, *fields[::2])
            args.extend(chain.from_iterable([(message.id, message.name, *shared, text) for message, text, _ in alike]))
        others = [self.keys.urgent, self.keys.waiting] if self.config.max_depth else []
        command = scripts.command("stream_publish", keys=[self.keys.ready, *where.keys, *others], args=args)
        if reply_or_raise(self._wire.trip([*also, command])[-1]) == b"FULL":
            raise QueueFull(f"Queue {self.config.name!r} is at its MAX_DEPTH of {self.config.max_depth}")
        return [message.id for message, _, _ in publications]

    def create_groups(self) -> None:
        """Make the consumer group, from the stream's beginning, where there is none."""
        keys = self.keys
        key_names = [keys.control, keys.urgent, keys.ready, *self._more_streams()]
        reply_or_raise(self._wire.trip([scripts.command("stream_subscribe", keys=key_names, args=[keys.group])])[0])

    def _more_streams(self) -> list[str]:
        """Return the streams beside `ready` that its consumer group reads."""
        return []

    def take(self, consumer: str, *, count: int) -> list[Delivery | Undecodable]:
        """Take up to `count` messages for a consumer, what goes first before what is ready, without waiting."""
        commands = self._take_commands(consumer, count)
        return self._taken(self._wire.trip(commands), consumer, count)

    def fetch(self, consumer: str, *, count: int, block_ms: int) -> list[Delivery | Undecodable]:
        """See Store.fetch()."""
        commands = [self._read_command(consumer, count, block_ms)]
        if self._ranked:
            # Whoever was woken wakes the next, while there is something with a priority.
            commands.append(self._ordered_command(consumer, 0))
        return self._read(self._wire.trip(commands)[0])

    def rest(self) -> float:
        """See Store.rest()."""
        return 0.0

    def admit(self, consumer: str, deliveries: Sequence[Delivery | Undecodable]) -> Sequence[Delivery | Undecodable]:
        """See Store.admit()."""
        return deliveries

    def settle(self, consumer: str, settlements: Sequence[Settlement], *, also: Sequence[Command] = ()) -> list[str]:
        """See Store.settle()."""
        return self._settling.settle(consumer, settlements, also=also)[0]

    def settle_and_take(
        self, consumer: str, settlements: Sequence[Settlement], *, count: int, also: Sequence[Command] = ()
    ) -> Fetched:
        """Settle a batch and take the next messages in one round trip, without waiting."""
        take = self._take_commands(consumer, count)
        stale, replies = self._settling.settle(consumer, settlements, also=also, then=take)
        return Fetched(self._taken(replies, consumer, count), stale)

    def promote(self, *, limit: int) -> Promoted:
        """See Store.promote()."""
        return self.waiting.promote(limit=limit)

    def cancel(self, named: str | bytes) -> CancelResult:
        """See Store.cancel()."""
        return self.waiting.cancel(named)

    def reschedule(self, named: str, *, delay_ms: int | None = None, due_ms: int | None = None) -> CancelResult:
        """See Store.reschedule()."""
        return self.waiting.reschedule(named, delay_ms=delay_ms, due_ms=due_ms)

    def find(self, named: str) -> Lookup:
        """See Store.find()."""
        return self.waiting.find(named)

    def purge(self, *, limit: int, place: Literal["", "ready", "delayed", "unhandled", "parked"] = "") -> int:
        """See Store.purge()."""
        keys = self.keys
        places = [keys.ready, keys.urgent, keys.due, keys.priority, keys.unhandled, keys.parked]
        index = [keys.waiting, keys.unique, keys.claims]
        command = scripts.command("stream_purge", keys=[*places, *index], args=[self.keys.group, limit, place])
        return int(reply_or_raise(self._wire.trip([command])[0]))

    def release_unhandled(self, names: Iterable[str], *, limit: int) -> int:
        """See Store.release_unhandled()."""
        return self.waiting.release(names, limit=limit)

    def held_by(self, consumer: str, *, limit: int) -> list[Delivery | Undecodable]:
        """See Store.held_by()."""
        held: list[Delivery | Undecodable] = []
        for home in range(len(self.keys.homes())):
            if len(held) < limit:
                held += self._held(home, consumer, limit - len(held))
        return held

    def _held(self, home: int, consumer: str, limit: int) -> list[Delivery | Undecodable]:
        key = self.keys.homes()[home]
        (pending,) = self._wire.trip([("XPENDING", key, self.keys.group, "-", "+", limit, consumer)])
        entries = [] if is_gone(pending) else [row[0] for row in reply_or_raise(pending)]
        held: list[Delivery | Undecodable] = []
        # A few at a time: bodies may be large.
        for at in range(0, len(entries), READ):
            held += self._bodies(home, key, entries[at : at + READ])
        return held

    def _bodies(self, home: int, key: str, entries: Sequence[bytes]) -> list[Delivery | Undecodable]:
        found: list[Delivery | Undecodable] = []
        for entry, reply in zip(entries, self._wire.trip([("XRANGE", key, e, e) for e in entries]), strict=True):
            if reply_or_raise(reply):
                found.append(decode_entry(reply[0][1], queue=self.config.name, home=home, entry=entry))
            else:
                # It still has to be settled, to leave the pending list.
                found.append(Undecodable(home, entry, [], "deleted while it was pending"))
        return found

    def extend(self, consumer: str, receipts: Sequence[HomeEntry]) -> list[HomeEntry]:
        """See Store.extend()."""
        return self.pass_on(consumer, consumer, receipts)

    def pass_on(self, consumer: str, new_owner: str, receipts: Sequence[HomeEntry]) -> list[HomeEntry]:
        """See Store.pass_on()."""
        return self._settling.pass_on(consumer, new_owner, receipts)

    def depths(self) -> Depths:
        """See Store.depths()."""
        keys = self.keys
        replies = self._wire.trip(
            [
                ("XLEN", keys.ready),
                ("XLEN", keys.urgent),
                ("ZCARD", keys.due),
                ("ZCARD", keys.unhandled),
                ("XLEN", keys.dead),
                ("ZCARD", keys.priority),
                ("ZCARD", keys.parked),
                ("XPENDING", keys.ready, self.keys.group),
                ("XPENDING", keys.urgent, self.keys.group),
            ]
        )
        ready, urgent, due, unhandled, dead, ranked, parked = (reply_or_raise(reply) for reply in replies[:7])
        pending = sum(0 if is_gone(reply) else reply_or_raise(reply)[0] for reply in replies[7:])
        return Depths(ready + urgent + ranked - pending, due, unhandled, pending, dead, parked)

    def _take_commands(self, consumer: str, count: int) -> list[Command]:
        """Return what takes messages: a script that keeps their order, or while a full queue flows, a plain read.

        The script copies every message into Lua and back, which takes Redis longer than the reading. Beside the plain
        read are two looks: what goes first, and a pause, are seen a batch later, as if they had come a batch later.
        """
        if not self._flows or count < FULL:
            return [self._ordered_command(consumer, count)]
        keys = self.keys
        read = ("XREADGROUP", "GROUP", keys.group, consumer, "COUNT", count, "STREAMS", keys.ready, ">")
        return [("XLEN", keys.urgent), ("HMGET", keys.control, "paused", "ranked"), read]

    def _taken(self, replies: Sequence[Any], consumer: str, count: int) -> list[Delivery | Undecodable]:
        if len(replies) == 1:
            return self._taken_in_order(replies[0], count)
        urgent, control, read = replies
        self._flows = not reply_or_raise(urgent) and reply_or_raise(control) == [None, None]
        if taken := self._read(read):
            return taken
        # Something may have gone first since the look: only the script can say that there is nothing.
        return self._taken_in_order(self._wire.trip([self._ordered_command(consumer, count)])[0], count)

    def _ordered_command(self, consumer: str, count: int) -> Command:
        keys = self.keys
        key_names = [keys.ready, keys.urgent, keys.control, keys.priority, keys.waiting]
        return scripts.command("stream_fetch", keys=key_names, args=[self.keys.group, consumer, count])

    def _taken_in_order(self, reply: Any, count: int) -> list[Delivery | Undecodable]:
        if is_gone(reply):
            self.create_groups()
            return []
        if reply_or_raise(reply) == b"PAUSED":
            return []
        ready, urgent, ranked, lead = reply
        self._ranked = bool(ranked)
        self._flows = len(ready) == count and not ranked
        return self._in_order(ready, urgent, lead)

    def _in_order(self, ready: Sequence[Any], urgent: Sequence[Any], lead: int) -> list[Delivery | Undecodable]:
        """Return what was read of both streams; of `urgent` the first `lead` go before `ready`."""
        first = self._decoded(urgent, URGENT)
        return [*first[:lead], *self._decoded(ready, READY), *first[lead:]]

    def _read_command(self, consumer: str, count: int, block_ms: int) -> Command:
        who = ("XREADGROUP", "GROUP", self.keys.group, consumer)
        return (*who, "COUNT", count, "BLOCK", block_ms, "STREAMS", self.keys.ready, ">")

    def _read(self, reply: Any) -> list[Delivery | Undecodable]:
        if is_gone(reply):
            self.create_groups()
            return []
        if not reply_or_raise(reply):
            return []
        return self._decoded(reply[0][1], READY)

    def _decoded(self, entries: Sequence[Any], home: int) -> list[Delivery | Undecodable]:
        name = self.config.name
        return [decode_entry(fields or [], queue=name, home=home, entry=entry) for entry, fields in entries]
