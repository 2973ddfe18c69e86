"""The time at which a process that has ended is replaced."""

from typing import NamedTuple

#: Seconds until the next start after two processes in a row ended before they started a message; doubled each time.
FIRST_PAUSE, MAX_PAUSE = 0.5, 30.0


class PendingStart(NamedTuple):
    """A process that is to be started."""

    #: When it may start, in seconds on the monotonic clock.
    moment: float
    #: How many processes in a row ended in its place before they started a message.
    failed_starts: int


class Restarts:
    """The processes that are to be started. Each has a delay of its own."""

    def __init__(self) -> None:
        self._pending: list[PendingStart] = []

    def ended(self, now: float, failed_starts: int, *, at_least: float = 0.0) -> float:
        """Add a start after this number of failed starts in a row, and return the seconds until then."""
        backoff = min(MAX_PAUSE, FIRST_PAUSE * 2 ** min(failed_starts - 2, 10)) if failed_starts > 1 else 0.0
        pause = max(at_least, backoff)
        self._pending.append(PendingStart(now + pause, failed_starts))
        return pause

    def waiting(self, now: float) -> int:
        """Return how many starts are not due yet."""
        return sum(pending.moment > now for pending in self._pending)

    def take(self, now: float) -> int:
        """Remove a start that is due, and return its number of failed starts; 0 if none is due or none has failed."""
        due = [pending for pending in self._pending if pending.moment <= now]
        if not due:
            return 0
        self._pending.remove(max(due, key=lambda pending: pending.failed_starts))
        return max(pending.failed_starts for pending in due)
