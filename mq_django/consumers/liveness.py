"""Detect loops and threads that have ended or are stuck."""

import time
from collections.abc import Mapping

#: Seconds without progress after which a loop counts as stuck. The longest round, with a Redis that does not answer,
#: takes about 20 s.
STUCK = 30.0
#: At most this many seconds between two checks count: in a longer gap this process itself did not run.
MAX_GAP = 2.0


class Liveness:
    """Watches loops. look() is one check."""

    def __init__(self) -> None:
        self._looked = time.monotonic()
        self._seen: dict[str, tuple[object, float]] = {}

    def look(self, progress: Mapping[str, object], *, limit: float) -> list[str]:
        """Return a description of each loop that has ended or is stuck.

        `progress` has for each loop a value that changes with each round, or None if it has ended without being asked
        to. `limit` is the number of seconds for which the value may stay the same.
        """
        now = time.monotonic()
        passed = min(MAX_GAP, now - self._looked)
        self._looked = now
        found = {}
        for name, value in progress.items():
            before, still = self._seen.get(name, (value, 0.0))
            found[name] = (value, still + passed if value == before else 0.0)
        self._seen = found
        ended = [f"{name} has ended" for name, (value, _) in found.items() if value is None]
        return ended + [
            f"{name} is stuck for {still:.0f} s"
            for name, (value, still) in found.items()
            if value is not None and still > limit
        ]


# How often processes send heartbeats, and after how much silence they count as dead.


def interval(visibility_seconds: float) -> float:
    """Return the seconds between heartbeats: several fit into the visibility timeout."""
    return min(3.0, visibility_seconds / 3.5)


def silence_limit(visibility_seconds: float) -> float:
    """Return the seconds without a heartbeat after which a supervisor counts as dead.

    One interval less than the visibility timeout, because a heartbeat may be seen one interval after it was sent.
    """
    return visibility_seconds - interval(visibility_seconds)


def held_for(visibility_seconds: float) -> float:
    """Return the seconds after a heartbeat in which no supervisor takes its sender for dead."""
    return silence_limit(visibility_seconds) - min(0.1, visibility_seconds / 20)
