"""Publish what is scheduled, at its ticks."""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Self

from django.utils import timezone

from mq_django.conf import QueueConfig
from mq_django.consumers.service import Service
from mq_django.core.logs import get_logger
from mq_django.core.schedules import Scheduled
from mq_django.stores.schedule_state import Firing, Schedules, scheduled
from mq_django.transport.connections import open_session

logger = get_logger(__name__)

#: Seconds between two looks at Redis's clock, which may be set.
LOOK = 60.0
#: Later than every tick, in ms since 1970.
NEVER = 2**63
#: Seconds until the next look at a queue whose schedules could not be read, or not fired.
TRY_AGAIN = 2.0
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
        #: Schedule -> its next tick; of a queue that could not be read, none.
        self._next: dict[str, int] = {}
        #: Queue -> the moment of the monotonic clock of the next look at it.
        self._looks = dict.fromkeys(stores, 0.0)
        #: Redis's clock in ms, when the monotonic one was 0.
        self._zero_ms = 0.0

    @classmethod
    def of(cls, queues: Sequence[QueueConfig]) -> Self:
        """Return what fires the project's schedules that publish to these queues."""
        session, configs = open_session("chores"), {config.name: config for config in queues}
        entries = [entry for entry in scheduled() if entry.queue in configs]
        return cls(entries, {entry.queue: Schedules(configs[entry.queue], session) for entry in entries})

    def run_once(self) -> float:
        """Fire what is due."""
        if not self._schedules:
            return LOOK
        now = time.monotonic()
        self.each([queue for queue in self._stores if self._looks[queue] <= now], self._look, called=str)
        due = (entry for entry in self._schedules if self._next.get(entry.name, NEVER) <= self._now_ms())
        self.each(due, self._fire, called=lambda entry: f"schedule {entry.name}")
        tick = min(self._next.values(), default=NEVER)
        wait = min((tick - self._now_ms()) / 1000, min(self._looks.values()) - time.monotonic(), LOOK)
        return max(0.001, wait)

    def recover(self, error: Exception) -> None:
        """Look at everything again: ticks passed while Redis was away."""
        self._looks = dict.fromkeys(self._stores, 0.0)

    def _look(self, queue: str) -> None:
        self._looks[queue] = time.monotonic() + TRY_AGAIN
        entries = [entry for entry in self._schedules if entry.queue == queue]
        now_ms, lasts = self._stores[queue].look([entry.name for entry in entries])
        self._set_clock(now_ms)
        self.each(zip(entries, lasts, strict=True), self._expect, called=lambda found: f"schedule {found[0].name}")
        self._looks[queue] = time.monotonic() + LOOK

    def _expect(self, found: tuple[Scheduled, int]) -> None:
        entry, last_ms = found
        self._next[entry.name] = entry.next_ms(last_ms, timezone.get_default_timezone())

    def _fire(self, entry: Scheduled) -> None:
        # Taken out first: a tick that cannot be fired is not tried again before the next look at its queue finds it.
        tick_ms, zone = self._next.pop(entry.name), timezone.get_default_timezone()
        looks, self._looks[entry.queue] = self._looks[entry.queue], time.monotonic() + TRY_AGAIN
        # Of several that were missed the last one: its message is the one that may still be in time.
        latest_ms = entry.latest_ms(tick_ms, max(tick_ms, int(self._now_ms())), zone)
        firing, now_ms = self._stores[entry.queue].fire(entry, latest_ms)
        self._set_clock(now_ms)
        self._next[entry.name] = tick_ms if firing is Firing.EARLY else entry.next_ms(now_ms, zone)
        self._looks[entry.queue] = looks
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
