"""A queue whose messages are let through one by one: by limits, in order per key, or by turns of the keys.

One script reads the queue and decides, so that no message overtakes another of its key. Messages that may not run yet
are in lines, one for each key. A consumer that finds nothing waits without polling: see `lua/lines_fetch.lua`.
"""

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal, NamedTuple

from mq_django.conf import QueueConfig
from mq_django.core.jsontext import whole
from mq_django.core.limits import Rate, key_hash
from mq_django.core.messages import Delivery, HandBack, Undecodable
from mq_django.stores.base import NOTHING, Also, Fetched, Settlement
from mq_django.stores.partition_transport import transport_of
from mq_django.stores.settling import line_receipts
from mq_django.stores.stream_store import StreamSource, StreamStore, Taken
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Transport, is_gone, reply_or_raise

#: Takes in a row that may put all messages into lines before take() returns, so that the consumer can check for a stop.
ROUNDS = 20
#: Seconds after which a consumer asks again even if the limit allows it later: it may have been changed.
MAX_REST = 5.0
#: Redis ends a blocked read up to 100 ms late, so shorter waits are done here.
TICK_MS = 100
#: The longest sleep without noticing new messages, in seconds, when the next look at a line is near.
MAX_SLEEP = 0.02
#: The longest wait while messages are in lines, in milliseconds: a message that is cancelled or deleted wakes nobody.
LINE_WAIT_MS = 2000


class LineStore(StreamStore):
    """A queue with limits, order per key or turns: see `mq_django.stores.base.Store` for each method."""

    _source: StreamSource

    def __init__(self, config: QueueConfig, transport: Transport) -> None:
        keys = config.keys
        receipts = [line_receipts(keys, stream, keeps_rows=config.keeps_rows) for stream in keys.streams()]
        super().__init__(config, transport, StreamSource(config, transport, receipts))
        self._limits = config.limits
        #: For each key with a weight: its hash, 1000 divided by the weight.
        self._weights = [word for key, weight in config.fair or () for word in (key_hash(key), f"{1000 / weight:.3f}")]
        #: Until when no message can be taken, by the monotonic clock.
        self._rest_until = 0.0
        #: When the rate limit allows this consumer to ask again, in microseconds since 1970, as Redis replied.
        self._turn = b"0"
        #: Milliseconds until the next look at a line; None: there is none.
        self._next_ms: int | None = None
        self._take_again = False
        #: The concurrency limit is reached: wait for a permit, not for messages.
        self._full = False

    def create_groups(self) -> None:
        """See Store.create_groups(). Also switches the queue's order, as soon as that is possible."""
        super().create_groups()
        self._order.begin()

    def rest(self) -> float:
        """See Store.rest()."""
        return max(super().rest(), min(MAX_REST, self._rest_until - time.monotonic()))

    def next_check(self) -> float | None:
        """See StreamStore.next_check()."""
        if self._take_again:
            return self.rest()
        return None if self._next_ms is None else self._next_ms / 1000

    def take(self, consumer: str, *, count: int) -> Taken:
        """See Store.take()."""
        (reply,) = self._transport.pipeline([self._fetch_command(consumer, count)])
        return self._admitted(consumer, reply, count)

    def settle_and_take(
        self, consumer: str, settlements: Sequence[Settlement], *, count: int, also: Also = NOTHING
    ) -> Fetched:
        """See Store.settle_and_take()."""
        then = [self._fetch_command(consumer, count)]
        stale, replies = self._settling.settle(consumer, settlements, also=also, then=then)
        return Fetched(self._admitted(consumer, replies[-1], count), stale)

    def settle(self, consumer: str, settlements: Sequence[Settlement], *, also: Also = NOTHING) -> list[str]:
        """See Store.settle()."""
        return self._settling.settle(consumer, settlements, also=also, then=[wake_command(self.config)])[0]

    def fetch(self, consumer: str, *, count: int, block_ms: int) -> Taken:
        """See Store.fetch(): wait for a message, a permit or the next look at a line."""
        if not self._take_again and self._next_ms is not None and self._next_ms <= TICK_MS:
            self._rest_until = time.monotonic() + min(MAX_SLEEP, self._next_ms / 1000)
            self._next_ms = None
            self._take_again = True
            return []
        if not self._take_again and not self._wait(block_ms):
            self.create_groups()
        return self.take(consumer, count=count)

    def admit(self, consumer: str, deliveries: Sequence[Delivery | Undecodable]) -> Taken:
        """See Store.admit(). A delivery without the token that its key needs goes back: the next fetch decides."""
        asked = [item for item in deliveries if isinstance(item, Delivery) and item.message.key is not None]
        if not (asked and self._limits.needs_tokens):
            return list(deliveries)
        commands = [("ZSCORE", self.keys.permits, f"{item.stream}-{item.entry.decode()}") for item in asked]
        scores = self._transport.ask_all(commands)
        gone = [item for item, score in zip(asked, scores, strict=True) if score is None]
        if gone:
            self.settle(consumer, [Settlement(item, HandBack()) for item in gone])
        receipts = {(item.stream, item.entry) for item in gone}
        return [item for item in deliveries if (item.stream, item.entry) not in receipts]

    def line_up(self, consumer: str) -> bool:
        """See Store.line_up()."""
        if self._limits.fair is None:
            return False
        (reply,) = self._transport.pipeline([self._fetch_command(consumer, 0)])
        word = [b""] if is_gone(reply) else reply_or_raise(reply)
        return bool(word[0] == b"LINED" and word[1])

    def read_command(self, start: int, count: int) -> Command:
        """Return the command that reads the usage of the limits, and `count` of the keys with parked messages."""
        args = [*self._arguments(""), start, count]
        return scripts.command("lines_usage", keys=[*self._key_names(), self.keys.tags], args=args)

    def _wait(self, block_ms: int) -> bool:
        """Wait until something may be there. Return False if the streams or the group do not exist."""
        keys = self.keys
        if self._next_ms is not None:
            block_ms = min(block_ms, LINE_WAIT_MS, self._next_ms - TICK_MS)
        # One name for all, because nothing is read for long: a consumer of its own would stay behind.
        who = ("XREADGROUP", "GROUP", "wake", "any", "COUNT", 1, "BLOCK", max(1, block_ms), "NOACK")
        streams = [keys.permit_wakeups] if self._full else [keys.permit_wakeups, keys.ready]
        (reply,) = self._transport.pipeline([(*who, "STREAMS", *streams, *[">"] * len(streams))])
        if is_gone(reply):
            return False
        reply_or_raise(reply)
        return True

    def _admitted(self, consumer: str, reply: Any, count: int) -> Taken:
        """Return the deliveries in a reply; read on while all messages are put into lines."""
        for left in range(ROUNDS, 0, -1):
            self._take_again = False
            found = self._read_reply(reply)
            if found or not self._take_again or self.rest():
                return found
            if left > 1:
                (reply,) = self._transport.pipeline([self._fetch_command(consumer, count)])
        return []

    def _read_reply(self, reply: Any) -> Taken:
        """Return the deliveries; remember what to wait for."""
        self._next_ms, self._full = None, False
        if is_gone(reply):
            self.create_groups()
            return []
        word = reply_or_raise(reply)
        if word == b"OTHER":
            self._order.begin()
            return []
        if word == b"PAUSED":
            return []
        word, *rest = reply
        if word == b"FULL":
            self._full = True
            return []
        if word == b"LATER":
            wait_us, self._turn = rest
            self._rest_until = time.monotonic() + min(MAX_REST, wait_us / 1e6)
            self._take_again = True
            return []
        ready, front, lead, next_ms, ranked, more, *positions = rest
        self._source.note_ranked(ranked)
        self._next_ms = None if next_ms < 0 else next_ms
        self._take_again = bool(more)
        return self._source.in_order(ready, front, lead, *positions)

    def _fetch_command(self, consumer: str, count: int) -> Command:
        keys, limits, fair = self.keys, self._limits, self._limits.fair
        args = [*self._arguments(consumer), count, self._turn, _flag(limits.ordered), _flag(fair is not None)]
        args += self._weights
        key_names = [*self._key_names(), keys.due, keys.unhandled, keys.dead, keys.tags]
        return scripts.command("lines_fetch", keys=key_names, args=args)

    def _key_names(self) -> list[str]:
        keys = self.keys
        common = [keys.ready, keys.front, keys.control, keys.priority, keys.waiting, keys.unique]
        return [*common, keys.limits, keys.rates, keys.permits, keys.parked, keys.next_checks, keys.permit_wakeups]

    def _arguments(self, consumer: str) -> list[Argument]:
        limits = self._limits
        whole = (*_rate(limits.rate), limits.concurrency or 0)
        return [self.keys.group, consumer, *whole, *_rate(limits.key_rate), limits.key_concurrency or 0]


def _flag(value: bool) -> str:
    return "1" if value else "0"


def _rate(rate: Rate | None) -> tuple[int, int]:
    return (0, 0) if rate is None else (rate.count, rate.micros)


# The line of one key: the command that reads it, and what lets it go on without its head.

#: The hash of the line of messages without a key, which queues with FAIR have: see `lua/lines_fetch.lua`.
NO_KEY = 10**16

#: See `lua/lines_skip.lua`.
Skip = Literal["SKIPPED", "CHANGED", "RUNS"]
_WORDS: dict[bytes, Skip] = {b"SKIPPED": "SKIPPED", b"CHANGED": "CHANGED", b"RUNS": "RUNS"}


def wake_command(config: QueueConfig) -> Command:
    """Return the command that wakes a consumer, if there is something for it: see `lua/lines_wake.lua`."""
    keys = config.keys
    key_names = [keys.limits, keys.next_checks, keys.permit_wakeups]
    return scripts.command("lines_wake", keys=key_names, args=[config.concurrency.queue or 0])


def read_command(config: QueueConfig, key_hash: int, *, count: int, max_bytes: int) -> Command:
    """Return the command that reads up to `count` messages and tokens of a line: see `lua/lines_read.lua`."""
    keys = config.keys
    key_names = [keys.parked, keys.permits, keys.waiting, keys.unique, keys.due, keys.unhandled]
    return scripts.command(
        "lines_read",
        keys=[*key_names, keys.ready, keys.front, keys.dead],
        args=[keys.group, key_hash, count, max_bytes],
    )


def skip_head(config: QueueConfig, transport: Transport, key_hash: int, token: str) -> Skip:
    """Let a key go on without the message of this token, and wake a consumer.

    Returns:
        `CHANGED` if that message is no longer the head, `RUNS` if it does not wait.

    Raises:
        StoreError: cannot reach Redis, or it refused.
    """
    keys = config.keys
    skip = scripts.command("lines_skip", keys=[keys.permits, keys.next_checks], args=[key_hash, token])
    return _WORDS[transport_of(config, transport).ask_all([skip, wake_command(config)])[0]]


# The limits that the partitions of a queue have in common: RATE_LIMIT and CONCURRENCY of the queue as a whole.
#
# Partitions are in slots of their own, so no fetch can look at all of them. Instead, consumers ask for a share before
# they fetch, in the slot of the queue as a whole. Each says how many deliveries it holds, which replaces what it said
# before: a reply that was lost, or a consumer that died, costs nothing for longer than the share counts.

#: How often a share is renewed while it counts.
RENEWED = 3


class Share(NamedTuple):
    """What a consumer may fetch."""

    messages: int
    #: Seconds until it may ask again; None if it will be told.
    wait: float | None = 0.0


class Shares:
    """The shares of one consumer in the limits of a queue with partitions.

    Args:
        config: the queue.
        transport: sends the commands.
        consumer: its name, unique for each connection that fetches.
    """

    def __init__(self, config: QueueConfig, transport: Transport, consumer: str) -> None:
        self._config = config
        self._transport = transport
        self._consumer = consumer
        self._turn = "0"
        #: Grants of the last share that were not used.
        self._unused = 0
        #: The share that it holds or may fetch, as Redis knows it; and since when, on the monotonic clock.
        self._known, self._since = 0, 0.0
        #: For how long a share counts if its consumer does not ask again: then it is taken for dead.
        self._lasts = config.visibility_timeout

    @property
    def channel(self) -> str:
        """Return the channel on which it hears that others need less."""
        return self._config.keys.arrivals

    def is_due(self, held: int) -> bool:
        """Return whether Redis should be told how many deliveries the consumer holds."""
        ages = time.monotonic() - self._since > self._lasts.total_seconds() / RENEWED
        return bool(self._unused) or held < self._known or (held > 0 and ages)

    def ask(self, held: int, more: int) -> Share:
        """Ask for a share of the limits. A caller says by give_back() what it did not use.

        Args:
            held: the deliveries that the consumer holds.
            more: how many more it would fetch.

        Raises:
            StoreError: Redis cannot be reached, or refuses.
        """
        keys, rate, most = self._config.keys, self._config.rate_limit.queue, self._config.concurrency.queue
        ttl = self._lasts // timedelta(milliseconds=1)
        # Said once: if the reply is lost, grants may be lost, and none is given back twice.
        unused, self._unused = self._unused, 0
        of_consumer: list[Argument] = [self._consumer, held, more, unused, self._turn, ttl, keys.arrivals]
        given, wait, turn = self._transport.run(
            "shares_ask", [keys.limits, keys.shares, keys.control], [*_rate(rate), most or 0, *of_consumer]
        )
        self._turn = turn.decode()
        self._known, self._since = held + given, time.monotonic()
        return Share(whole(given) or 0, None if wait < 0 else wait / 1e6)

    def give_back(self, unused: int) -> None:
        """Note how much of the last share was not used. The next ask() says so."""
        self._unused = unused
