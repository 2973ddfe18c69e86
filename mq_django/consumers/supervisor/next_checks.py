"""The times at which a service checks each of its queues next."""

import time
from collections.abc import Iterable, Iterator


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
