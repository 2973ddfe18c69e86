"""Keep what handlers run for long their consumers', also for who goes by a delivery's idle time."""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Protocol

from mq_django.conf import QueueConfig
from mq_django.consumers.service import Service
from mq_django.consumers.shared_state import Running
from mq_django.core.logs import get_logger
from mq_django.stores import open_store
from mq_django.stores.base import HomeEntry, Store
from mq_django.transport.connections import open_session

logger = get_logger(__name__)

#: Deliveries are extended this often in a visibility timeout, once they have run for as long.
TIMES = 3


class Runs(Protocol):
    """Who knows what consumers run."""

    def running(self) -> Mapping[str, Sequence[Running]]:
        """Return what each consumer runs."""


class Extender(Service):
    """Extends what the shared states show to run for long.

    Others of ours go by heartbeats and not by idle time: this is for people who look at the stream, and for consumers
    of other makes.
    """

    name = "extender"

    def __init__(self, queues: Sequence[QueueConfig], runs: Runs) -> None:
        super().__init__()
        session = open_session("chores")
        self._stores: list[Store] = [open_store(config, session) for config in queues]
        self._steps = [config.visibility_timeout.total_seconds() / TIMES for config in queues]
        self._runs = runs
        self._lost: set[tuple[int, HomeEntry]] = set()

    def run_once(self) -> float:
        """Extend everything that has run for long enough."""
        now = time.monotonic()
        found: dict[tuple[int, str], list[HomeEntry]] = defaultdict(list)
        there: set[tuple[int, HomeEntry]] = set()
        for consumer, running in self._runs.running().items():
            for receipt, since, _ in running:
                number, home, entry = receipt
                there.add((number, (home, entry)))
                # The heartbeats of RSMQ queues, whose ids alone can be so long, extend whatever is held there.
                if now - since >= self._steps[number] and not receipt.is_digest:
                    found[number, consumer].append((home, entry))
        self._lost &= there
        self.each(found.items(), lambda one: self._extend(*one[0], one[1]), called=lambda one: self._name(one[0][0]))
        return min(self._steps)

    def _name(self, number: int) -> str:
        return self._stores[number].config.name

    def _extend(self, number: int, consumer: str, receipts: Sequence[HomeEntry]) -> None:
        known = [receipt for receipt in receipts if (number, receipt) not in self._lost]
        for home, entry in self._stores[number].extend(consumer, known):
            self._lost.add((number, (home, entry)))
            logger.warning(
                "Consumer %s still runs entry %s of queue %s, no longer its own",
                *(consumer, entry, self._name(number)),
            )
