"""Publish the messages of schedules at their ticks."""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Self

from django.utils import timezone

from mq_django.conf import QueueConfig
from mq_django.consumers.service import Service
from mq_django.core.logs import get_logger
from mq_django.core.schedules import Scheduled
from mq_django.producers.queues import Queue
from mq_django.producers.sinks import announce
from mq_django.stores.schedule_state import Firing, Schedules, scheduled
from mq_django.transport.connections import open_session

logger = get_logger(__name__)

#: Seconds between two reads of Redis's clock, which may be changed.
CHECK_EVERY = 60.0
#: Later than every tick, in ms since 1970.
NEVER = 2**63
#: Seconds until a queue is checked again whose schedules could not be read or fired.
TRY_AGAIN = 2.0
#: A tick that fires this many seconds late is logged as a warning.
LATE = 5.0


class Scheduler(Service):
    """Fires ticks by Redis's clock. Every process tries and Redis lets one succeed, so there is no leader to lose.

    Of the ticks missed while nothing was running, or while the queue was at its MAX_DEPTH, only the last one fires, as
    soon as that is possible.
    """

    name = "scheduler"

    def __init__(self, schedules: Sequence[Scheduled], stores: Mapping[str, Schedules]) -> None:
        super().__init__()
        self._schedules = schedules
        self._stores = stores
        #: Schedule -> its next tick. Without the schedules of queues that could not be read.
        self._next: dict[str, int] = {}
        #: Queue -> the time of its next check, on the monotonic clock.
        self._checks = dict.fromkeys(stores, 0.0)
        #: Redis's clock in ms, when the monotonic one was 0.
        self._zero_ms = 0.0

    @classmethod
    def of(cls, queues: Sequence[QueueConfig]) -> Self:
        """Return the scheduler of the project's schedules that publish to these queues."""
        session, configs = open_session("chores"), {config.name: config for config in queues}
        entries = [entry for entry in scheduled() if entry.queue in configs]
        return cls(entries, {entry.queue: Schedules(configs[entry.queue], session) for entry in entries})

    def run_once(self) -> float:
        """Fire the ticks that are due."""
        if not self._schedules:
            return CHECK_EVERY
        now = time.monotonic()
        self.each([queue for queue in self._stores if self._checks[queue] <= now], self._check, called=str)
        due = (entry for entry in self._schedules if self._next.get(entry.name, NEVER) <= self._now_ms())
        self.each(due, self._fire, called=lambda entry: f"schedule {entry.name}")
        tick = min(self._next.values(), default=NEVER)
        wait = min((tick - self._now_ms()) / 1000, min(self._checks.values()) - time.monotonic(), CHECK_EVERY)
        return max(0.001, wait)

    def recover(self, error: Exception) -> None:
        """Check all queues again: ticks may have passed while Redis could not be reached."""
        self._checks = dict.fromkeys(self._stores, 0.0)

    def _check(self, queue: str) -> None:
        self._checks[queue] = time.monotonic() + TRY_AGAIN
        entries = [entry for entry in self._schedules if entry.queue == queue]
        now_ms, lasts = self._stores[queue].look([entry.name for entry in entries])
        self._set_clock(now_ms)
        self.each(zip(entries, lasts, strict=True), self._expect, called=lambda found: f"schedule {found[0].name}")
        self._checks[queue] = time.monotonic() + CHECK_EVERY

    def _expect(self, found: tuple[Scheduled, int]) -> None:
        entry, last_ms = found
        self._next[entry.name] = entry.next_ms(last_ms, timezone.get_default_timezone())

    def _fire(self, entry: Scheduled) -> None:
        # Removed first: a tick that cannot be fired is retried only after the next check of its queue.
        tick_ms, zone = self._next.pop(entry.name), timezone.get_default_timezone()
        next_check, self._checks[entry.queue] = self._checks[entry.queue], time.monotonic() + TRY_AGAIN
        # Of several missed ticks the last one: its message may still be in time.
        latest_ms = entry.latest_ms(tick_ms, max(tick_ms, int(self._now_ms())), zone)
        firing, now_ms, message_id = self._stores[entry.queue].fire(entry, latest_ms)
        self._set_clock(now_ms)
        self._next[entry.name] = tick_ms if firing is Firing.EARLY else entry.next_ms(now_ms, zone)
        self._checks[entry.queue] = next_check
        if firing is not Firing.FIRED:
            return
        if now_ms - tick_ms > LATE * 1000:
            logger.warning("Schedule %s fired once for the ticks missed since %s", entry.name, _moment(tick_ms))
        else:
            logger.info("Schedule %s fired", entry.name)
        announce(Queue, entry.queue, message_id, entry.message)

    def _set_clock(self, now_ms: int) -> None:
        self._zero_ms = now_ms - time.monotonic() * 1000

    def _now_ms(self) -> float:
        return self._zero_ms + time.monotonic() * 1000


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
