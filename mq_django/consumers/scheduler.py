"""Publish what is scheduled, at its ticks."""

import logging
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Self

from django.utils import timezone

from mq_django.conf import QueueConfig
from mq_django.consumers.service import Service
from mq_django.core.schedules import Scheduled
from mq_django.stores.schedules import Firing, Schedules, scheduled
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Session

logger = logging.getLogger(__name__)

#: Seconds between two looks at Redis's clock, which may be set.
LOOK = 60.0
#: Seconds from which on a message that comes late is worth a line.
LATE = 5.0


class Scheduler(Service):
    """Fires ticks by Redis's clock. Every process tries, and Redis lets one: there is no leader to lose.

    Ticks that passed while no process lived are made up for once, together, as soon as one does: by the last of them.
    """

    name = "scheduler"

    def __init__(self, schedules: Sequence[Scheduled], stores: Mapping[str, Schedules]) -> None:
        super().__init__()
        self._schedules = schedules
        self._stores = stores
        self._next: dict[str, int] = {}
        self._looked = float("-inf")
        #: Redis's clock in ms, when the monotonic one was 0.
        self._zero_ms = 0.0

    @classmethod
    def of(cls, queues: Sequence[QueueConfig]) -> Self:
        """Return what fires the project's schedules that publish to these queues."""
        session, configs = Session(get_client("chores")), {config.name: config for config in queues}
        entries = [entry for entry in scheduled() if entry.queue in configs]
        return cls(entries, {entry.queue: Schedules(configs[entry.queue], session) for entry in entries})

    def run_once(self) -> float:
        """Fire what is due."""
        if not self._schedules:
            return LOOK
        if time.monotonic() - self._looked >= LOOK:
            self._look()
        for entry in self._schedules:
            if self._next[entry.name] <= self._now_ms():
                self._fire(entry)
        wait = (min(self._next.values()) - self._now_ms()) / 1000
        return max(0.001, min(wait, LOOK))

    def recover(self, error: Exception) -> None:
        """Look at everything again: ticks passed while Redis was away."""
        self._looked = float("-inf")

    def _look(self) -> None:
        for queue, store in self._stores.items():
            entries = [entry for entry in self._schedules if entry.queue == queue]
            now_ms, lasts = store.look([entry.name for entry in entries])
            self._set_clock(now_ms)
            for entry, last_ms in zip(entries, lasts, strict=True):
                self._next[entry.name] = entry.next_ms(last_ms, timezone.get_default_timezone())
        self._looked = time.monotonic()

    def _fire(self, entry: Scheduled) -> None:
        tick_ms, zone = self._next[entry.name], timezone.get_default_timezone()
        # Of several that were missed the last one: its message is the one that may still be in time.
        latest_ms = entry.latest_ms(tick_ms, max(tick_ms, int(self._now_ms())), zone)
        firing, now_ms = self._stores[entry.queue].fire(entry, latest_ms)
        self._set_clock(now_ms)
        if firing is Firing.EARLY:
            return
        self._next[entry.name] = entry.next_ms(now_ms, zone)
        if firing is Firing.FIRED and now_ms - tick_ms > LATE * 1000:
            logger.warning("Schedule %s makes up for what it missed since %s", entry.name, _moment(tick_ms))
        elif firing is Firing.FIRED:
            logger.info("Schedule %s fired", entry.name)

    def _set_clock(self, now_ms: int) -> None:
        self._zero_ms = now_ms - time.monotonic() * 1000

    def _now_ms(self) -> float:
        return self._zero_ms + time.monotonic() * 1000


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
