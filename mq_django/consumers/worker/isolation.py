"""Run messages alone that were running when a process died: one of them may have killed it.

Consumers pass them on to quarantines: processes of their own that run one message at a time. The death of a quarantine
harms nothing else. What it ran is known, even when its whole machine is gone: that is all that it holds under its own
name. What waits is held under another name, the backlog, which the quarantines of a supervisor share. It is named after
the first of them.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from mq_django.consumers.service import Service
from mq_django.consumers.shared_state import SharedState
from mq_django.consumers.worker.dispatcher import Dispatcher
from mq_django.consumers.worker.settler import Settler
from mq_django.core.logs import get_logger
from mq_django.core.messages import Delivery
from mq_django.core.outcomes import HandBack
from mq_django.stores.base import Settlement, Store

logger = get_logger(__name__)

#: Seconds between two looks for a quarantine, and of a quarantine for what was passed on to it.
LOOK = 0.1
#: Deliveries that a quarantine takes at once, and those passed on in one trip.
FEW = 100
#: Seconds between two looks at whether what runs has been settled.
SETTLED_LOOK = 0.005


def backlog_of(quarantine: str) -> str:
    """Return the name under which messages wait for a quarantine, and for those that have joined it."""
    return f"{quarantine}-line"


class Isolation(Service):
    """Passes what must run alone on to the quarantine."""

    name = "isolation"

    def __init__(
        self, consumer: str, shared_state: SharedState, stores: Sequence[Store], settlers: Sequence[Settler]
    ) -> None:
        super().__init__()
        self._consumer = consumer
        self._shared_state = shared_state
        self._stores = stores
        self._settlers = settlers
        self._waiting: dict[int, list[Delivery]] = defaultdict(list)
        self._moving = threading.Lock()

    def taker(self, number: int) -> Callable[[Delivery], None]:
        """Return what takes a delivery of a queue to be run alone."""

        def take(delivery: Delivery) -> None:
            with self._moving:
                self._waiting[number].append(delivery)
            self._shared_state.want_quarantine()
            self.wake()

        return take

    def run_once(self) -> float:
        """Pass on what waits, when there is a quarantine to take it."""
        if not any(self._waiting.values()):
            return 1.0
        quarantine = self._shared_state.quarantine()
        if not quarantine:
            self._shared_state.want_quarantine()
            return LOOK
        self.each(
            enumerate(self._stores), lambda one: self._pass_on(*one, quarantine), called=lambda one: one[1].config.name
        )
        return LOOK

    def hand_back(self) -> None:
        """Give back what still waits."""
        for number, settler in enumerate(self._settlers):
            with self._moving:
                waiting, self._waiting[number] = self._waiting[number], []
            for delivery in waiting:
                settler.add(Settlement(delivery, HandBack()))

    def _pass_on(self, number: int, store: Store, quarantine: str) -> None:
        with self._moving:
            batch, self._waiting[number] = self._waiting[number][:FEW], self._waiting[number][FEW:]
        if not batch:
            return
        receipts = [(delivery.home, delivery.entry) for delivery in batch]
        try:
            store.reassign(self._consumer, backlog_of(quarantine), receipts)
        except BaseException:
            # Passed on already or not, doing it again does no harm.
            with self._moving:
                self._waiting[number] = [*batch, *self._waiting[number]]
            raise
        self._settlers[number].in_hand.difference_update(receipts)


class QuarantineFetcher(Service):
    """The fetcher of a quarantine: runs what was passed on to its backlog, one after another."""

    name = "quarantine"

    def __init__(
        self,
        consumer: str,
        backlog: str,
        shared_state: SharedState,
        stores: Sequence[Store],
        dispatchers: Sequence[Dispatcher],
    ) -> None:
        super().__init__()
        self._consumer = consumer
        self._backlog = backlog
        self._shared_state = shared_state
        self._queues = list(zip(stores, dispatchers, strict=True))
        #: When there was something to run last, in seconds on the monotonic clock.
        self.busy_at = time.monotonic()

    def run_once(self) -> float:
        """Run what is there."""
        self.each(range(len(self._queues)), self._run_held, called=lambda number: self._queues[number][0].config.name)
        return LOOK

    def _run_held(self, number: int) -> None:
        store, dispatcher = self._queues[number]
        # Until a heartbeat speaks for it nobody would reclaim what it takes.
        if time.monotonic() < self._shared_state.held_until(number):
            # What a broken trip brought over is there before the backlog.
            self._run(store, dispatcher, self._consumer)
            self._run(store, dispatcher, self._backlog)

    def _run(self, store: Store, dispatcher: Dispatcher, holder: str) -> None:
        items = store.held_by(holder, limit=FEW)
        for left, item in zip(range(len(items) - 1, -1, -1), items, strict=True):
            if self.stopping:
                return
            if left:
                # More than one waits: another quarantine would help.
                self._shared_state.want_quarantine()
            receipt = (item.home, item.entry)
            # Another quarantine may have taken it since.
            if holder == self._consumer or not store.reassign(holder, self._consumer, [receipt]):
                dispatcher.dispatch([item])
                self._wait_for(dispatcher.settler, receipt)

    def _wait_for(self, settler: Settler, receipt: tuple[int, bytes]) -> None:
        self.busy_at = time.monotonic()
        # Settled and not only ended: else it would be found pending, and run again.
        while receipt in settler.in_hand and not self.stopping:
            self.turned = self.busy_at = time.monotonic()
            time.sleep(SETTLED_LOOK)
