"""Make delayed messages ready when they are due."""

import time
from collections.abc import Callable, Sequence

from mq_django.consumers.service import Service
from mq_django.consumers.supervisor.next_checks import NextChecks
from mq_django.stores.base import Promoted, Store

#: Messages promoted by one script call. Redis serves nobody else meanwhile: about 0.7 ms at this size.
BATCH = 100
#: Seconds between two looks while the wake channel works, and while it does not.
POLL, POLL_UNSUBSCRIBED = 5.0, 1.0
#: Seconds by which two clocks may differ over a pause: a look that comes so much too early would be made again.
DRIFT = 0.00005

#: Told what a promotion saw of a queue, by its number: paused, unhandled.
Seen = Callable[[int, Promoted], None]


class Promoter(Service):
    """Sleeps until the next message of any queue is due, or until it is woken by an earlier one."""

    name = "promoter"

    def __init__(self, stores: Sequence[Store], *, is_subscribed: Callable[[], bool], seen: Seen) -> None:
        super().__init__()
        self._stores = stores
        self._is_subscribed = is_subscribed
        self._seen = seen
        self._checks = NextChecks(len(stores))

    def expect(self, number: int) -> None:
        """Look at a queue now: something in it is due earlier than was known."""
        self._checks.ask(number)
        self.wake()

    def run_once(self) -> float:
        """Promote what is due in every queue whose time has come."""
        self.each(self._checks.due(), self._promote, called=lambda number: self._stores[number].config.name)
        return self._checks.pause()

    def recover(self, error: Exception) -> None:
        """Look at everything again: due times passed while Redis was away."""
        self._checks.ask_all()

    def _promote(self, number: int) -> None:
        asked, fallback = time.monotonic(), POLL if self._is_subscribed() else POLL_UNSUBSCRIBED
        self._checks.begin(number, fallback)
        promoted = self._stores[number].promote(limit=BATCH)
        self._seen(number, promoted)
        if promoted.next_us is not None:
            # Redis looked at its clock about half-way through the trip.
            due = (asked + time.monotonic()) / 2 + promoted.next_us / 1e6 + DRIFT
            self._checks.at(number, min(asked + fallback, due))
