"""When to start a process in place of one that has ended."""

from typing import NamedTuple

#: Seconds until the third process is started in a place where two in a row ended without having begun a message;
#: doubled each time.
FIRST_PAUSE, MAX_PAUSE = 0.5, 30.0


class PendingStart(NamedTuple):
    """A place that waits for its next process."""

    #: When it may be started, in seconds on the monotonic clock.
    moment: float
    #: Processes that ended there, one after another, without having begun a message.
    deaths: int


class Restarts:
    """The places of processes that ended. Each waits for itself: the others go on."""

    def __init__(self) -> None:
        self._places: list[PendingStart] = []

    def ended(self, now: float, deaths: int, *, at_least: float = 0.0) -> float:
        """Note that a process has ended, as so many before it in its place; return the seconds until its successor."""
        pause = max(at_least, min(MAX_PAUSE, FIRST_PAUSE * 2 ** min(deaths - 2, 10)) if deaths > 1 else 0.0)
        self._places.append(PendingStart(now + pause, deaths))
        return pause

    def waiting(self, now: float) -> int:
        """Return how many places stay empty for now."""
        return sum(place.moment > now for place in self._places)

    def take(self, now: float) -> int:
        """Fill a place, and return how many processes ended there in a row."""
        due = [place for place in self._places if place.moment <= now]
        if not due:
            return 0
        self._places.remove(max(due, key=lambda place: place.deaths))
        return max(place.deaths for place in due)
