"""Reset the idle time of deliveries whose handlers run for long."""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Protocol

from mq_django.consumers.by_server import ServerQueues, open_stores
from mq_django.consumers.receipts import Running
from mq_django.consumers.service import Service
from mq_django.core.logs import get_logger
from mq_django.stores.base import StreamEntry

logger = get_logger(__name__)

#: Deliveries are extended this many times per visibility timeout, first after the first such interval.
PER_TIMEOUT = 3


class Runs(Protocol):
    """A source of the deliveries that consumers run."""

    def running(self) -> Mapping[str, Sequence[Running]]:
        """Return the deliveries that each consumer runs."""


class Extender(Service):
    """Extends the deliveries that have run for long, by the shared states.

    mq_django itself uses heartbeats, not idle time. This is for operators who inspect the stream, and for consumers of
    other software.
    """

    name = "extender"

    def __init__(self, queues: ServerQueues, runs: Runs) -> None:
        super().__init__()
        self._stores = open_stores(queues)
        self._steps = {n: config.visibility_timeout.total_seconds() / PER_TIMEOUT for n, config in queues.items()}
        self._runs = runs
        self._lost: set[tuple[int, StreamEntry]] = set()

    def run_once(self) -> float:
        """Extend the deliveries that have run for long enough."""
        now = time.monotonic()
        found: dict[tuple[int, str], list[StreamEntry]] = defaultdict(list)
        seen: set[tuple[int, StreamEntry]] = set()
        for consumer, running in self._runs.running().items():
            for item in running:
                receipt, since = item.receipt, item.since
                number, stream, entry = receipt
                if number not in self._stores:
                    continue
                seen.add((number, (stream, entry)))
                # Only RSMQ has ids this long, and heartbeats of RSMQ queues extend everything that is held.
                if now - since >= self._steps[number] and not receipt.is_digest:
                    found[number, consumer].append((stream, entry))
        self._lost &= seen
        self.each(found.items(), lambda one: self._extend(*one[0], one[1]), called=lambda one: self._name(one[0][0]))
        return min(self._steps.values())

    def _name(self, number: int) -> str:
        return self._stores[number].config.name

    def _extend(self, number: int, consumer: str, receipts: Sequence[StreamEntry]) -> None:
        known = [receipt for receipt in receipts if (number, receipt) not in self._lost]
        for stream, entry in self._stores[number].extend(consumer, known):
            self._lost.add((number, (stream, entry)))
            logger.warning(
                "Consumer %s still runs entry %s of queue %s, which it no longer holds",
                *(consumer, entry, self._name(number)),
            )
