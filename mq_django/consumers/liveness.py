"""Notice loops and threads that have ended or stopped turning."""

import time
from collections.abc import Mapping

#: Seconds without a turn after which a loop counts as stuck: the longest round, with a Redis that does not answer,
#: takes some 20.
STUCK = 30.0
#: The longest time between two looks that counts: in more than that this process itself did not run.
MAX_GAP = 2.0


class Liveness:
    """Watches loops, look by look."""

    def __init__(self) -> None:
        self._looked = time.monotonic()
        self._seen: dict[str, tuple[object, float]] = {}

    def look(self, turns: Mapping[str, object], *, limit: float) -> list[str]:
        """Return what is wrong with which loops.

        `turns` has for each loop something that changes while it turns, or None when it has ended although nobody asked
        it to. `limit` is for how many seconds a loop may stand still.
        """
        now = time.monotonic()
        passed = min(MAX_GAP, now - self._looked)
        self._looked = now
        found = {}
        for name, turn in turns.items():
            before, still = self._seen.get(name, (turn, 0.0))
            found[name] = (turn, still + passed if turn == before else 0.0)
        self._seen = found
        ended = [f"{name} has ended" for name, (turn, _) in found.items() if turn is None]
        return ended + [
            f"{name} has stood still for {still:.0f} s"
            for name, (turn, still) in found.items()
            if turn is not None and still > limit
        ]
