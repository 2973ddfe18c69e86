"""Say that this supervisor lives, and notice which do not."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mq_django.consumers.service import Service
from mq_django.errors import StoreError
from mq_django.stores.base import Store
from mq_django.stores.members import Members, Roll

logger = logging.getLogger(__name__)


def interval(visibility_seconds: float) -> float:
    """Return the seconds between heartbeats: a silence that means death holds several."""
    return min(2.0, visibility_seconds / 5)


class Silence:
    """Judges supervisors by how long their counters have stood still, on this process's monotonic clock.

    The clocks of other machines, and Redis's own, may step; a counter that moves is alive whatever they say.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._last: dict[str, tuple[int, float]] = {}

    def forget(self) -> None:
        """Judge nobody before a full time has passed: we, or Redis, were away."""
        self._last.clear()

    def observe(self, beats: Mapping[str, int], now: float) -> list[str]:
        """Return the supervisors that have been silent for too long."""
        self._last = {name: self._last.get(name, (-1, now)) for name in beats}
        silent = []
        for name, count in beats.items():
            known, since = self._last[name]
            if known != count:
                self._last[name] = (count, now)
            elif now - since >= self._limit:
                silent.append(name)
        return silent


class Heartbeat(Service):
    """Beats in every queue, and has the deliveries of silent supervisors reclaimed."""

    name = "heartbeat"

    def __init__(
        self,
        supervisor: str,
        stores: Sequence[Store],
        members: Sequence[Members],
        *,
        describe: Callable[[], tuple[Mapping[str, Any], Mapping[str, Mapping[str, Any]]]],
        reclaim: Callable[[int, str, Roll], None],
    ) -> None:
        super().__init__()
        self._supervisor = supervisor
        self._members = members
        self._describe = describe
        self._reclaim = reclaim
        timeouts = [store.config.visibility_timeout.total_seconds() for store in stores]
        self._interval = min(interval(timeout) for timeout in timeouts)
        # One interval less, because a beat may be seen one interval after it was made.
        self._silences = [Silence(timeout - self._interval) for timeout in timeouts]

    def run_once(self) -> float:
        """Beat once in every queue."""
        began = time.monotonic()
        description, consumers = self._describe()
        for number, members in enumerate(self._members):
            roll = members.beat(self._supervisor, description, consumers)
            for silent in self._silences[number].observe(roll.beats, time.monotonic()):
                if silent != self._supervisor:
                    self._reclaim(number, silent, roll)
        return max(0.0, self._interval - (time.monotonic() - began))

    def recover(self, error: StoreError) -> None:
        """Wait a full timeout before judging anybody: while Redis was away nobody could beat."""
        for silence in self._silences:
            silence.forget()
