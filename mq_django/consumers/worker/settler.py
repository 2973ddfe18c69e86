"""Settle outcomes in batches: with the next read, or at the latest a few milliseconds later."""

import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from itertools import chain

from mq_django.consumers.service import AWAY, COMPLAIN_AGAIN, Service
from mq_django.consumers.settlements import send_signals
from mq_django.core.logs import get_logger
from mq_django.core.messages import Delivery, Undecodable
from mq_django.core.outcomes import Bury
from mq_django.errors import StoreError
from mq_django.signals import delivery_stale, message_buried, message_retried
from mq_django.stores.base import Settlement, Store
from mq_django.stores.counters import ENDS, Slots, latency_bucket, tally
from mq_django.stores.results import settled_commands
from mq_django.stores.settling import message_id
from mq_django.transport.scripts import Command

logger = get_logger(__name__)

#: The longest an outcome waits for company, in seconds: with the trip it leaves within 10 ms.
LINGER = 0.006
#: So many do not wait.
FULL = 200
#: Settled in one trip.
BATCH = 500

#: Seconds until what was refused is tried again.
TRY_AGAIN = 1.0

_ENDS = frozenset(ENDS.values())


class Settler:
    """The unsettled outcomes of one queue in this process."""

    def __init__(self, store: Store, queue: str, consumer: str, due: threading.Event, full: threading.Event) -> None:
        self.queue = queue
        self._config = store.config
        self._slots = Slots(store.keys)
        self._consumer = consumer
        self._unsettled: deque[Settlement] = deque()
        self._taking = threading.Lock()
        self._due = due
        self._full = full
        #: Receipts that this process holds: fetched and not yet settled.
        self.in_hand: set[tuple[int, bytes]] = set()
        #: Receipts whose batch failed: it may have been settled all the same. And whether it was counted for certain.
        self._repeated: dict[tuple[int, bytes], bool] = {}
        #: Settled only when they were repeated, so that the first trip has not counted them.
        self._uncounted: list[Settlement] = []
        #: What Redis refused for a reason of its own: it waits, so that the others need not.
        self._refused: list[Settlement] = []
        #: Deliveries settled so far, and those of them that this consumer no longer held and are still to be counted.
        self.settled = self._stale = 0
        #: When the first of the unsettled ended, and the first of those just taken, in seconds since 1970.
        self._first_ended = self._ended = 0.0
        #: What became of deliveries here, by word; what is sent again after a lost reply counts again, as in Redis.
        self.ended: Counter[str] = Counter()
        self._complained = -COMPLAIN_AGAIN
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
        if len(unsettled) == 1:
            self._first_ended = time.time()
        elif len(unsettled) >= FULL and not self._full.is_set():
            self._full.set()

    def settle(self, store: Store) -> None:
        """Settle what there is, in one trip."""
        batch = self._take()
        if not batch:
            return
        try:
            stale = store.settle(self._consumer, batch, also=self._also(batch))
        except AWAY:
            self._give_back(batch)
            raise
        except Exception as error:  # noqa: BLE001 - one outcome that cannot be settled must not keep back the others
            self._settle_apart(store, batch, error)
        else:
            self._settled(batch, stale)

    def settle_and_take(self, store: Store, *, count: int) -> Sequence[Delivery | Undecodable]:
        """Settle what there is and take up to `count` messages, in one trip."""
        batch = self._take()
        if not batch:
            return store.take(self._consumer, count=count)
        try:
            fetched = store.settle_and_take(self._consumer, batch, count=count, also=self._also(batch))
        except BaseException:
            # Whether it was settled is not known; twice does no harm. The settling service finds out what is wrong.
            self._give_back(batch)
            raise
        self._settled(batch, fetched.stale)
        return fetched.deliveries

    def try_refused(self, store: Store) -> None:
        """Settle again what Redis refused a moment ago, and count what still is to be counted."""
        if self._uncounted:
            store.settle(self._consumer, (), also=self._also(()))
        refused, self._refused = self._refused, []
        if refused:
            self._settle_apart(store, refused, None)

    def _settle_apart(self, store: Store, batch: Sequence[Settlement], error: Exception | None) -> None:
        """Settle a batch by outcomes, and where need be one by one, so that only what cannot be settled stays."""
        if error is not None and time.monotonic() - self._complained > COMPLAIN_AGAIN:
            self._complained = time.monotonic()
            logger.error("Outcomes of queue %s are settled apart: %s", self.queue, error)
        kinds: dict[type, list[Settlement]] = defaultdict(list)
        for settlement in batch:
            if error is not None:
                # It was counted on the trip that was refused.
                self._repeated[settlement.delivery.home, settlement.delivery.entry] = True
            kinds[type(settlement.outcome)].append(settlement)
        groups = list(kinds.values())
        while groups:
            group = groups.pop()
            try:
                self._settled(group, store.settle(self._consumer, group, also=self._also(group)))
            except AWAY:
                self._give_back([*group, *chain(*groups)])
                raise
            except StoreError:
                self._refused += group
            except Exception:
                if len(group) > 1:
                    groups += [[settlement] for settlement in group]
                else:
                    logger.exception("An outcome of queue %s cannot be written", self.queue)
                    self._refused.append(_writable(group[0]))

    def _take(self) -> list[Settlement]:
        # The fetcher and the settling service both take; lanes only append, which needs no lock.
        with self._taking:
            unsettled = self._unsettled
            batch = [unsettled.popleft() for _ in range(min(len(unsettled), BATCH))]
            self._ended = self._first_ended
            if unsettled:
                self._first_ended = time.time()
            return batch

    def _give_back(self, batch: Sequence[Settlement]) -> None:
        self._unsettled.extendleft(reversed(batch))
        for settlement in batch:
            self._repeated.setdefault((settlement.delivery.home, settlement.delivery.entry), False)
        self._due.set()

    def _also(self, batch: Sequence[Settlement]) -> list[Command]:
        if self._repeated or self._uncounted:
            # A trip whose reply was lost has mostly been run, its counting first.
            fresh = [s for s in batch if (s.delivery.home, s.delivery.entry) not in self._repeated]
            counted: Sequence[Settlement] = [*self._uncounted, *fresh]
            self._uncounted = []
        else:
            counted = batch
        counts = tally(counted)
        with self._taking:
            for (what, _), count in counts.items():
                if what in _ENDS:
                    self.ended[what] += count
        self._smooth([settlement.micros for settlement in counted if settlement.micros is not None])
        if self._stale:
            counts["stale", "-"], self._stale = self._stale, 0
        if counted:
            self._add_latency(counted, counts)
        commands = [self._slots.add_command(counts)] if counts else []
        if any([settlement.keeps_result for settlement in batch]):  # noqa: C419 - a list is faster
            commands += settled_commands(self._config, self._consumer, batch)
        return commands

    def _add_latency(self, batch: Sequence[Settlement], counts: Counter[tuple[str, str]]) -> None:
        """Count how long the first of a batch was ready before it ran: one stands for those that ended within 10 ms."""
        (delivery, _, _, micros, _), ended = batch[0], self._ended
        if micros is None or not isinstance(delivery, Delivery):
            return
        ready = _ready_ms(delivery)
        if ready is None:
            return
        waited = round(ended * 1000 - micros / 1000) - ready
        if waited >= 0:
            counts[f"w{latency_bucket(waited)}", delivery.message.name] += len(batch)

    def _smooth(self, micros: Sequence[int]) -> None:
        """Learn how long handlers take."""
        if micros:
            self.seconds += (sum(micros) / len(micros) / 1e6 - self.seconds) * min(1.0, len(micros) / 32)

    def _settled(self, batch: Sequence[Settlement], stale: Sequence[str]) -> None:
        receipts = [(s.delivery.home, s.delivery.entry) for s in batch]
        self.in_hand.difference_update(receipts)
        self.settled += len(batch)
        if self._repeated:
            # The first trip may well have settled these: that they are gone says nothing.
            again = {
                message_id(settlement.delivery): (settlement, self._repeated.pop(receipt))
                for settlement, receipt in zip(batch, receipts, strict=True)
                if receipt in self._repeated
            }
            uncounted = [
                settlement
                for found, (settlement, was_counted) in again.items()
                if not was_counted and found not in stale
            ]
            self._uncounted += uncounted
            stale = [lost for lost in stale if lost not in again]
        self._stale += len(stale)
        if message_retried.receivers or message_buried.receivers:
            send_signals(self.queue, batch, stale)
        for lost in stale:
            logger.warning(
                "Ignored the outcome of message %s of queue %s: this consumer no longer holds it", lost, self.queue
            )
            delivery_stale.send_robust(Settler, queue=self.queue, message_id=lost)


def _ready_ms(delivery: Delivery) -> int | None:
    """Return when a message became ready, in ms since 1970; of RSMQ's, which do not tell, when it was published."""
    milliseconds, dash, _ = delivery.entry.partition(b"-")
    if dash and milliseconds.isdigit():
        return int(milliseconds)
    return delivery.message.published_ms if delivery.message.attempt == 1 else None


def _writable(settlement: Settlement) -> Settlement:
    """Return how to settle what could not be turned into commands: without its result, or by its burial."""
    if settlement.keeps_result:
        return settlement._replace(keeps_result=False)
    return settlement._replace(outcome=Bury("the outcome could not be written"))


class SettleService(Service):
    """Settles what no read has taken along within a few milliseconds."""

    name = "settler"

    def __init__(self) -> None:
        super().__init__()
        self.due = threading.Event()
        self.full = threading.Event()
        self._settlers: list[tuple[Settler, Store]] = []
        self._tried = 0.0

    def add(self, settler: Settler, store: Store) -> None:
        """Take on a queue's settler, with a store on this service's own connection."""
        self._settlers.append((settler, store))

    def run_once(self) -> float:
        """Wait for an outcome, give it a moment to find company, and settle."""
        if self.due.wait(1.0):
            self.full.wait(LINGER)
            self.settle_all()
        if time.monotonic() - self._tried > TRY_AGAIN:
            self.try_refused()
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

    def try_refused(self) -> None:
        """Settle again what Redis refused before."""
        self._tried = time.monotonic()
        self.each(self._settlers, lambda one: one[0].try_refused(one[1]), called=lambda one: one[0].queue)
