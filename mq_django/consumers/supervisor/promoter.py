"""Make delayed messages ready when they are due."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from mq_django.consumers.measuring import Measurers, SupervisorMeasurer
from mq_django.consumers.service import Service
from mq_django.stores.base import Promoted, Store

# A store of a supervisor that reports how late it makes delayed messages ready.


def measured_promotions(stores: Mapping[int, Store]) -> Mapping[int, Store]:
    """Return stores that report to the measurer of this process; without one, the stores themselves."""
    found = Measurers.supervisor
    if found is None:
        return stores
    return {number: cast("Store", MeasuredPromotion(store, found)) for number, store in stores.items()}


class MeasuredPromotion:
    """Calls a store, and reports how late its promotions are."""

    def __init__(self, store: Store, measurer: SupervisorMeasurer) -> None:
        self._store = store
        self._measurer = measurer
        #: When the next message is due, on the monotonic clock, as the last promotion returned it; None: not known.
        self._due: float | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def promote(self, *, limit: int) -> Promoted:
        """See Store.promote()."""
        asked = time.monotonic()
        promoted = self._store.promote(limit=limit)
        # Redis read its clock about half-way through the round trip.
        now, due = (asked + time.monotonic()) / 2, self._due
        if promoted.moved and due is not None and due <= now:
            Measurers.report(self._measurer.promoted, self._store.config.name, now - due)
        if promoted.next_us is None:
            self._due = None
        elif promoted.next_us or not promoted.moved:
            self._due = now + promoted.next_us / 1e6
        # Else more than a batch is due, so the next one was due at about the same time.
        return promoted


# The times at which a service checks each of its queues next.


class NextChecks:
    """The time of the next check of each queue, by number. Any thread may ask for an immediate check.

    A request during a check leads to another one, because the running check may have come too early.
    """

    def __init__(self, numbers: Iterable[int]) -> None:
        #: Seconds on the monotonic clock.
        self._times = dict.fromkeys(numbers, 0.0)
        self._asked: set[int] = set()

    def ask(self, number: int) -> None:
        """Make a queue due now."""
        self._asked.add(number)

    def ask_all(self) -> None:
        """Make every queue due now."""
        self._asked.update(self._times)

    def due(self) -> Iterator[int]:
        """Yield the queues that are due."""
        for number, moment in self._times.items():
            if number in self._asked or moment <= time.monotonic():
                yield number

    def begin(self, number: int, seconds: float) -> None:
        """Note that a queue is being checked, and is due again after this many seconds at the latest."""
        self._asked.discard(number)
        self._times[number] = time.monotonic() + seconds

    def at(self, number: int, moment: float) -> None:
        """Set the time of a queue's next check, on the monotonic clock."""
        self._times[number] = moment

    def pause(self) -> float:
        """Return the seconds until the first queue is due."""
        return 0.0 if self._asked else max(0.0, min(self._times.values()) - time.monotonic())


#: Messages promoted by one script call, at most: the script also ends when it has blocked Redis for about 2 ms.
BATCH = 500
#: Seconds between two checks while the wake channel is subscribed, and while it is not.
POLL, POLL_UNSUBSCRIBED = 5.0, 1.0
#: Seconds by which two clocks may drift apart during a wait: a check that is this much too early would find nothing.
DRIFT = 0.00005

#: Called with a queue's number and the result of a promotion: whether it is paused, has unhandled messages.
Seen = Callable[[int, Promoted], None]


class Promoter(Service):
    """Sleeps until the next message of any queue is due, or until a notification wakes it earlier."""

    name = "promoter"

    def __init__(self, stores: Mapping[int, Store], *, is_subscribed: Callable[[], bool], seen: Seen) -> None:
        super().__init__()
        self._stores = stores
        self._is_subscribed = is_subscribed
        self._seen = seen
        self._checks = NextChecks(stores)

    def expect(self, number: int) -> None:
        """Check a queue now: a message may be due earlier than known."""
        self._checks.ask(number)
        self.wake()

    def run_once(self) -> float:
        """Promote the due messages of every queue whose check is due."""
        self.each(self._checks.due(), self._promote, called=lambda number: self._stores[number].config.name)
        return self._checks.pause()

    def recover(self, error: Exception) -> None:
        """Check all queues again: messages may have become due while Redis could not be reached."""
        self._checks.ask_all()

    def _promote(self, number: int) -> None:
        asked, fallback = time.monotonic(), POLL if self._is_subscribed() else POLL_UNSUBSCRIBED
        self._checks.begin(number, fallback)
        promoted = self._stores[number].promote(limit=BATCH)
        self._seen(number, promoted)
        if promoted.next_us is not None:
            # Redis read its clock about half-way through the round trip.
            due = (asked + time.monotonic()) / 2 + promoted.next_us / 1e6 + DRIFT
            self._checks.at(number, min(asked + fallback, due))
