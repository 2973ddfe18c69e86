"""Settle outcomes in batches: with the next read, or at the latest a few milliseconds later."""

import logging
import threading
from collections import Counter, deque
from collections.abc import Sequence

from mq_django.consumers.service import Service
from mq_django.core.messages import Delivery, Undecodable
from mq_django.core.outcomes import Ack, Bury, Expire, Retry
from mq_django.signals import delivery_stale
from mq_django.stores.base import Settlement, Store
from mq_django.stores.counters import add_command, bucket
from mq_django.stores.results import settled_commands
from mq_django.transport.scripts import Command

logger = logging.getLogger(__name__)

#: The longest an outcome waits for company, in seconds: with the trip it leaves within 10 ms.
LINGER = 0.006
#: So many do not wait.
FULL = 200
#: Settled in one trip.
BATCH = 500

_WORDS = {Ack: "handled", Retry: "retried", Bury: "buried", Expire: "expired"}


class Settler:
    """The unsettled outcomes of one queue in this process."""

    def __init__(self, store: Store, queue: str, consumer: str, due: threading.Event, full: threading.Event) -> None:
        self.queue = queue
        self._config = store.config
        self._keys = store.keys
        self._consumer = consumer
        self._unsettled: deque[Settlement] = deque()
        self._taking = threading.Lock()
        self._due = due
        self._full = full
        #: Receipts that this process holds: fetched and not yet settled.
        self.in_hand: set[tuple[int, bytes]] = set()
        #: Seconds a handler takes, smoothed; starts at a guess that makes a new consumer careful.
        self.seconds = 0.01

    def __len__(self) -> int:
        return len(self._unsettled)

    def add(self, settlement: Settlement) -> None:
        """Take an outcome to settle."""
        unsettled = self._unsettled
        unsettled.append(settlement)
        if not self._due.is_set():
            self._due.set()
        if len(unsettled) >= FULL and not self._full.is_set():
            self._full.set()

    def settle(self, store: Store) -> None:
        """Settle what there is, in one trip."""
        batch = self._take()
        if batch:
            with _Kept(self, batch):
                self._settled(batch, store.settle(self._consumer, batch, also=self._also(batch)))

    def settle_and_take(self, store: Store, *, count: int) -> Sequence[Delivery | Undecodable]:
        """Settle what there is and take up to `count` messages, in one trip."""
        batch = self._take()
        if not batch:
            return store.take(self._consumer, count=count)
        with _Kept(self, batch):
            fetched = store.settle_and_take(self._consumer, batch, count=count, also=self._also(batch))
        self._settled(batch, fetched.stale)
        return fetched.deliveries

    def _take(self) -> list[Settlement]:
        # The fetcher and the settling service both take; lanes only append, which needs no lock.
        with self._taking:
            unsettled = self._unsettled
            return [unsettled.popleft() for _ in range(min(len(unsettled), BATCH))]

    def _give_back(self, batch: Sequence[Settlement]) -> None:
        self._unsettled.extendleft(reversed(batch))

    def _also(self, batch: Sequence[Settlement]) -> list[Command]:
        tally: Counter[tuple[str, str]] = Counter()
        total = timed = 0
        for delivery, outcome, _, micros, _ in batch:
            word = _WORDS.get(type(outcome))
            if word is not None:
                name = delivery.message.name if isinstance(delivery, Delivery) else "-"
                tally[word, name] += 1
                if micros is not None:
                    tally[f"t{bucket(micros)}", name] += 1
                    total += micros
                    timed += 1
        if timed:
            self.seconds += (total / timed / 1e6 - self.seconds) * min(1.0, timed / 32)
        commands = settled_commands(self._config, self._consumer, batch)
        return [*commands, add_command(self._keys, tally)] if tally else commands

    def _settled(self, batch: Sequence[Settlement], stale: Sequence[str]) -> None:
        self.in_hand.difference_update([(s.delivery.home, s.delivery.entry) for s in batch])
        for message_id in stale:
            logger.warning("Message %s of queue %s was no longer ours to settle", message_id, self.queue)
            delivery_stale.send(Settler, queue=self.queue, message_id=message_id)


class _Kept:
    """Puts a batch back when its trip fails: whether it was settled is not known, and settling twice does no harm."""

    def __init__(self, settler: Settler, batch: Sequence[Settlement]) -> None:
        self._settler = settler
        self._batch = batch

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._settler._give_back(self._batch)  # noqa: SLF001 - two halves of one thing


class SettleService(Service):
    """Settles what no read has taken along within a few milliseconds."""

    name = "settler"

    def __init__(self) -> None:
        super().__init__()
        self.due = threading.Event()
        self.full = threading.Event()
        self._settlers: list[tuple[Settler, Store]] = []

    def add(self, settler: Settler, store: Store) -> None:
        """Take on a queue's settler, with a store on this service's own connection."""
        self._settlers.append((settler, store))

    def run_once(self) -> float:
        """Wait for an outcome, give it a moment to find company, and settle."""
        if self.due.wait(1.0):
            self.full.wait(LINGER)
            self.settle_all()
        return 0.0

    def settle_all(self) -> None:
        """Settle everything of every queue."""
        # Cleared first: what is added from here on sets them again.
        self.due.clear()
        self.full.clear()
        for settler, store in self._settlers:
            try:
                while len(settler):
                    settler.settle(store)
            except BaseException:
                self.due.set()
                raise
