"""Make delayed messages ready when they are due."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from mq_django.consumers.measuring import Measurers, SupervisorMeasurer
from mq_django.consumers.service import Answer, Service
from mq_django.stores.base import Promoted, Store
from mq_django.transport.sessions import Transport

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
        if promoted.next_us != 0 or not promoted.moved:
            self.expect(promoted, now)
        # Else more than a batch is due, so the next one was due at about the same time.
        return promoted

    def expect(self, promoted: Promoted, read_at: float) -> None:
        """Note when the next message is due, by a reply for which Redis read its clock at a time."""
        self._due = None if promoted.next_us is None else read_at + promoted.next_us / 1e6


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

    def soon(self, seconds: float) -> list[int]:
        """Return the queues that are due within some seconds, and for which nobody has asked."""
        before = time.monotonic() + seconds
        return [number for number, moment in self._times.items() if moment <= before and number not in self._asked]

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
#: Queues that are checked by one script call, which takes Redis about 2.5 ms.
TOGETHER = 100
#: Seconds between two checks while the wake channel is subscribed, and while it is not.
POLL, POLL_UNSUBSCRIBED = 5.0, 1.0
#: Seconds by which two clocks may drift apart during a wait: a check that is this much too early would find nothing.
DRIFT = 0.00005

#: Called with a queue's number and the result of a promotion: whether it is paused, has unhandled messages.
Seen = Callable[[int, Promoted], None]


class Promoter(Service):
    """Sleeps until the next message of any queue is due, or until a notification wakes it earlier.

    Args:
        stores: the queues on one server.
        transport: checks several of them together, in case a notification was lost. None: each is checked alone.
        is_subscribed: returns whether notifications come.
        seen: see Seen.
    """

    name = "promoter"

    def __init__(
        self,
        stores: Mapping[int, Store],
        *,
        transport: Transport | None = None,
        is_subscribed: Callable[[], bool],
        seen: Seen,
    ) -> None:
        super().__init__()
        self._stores = stores
        self._transport = transport
        self._is_subscribed = is_subscribed
        self._seen = seen
        self._checks = NextChecks(stores)
        #: Queues of which nothing is known to be due at their next check.
        self._quiet = set(stores)

    def expect(self, number: int) -> None:
        """Check a queue now: a message may be due earlier than known."""
        self._checks.ask(number)
        self.wake()

    def run_once(self) -> float:
        """Promote the due messages of every queue whose check is due."""
        self._check_quiet()
        self.each(self._checks.due(), self._promote, called=self._name)
        return self._checks.pause()

    def recover(self, error: Exception) -> None:
        """Check all queues again: messages may have become due while Redis could not be reached."""
        self._checks.ask_all()

    def _name(self, number: int) -> str:
        return self._stores[number].config.name

    def _check_quiet(self) -> None:
        """Check together the quiet queues whose check is due. Those that have something to promote stay due."""
        if self._transport is None or not self._quiet.intersection(self._checks.soon(0.0)):
            return
        # Those that are due soon, too: so all of them stay in one round.
        quiet = self._quiet.intersection(self._checks.soon(POLL / 2))
        self.each_together(
            quiet,
            lambda number: self._stores[number].due_command(),
            self._checked,
            transport=self._transport,
            called=self._name,
            most=TOGETHER,
        )

    def _checked(self, number: int, answer: Answer) -> None:
        store = self._stores[number]
        promoted = store.read_due(answer.reply)
        if promoted is None:
            self._checks.at(number, 0.0)
            return
        if isinstance(store, MeasuredPromotion):
            store.expect(promoted, answer.ran)
        self._note(number, promoted, answer.ran)

    def _promote(self, number: int) -> None:
        asked = time.monotonic()
        self._checks.begin(number, self._fallback())
        promoted = self._stores[number].promote(limit=BATCH)
        # Redis read its clock about half-way through the round trip.
        self._note(number, promoted, (asked + time.monotonic()) / 2)

    def _fallback(self) -> float:
        return POLL if self._is_subscribed() else POLL_UNSUBSCRIBED

    def _note(self, number: int, promoted: Promoted, read_at: float) -> None:
        """Note what a queue has, and when it is checked next."""
        self._seen(number, promoted)
        fallback = read_at + self._fallback()
        due = fallback if promoted.next_us is None else read_at + promoted.next_us / 1e6 + DRIFT
        (self._quiet.discard if due < fallback else self._quiet.add)(number)
        self._checks.at(number, min(fallback, due))
