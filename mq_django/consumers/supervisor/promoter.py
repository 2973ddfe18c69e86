"""Make delayed messages ready when they are due."""

import time
from collections.abc import Callable, Mapping

from mq_django.consumers.service import Service
from mq_django.consumers.supervisor.next_checks import NextChecks
from mq_django.stores.base import Promoted, Store

#: Messages promoted by one script call, which blocks Redis for about 0.7 ms at this size.
BATCH = 100
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
