"""Run messages alone that were running when a process died, because one of them may have killed it.

Consumers pass them on to a quarantine: a process that runs one message at a time. Its death affects no other message.
A quarantine holds only the running message under its own name, so that it is known what ran even when the machine is
gone. Messages that wait are held under another name, the backlog. The quarantines of a supervisor share one backlog,
named after the first of them.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence

from mq_django.consumers.service import Service
from mq_django.consumers.shared_state import SharedState
from mq_django.consumers.worker.dispatcher import Dispatcher
from mq_django.consumers.worker.settler import Settler
from mq_django.core.logs import get_logger
from mq_django.core.messages import Delivery
from mq_django.core.outcomes import HandBack
from mq_django.stores.base import Settlement, Store

logger = get_logger(__name__)

#: Seconds between two checks: of a consumer for a quarantine, and of a quarantine for messages.
CHECK_EVERY = 0.1
#: Deliveries that are read or passed on in one round trip.
BATCH = 100
#: Seconds between two checks whether the running message is settled.
CHECK_SETTLED_EVERY = 0.005


def backlog_of(quarantine: str) -> str:
    """Return the name of the backlog of a quarantine, and of those that share it."""
    return f"{quarantine}-line"


class Isolation(Service):
    """Passes messages that must run alone on to a quarantine."""

    name = "isolation"

    def __init__(
        self, consumer: str, shared_state: SharedState, stores: Mapping[int, Store], settlers: Sequence[Settler]
    ) -> None:
        super().__init__()
        self._consumer = consumer
        self._shared_state = shared_state
        self._stores = stores
        self._settlers = settlers
        self._waiting: dict[int, list[Delivery]] = defaultdict(list)
        self._lock = threading.Lock()

    def add(self, number: int, delivery: Delivery) -> None:
        """Add a delivery of a queue."""
        with self._lock:
            self._waiting[number].append(delivery)
        self._shared_state.want_quarantine()
        self.wake()

    def run_once(self) -> float:
        """Pass on the waiting messages when there is a quarantine."""
        if not any(self._waiting.values()):
            return 1.0
        quarantine = self._shared_state.quarantine()
        if not quarantine:
            self._shared_state.want_quarantine()
            return CHECK_EVERY
        self.each(
            self._stores.items(), lambda one: self._pass_on(*one, quarantine), called=lambda one: one[1].config.name
        )
        return CHECK_EVERY

    def hand_back(self) -> None:
        """Hand back the messages that still wait."""
        for number in self._stores:
            with self._lock:
                waiting, self._waiting[number] = self._waiting[number], []
            for delivery in waiting:
                self._settlers[number].add(Settlement(delivery, HandBack()))

    def _pass_on(self, number: int, store: Store, quarantine: str) -> None:
        with self._lock:
            batch, self._waiting[number] = self._waiting[number][:BATCH], self._waiting[number][BATCH:]
        if not batch:
            return
        receipts = [(delivery.stream, delivery.entry) for delivery in batch]
        try:
            store.reassign(self._consumer, backlog_of(quarantine), receipts)
        except BaseException:
            # They may have been passed on already, and passing on is idempotent.
            with self._lock:
                self._waiting[number] = [*batch, *self._waiting[number]]
            raise
        for receipt in receipts:
            self._settlers[number].in_hand.pop(receipt, None)


class QuarantineFetcher(Service):
    """The fetcher of a quarantine: it runs the messages of the backlog one at a time."""

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
        self.connection = None
        self._consumer = consumer
        self._backlog = backlog
        self._shared_state = shared_state
        self._queues = list(zip(stores, dispatchers, strict=True))
        #: When it last had a message to run, in seconds on the monotonic clock.
        self.busy_at = time.monotonic()

    def run_once(self) -> float:
        """Run all messages of the backlog."""
        # One fetcher for all servers, because only one message may run at a time.
        self.each(
            range(len(self._queues)),
            self._run_held,
            called=lambda number: self._queues[number][0].config.name,
            server=lambda number: self._queues[number][0].config.connection,
        )
        return CHECK_EVERY

    def _run_held(self, number: int) -> None:
        store, dispatcher = self._queues[number]
        # It takes nothing before a heartbeat announces it, because its messages could not be reclaimed until then.
        if time.monotonic() < self._shared_state.held_until(number):
            # A failed round trip may have moved a message to its own name already.
            self._run(store, dispatcher, self._consumer)
            self._run(store, dispatcher, self._backlog)

    def _run(self, store: Store, dispatcher: Dispatcher, holder: str) -> None:
        items = store.held_by(holder, limit=BATCH)
        for left, item in zip(range(len(items) - 1, -1, -1), items, strict=True):
            if self.stopping:
                return
            if left:
                # More messages wait than run, so another quarantine is useful.
                self._shared_state.want_quarantine()
            receipt = (item.stream, item.entry)
            # Another quarantine may have taken it already.
            if holder == self._consumer or not store.reassign(holder, self._consumer, [receipt]):
                dispatcher.dispatch([item])
                self._wait_for(dispatcher.settler, receipt)

    def _wait_for(self, settler: Settler, receipt: tuple[int, bytes]) -> None:
        self.busy_at = time.monotonic()
        # Waits until it is settled: a message that has only ended would be found pending and run again.
        while receipt in settler.in_hand and not self.stopping:
            self.progressed = self.busy_at = time.monotonic()
            time.sleep(CHECK_SETTLED_EVERY)
