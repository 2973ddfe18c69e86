"""When a service checks each of its queues next."""

import time
from collections.abc import Iterator


class NextChecks:
    """Keeps the time of the next check of each queue, by its number. Any thread may ask for a check at once.

    An ask that comes while the queue is being checked is kept for the next round: the check may have been too early.
    """

    def __init__(self, count: int) -> None:
        #: Seconds on the monotonic clock.
        self._times = [0.0] * count
        self._asked: set[int] = set()

    def ask(self, number: int) -> None:
        """Make a queue due now."""
        self._asked.add(number)

    def ask_all(self) -> None:
        """Make every queue due now."""
        self._asked.update(range(len(self._times)))

    def due(self) -> Iterator[int]:
        """Yield the queues whose time has come."""
        for number, moment in enumerate(self._times):
            if number in self._asked or moment <= time.monotonic():
                yield number

    def begin(self, number: int, seconds: float) -> None:
        """Note that a queue is being checked, and that it is checked again after some seconds at the latest."""
        self._asked.discard(number)
        self._times[number] = time.monotonic() + seconds

    def at(self, number: int, moment: float) -> None:
        """Check a queue at a moment of the monotonic clock."""
        self._times[number] = moment

    def pause(self) -> float:
        """Return the seconds until the first queue is due."""
        return 0.0 if self._asked else max(0.0, min(self._times) - time.monotonic())
