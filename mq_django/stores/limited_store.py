"""A queue with limits on rate and concurrency, of the queue and of each key.

Messages are read by a script that takes permits first. Deliveries over the limit of their key are parked. A consumer
that finds the queue's own limit reached waits without polling.
"""

import time
from collections.abc import Sequence
from typing import Any

from mq_django.conf import QueueConfig
from mq_django.core.keys import PARKED_PREFIX, URGENT
from mq_django.core.limits import Rate
from mq_django.core.messages import Delivery, Undecodable
from mq_django.core.outcomes import HandBack
from mq_django.core.wire import alone_of, encode_body
from mq_django.stores.base import Fetched, Settlement
from mq_django.stores.sources import StreamSource, Taken
from mq_django.stores.stream_store import StreamStore
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Wire, is_gone, reply_or_raise

#: Takes in a row that may park all their deliveries before take() returns, so that the consumer can check for a stop.
ROUNDS = 20
#: Seconds after which a consumer asks again even if the limit allows it later: Redis may have been flushed.
MAX_REST = 60.0
#: Redis ends a blocked read up to 100 ms late, so shorter waits are done here.
TICK_MS = 100
#: The longest sleep without noticing new messages, in seconds, when the next check of a key is near.
MAX_SLEEP = 0.02


class LimitedStore(StreamStore):
    """A queue with limits: see `mq_django.stores.base.Store` for each method."""

    _source: StreamSource

    def __init__(self, config: QueueConfig, wire: Wire) -> None:
        super().__init__(config, wire, StreamSource(config, wire))
        self._limits = config.limits
        #: Until when no message can be taken, by the monotonic clock.
        self._rest_until = 0.0
        #: When the rate limit allows this consumer to ask again, in microseconds since 1970, as Redis replied.
        self._turn = b"0"
        #: The concurrency limit is reached: wait for a permit, not for messages.
        self._full = False
        #: Milliseconds until the next check of a key with parked messages; None: there is none.
        self._next_ms: int | None = None
        self._take_again = False

    def rest(self) -> float:
        """See Store.rest()."""
        return max(0.0, min(MAX_REST, self._rest_until - time.monotonic()))

    def _more_streams(self) -> list[str]:
        return [self.keys.permit_wakeups]

    def take(self, consumer: str, *, count: int) -> Taken:
        """See Store.take()."""
        (reply,) = self._wire.trip([self._fetch_command(consumer, count)])
        return self._admitted(consumer, reply, count)

    def settle_and_take(
        self, consumer: str, settlements: Sequence[Settlement], *, count: int, also: Sequence[Command] = ()
    ) -> Fetched:
        """See Store.settle_and_take()."""
        then = [*self._release_commands(consumer, settlements), self._fetch_command(consumer, count)]
        stale, replies = self._settling.settle(consumer, settlements, also=also, then=then)
        return Fetched(self._admitted(consumer, replies[-1], count), stale)

    def settle(self, consumer: str, settlements: Sequence[Settlement], *, also: Sequence[Command] = ()) -> list[str]:
        """See Store.settle()."""
        release = self._release_commands(consumer, settlements)
        return self._settling.settle(consumer, settlements, also=also, then=release)[0]

    def fetch(self, consumer: str, *, count: int, block_ms: int) -> Taken:
        """See Store.fetch(): wait for a message, a permit or the next check of a key."""
        if self._take_again:
            return self.take(consumer, count=count)
        if self._full:
            self._wait_for_permit(consumer, block_ms)
            return self.take(consumer, count=count)
        if self._next_ms is not None and self._next_ms <= TICK_MS:
            self._rest_until = time.monotonic() + min(MAX_SLEEP, self._next_ms / 1000)
            self._next_ms = None
            self._take_again = True
            return []
        if self._next_ms is not None:
            block_ms = min(block_ms, self._next_ms - TICK_MS)
        # One at a time: deliveries over the queue's limits go back.
        found = super().fetch(consumer, count=1 if self._limits.of_queue else count, block_ms=max(1, block_ms))
        return self._permitted(consumer, found, charge=True)

    def admit(self, consumer: str, deliveries: Sequence[Delivery | Undecodable]) -> Taken:
        """See Store.admit()."""
        return self._permitted(consumer, list(deliveries), charge=False)

    def look_command(self, start: int, count: int) -> Command:
        """Return the command that reads the usage of the limits, and `count` of the keys with parked messages."""
        args = [*self._arguments("", of_queue=True), start, count]
        return scripts.command("limits_usage", keys=self._key_names(), args=args)

    def _wait_for_permit(self, consumer: str, block_ms: int) -> None:
        who = ("XREADGROUP", "GROUP", self.keys.group, consumer)
        (reply,) = self._wire.trip(
            [(*who, "COUNT", 1, "BLOCK", block_ms, "NOACK", "STREAMS", self.keys.permit_wakeups, ">")]
        )
        if is_gone(reply):
            self.create_groups()
        else:
            reply_or_raise(reply)

    def _admitted(self, consumer: str, reply: Any, count: int) -> Taken:
        """Return the deliveries that may run; read on while all of them are parked."""
        for left in range(ROUNDS, 0, -1):
            self._take_again = False
            found, permitted = self._read_reply(reply)
            if not found:
                return []
            asked = [item for item in found if item.stream != URGENT or item.entry not in permitted]
            parked = self._parked(consumer, asked, charge=False)
            if admitted := [item for item in found if (item.stream, item.entry) not in parked]:
                return admitted
            if left > 1:
                (reply,) = self._wire.trip([self._fetch_command(consumer, count)])
        self._take_again = True
        return []

    def _read_reply(self, reply: Any) -> tuple[Taken, frozenset[bytes]]:
        """Return the deliveries, and the entries that have a permit of their key; remember what to wait for."""
        nothing: tuple[Taken, frozenset[bytes]] = ([], frozenset())
        self._full, self._next_ms = False, None
        if is_gone(reply):
            self.create_groups()
            return nothing
        if reply_or_raise(reply) == b"PAUSED":
            return nothing
        word, *rest = reply
        if word == b"FULL":
            self._full = True
            return nothing
        if word == b"LATER":
            wait_us, self._turn = rest
            self._rest_until = time.monotonic() + min(MAX_REST, wait_us / 1e6)
            self._take_again = True
            return nothing
        ready, urgent, lead, permitted, next_ms, ranked = rest
        self._source.ranked = bool(ranked)
        self._next_ms = None if next_ms < 0 else next_ms
        return self._source.in_order(ready, urgent, lead), frozenset(permitted)

    def _permitted(self, consumer: str, found: Taken, *, charge: bool) -> Taken:
        """Take permits for deliveries that were read without any, and return those that may run."""
        gone = self._parked(consumer, found, charge=charge)
        self._take_again = bool(found)
        return [item for item in found if (item.stream, item.entry) not in gone]

    def _parked(self, consumer: str, found: Taken, *, charge: bool) -> set[tuple[int, bytes]]:
        """Take permits for deliveries; park or hand back those without, and return these."""
        of_keys, asked = self._limits.of_keys, [item for item in found if isinstance(item, Delivery)]
        if not (charge and self._limits.of_queue):
            asked = [item for item in asked if of_keys and item.message.key is not None]
        if not asked:
            return set()
        args = self._arguments(consumer, of_queue=charge)
        for item in asked:
            args += (item.stream, item.entry, item.message.key or "" if of_keys else "")
        (words,) = self._wire.trip([scripts.command("limits_admit", keys=self._key_names(), args=args)])
        by_word: dict[bytes, list[Delivery]] = {b"GO": [], b"PARK": [], b"BACK": []}
        for item, word in zip(asked, reply_or_raise(words), strict=True):
            by_word[word].append(item)
        if by_word[b"BACK"]:
            self.settle(consumer, [Settlement(item, HandBack()) for item in by_word[b"BACK"]])
        if by_word[b"PARK"]:
            self._park(consumer, by_word[b"PARK"], charged=not charge)
        return {(item.stream, item.entry) for item in by_word[b"BACK"] + by_word[b"PARK"]}

    def _park(self, consumer: str, items: Sequence[Delivery], *, charged: bool) -> None:
        args = self._arguments(consumer, of_queue=charged)
        for item in items:
            message, member = item.message, _parked_member(item)
            body = encode_body(message, item.data_text, member=member, alone=alone_of(item), history=item.history)
            args += (item.stream, item.entry, message.id, message.key or "", member, body)
        reply_or_raise(self._wire.trip([scripts.command("limits_park", keys=self._key_names(), args=args)])[0])

    def _release_commands(self, consumer: str, settlements: Sequence[Settlement]) -> list[Command]:
        of_keys = self._limits.of_keys
        args = self._arguments(consumer, of_queue=True)
        before = len(args)
        for settlement in settlements:
            item = settlement.delivery
            if of_keys and isinstance(item, Delivery) and item.message.key is not None:
                args += (item.stream, item.entry, item.message.key)
        if len(args) == before and self._limits.concurrency is None:
            return []
        return [scripts.command("limits_release", keys=self._key_names(), args=args)]

    def _fetch_command(self, consumer: str, count: int) -> Command:
        args = [*self._arguments(consumer, of_queue=True), count, self._turn]
        return scripts.command("limits_fetch", keys=self._key_names(), args=args)

    def _key_names(self) -> list[str]:
        keys = self.keys
        common = [keys.ready, keys.urgent, keys.control, keys.priority, keys.waiting, keys.unique]
        return [*common, keys.limits, keys.rates, keys.permits, keys.parked, keys.next_checks, keys.permit_wakeups]

    def _arguments(self, consumer: str, *, of_queue: bool) -> list[Argument]:
        limits = self._limits
        whole = (*_rate(limits.rate), limits.concurrency or 0) if of_queue else (0, 0, 0)
        return [self.keys.group, consumer, *whole, *_rate(limits.key_rate), limits.key_concurrency or 0]


def _rate(rate: Rate | None) -> tuple[int, int]:
    return (0, 0) if rate is None else (rate.count, rate.micros)


def _parked_member(item: Delivery) -> str:
    """Return the member of a parked message: those of a key are in the order of their entries."""
    milliseconds, _, number = item.entry.decode().partition("-")
    return f"{PARKED_PREFIX}{milliseconds:0>15}-{number:0>10}-{item.stream}"
