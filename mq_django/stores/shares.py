"""The limits that the partitions of a queue have in common: RATE_LIMIT and CONCURRENCY of the queue as a whole.

Partitions are in slots of their own, so no fetch can look at all of them. Instead, consumers ask for a share before
they fetch, in the slot of the queue as a whole. Each says how many deliveries it holds, which replaces what it said
before: a reply that was lost, or a consumer that died, costs nothing for longer than the share counts.
"""

import time
from datetime import timedelta
from typing import NamedTuple

from mq_django.conf import QueueConfig
from mq_django.core.numbers import whole
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument
from mq_django.transport.sessions import Wire, reply_or_raise

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
        wire: sends the commands.
        consumer: its name, unique for each connection that fetches.
    """

    def __init__(self, config: QueueConfig, wire: Wire, consumer: str) -> None:
        self._config = config
        self._wire = wire
        self._consumer = consumer
        self._turn = "0"
        #: Grants of the last share that were not used.
        self._unused = 0
        #: What Redis knows that it holds, or may fetch; and since when, on the monotonic clock.
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
        """Ask for a share of the limits. Whoever has asked says by give_back() what it did not use.

        Args:
            held: the deliveries that the consumer holds.
            more: how many more it would fetch.

        Raises:
            StoreError: Redis cannot be reached, or refuses.
        """
        keys, rate, most = self._config.keys, self._config.rate_limit.queue, self._config.concurrency.queue
        of_rate = (0, 0) if rate is None else (rate.count, rate.micros)
        ttl = self._lasts // timedelta(milliseconds=1)
        # Said once: if the reply is lost, grants may be lost, and none is given back twice.
        unused, self._unused = self._unused, 0
        of_consumer: list[Argument] = [self._consumer, held, more, unused, self._turn, ttl, keys.arrivals]
        command = scripts.command(
            "shares_ask", keys=[keys.limits, keys.shares], args=[*of_rate, most or 0, *of_consumer]
        )
        given, wait, turn = reply_or_raise(self._wire.trip([command])[0])
        self._turn = turn.decode()
        self._known, self._since = held + given, time.monotonic()
        return Share(whole(given) or 0, None if wait < 0 else wait / 1e6)

    def give_back(self, unused: int) -> None:
        """Note how much of the last share was not used. The next ask() says so."""
        self._unused = unused
