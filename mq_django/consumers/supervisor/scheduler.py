"""Publish the messages of schedules at their ticks."""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from queue import SimpleQueue
from types import MappingProxyType
from typing import Self

from mq_django.conf import default_time_zone, get_config
from mq_django.consumers.service import RoundShares, ServerQueues, Service, open_session_to
from mq_django.core.logs import get_logger
from mq_django.core.partitions import public_name
from mq_django.core.schedules import NEVER, Scheduled
from mq_django.core.texts import line
from mq_django.errors import InvalidSchedule
from mq_django.producers.queues import Queue
from mq_django.producers.sinks import announce
from mq_django.stores.schedules import (
    Fired,
    Firing,
    Loaded,
    RuntimeSchedules,
    Schedules,
    home_of,
    scheduled,
)
from mq_django.transport.sessions import Transport

logger = get_logger(__name__)

#: Seconds between two reads of Redis's clock, which may be changed.
CHECK_EVERY = 60.0
#: Seconds until a queue is checked again whose schedules could not be read or fired.
TRY_AGAIN = 2.0
#: A tick that fires this many seconds late is logged as a warning.
LATE = 5.0
#: The least seconds between two checks of a queue, so that creating many schedules does not read all of them each time.
MIN_PAUSE = 0.5


class Scheduler(Service):
    """Fires ticks by Redis's clock. Every process tries and Redis lets one succeed, so there is no leader to lose.

    Of the ticks missed while nothing was running, or while the queue was at its MAX_DEPTH, only the last one fires, as
    soon as that is possible.
    """

    name = "scheduler"

    def __init__(
        self,
        schedules: Sequence[Scheduled],
        stores: Mapping[str, Schedules],
        runtime: Mapping[str, RuntimeSchedules] = MappingProxyType({}),
        transport: Transport | None = None,
    ) -> None:
        super().__init__()
        self._transport = transport
        self._schedules = schedules
        self._stores = stores
        self._runtime = runtime
        self._queues = sorted({*stores, *runtime})
        #: As Redis has or overrides them, by queue and name, with the time up to which their ticks have fired.
        self._loaded: dict[tuple[str, str], tuple[Scheduled, int]] = {}
        #: By queue and name: those that are to be parsed.
        self._unread: dict[str, dict[str, Loaded]] = {}
        #: Schedule -> its next tick. Without the schedules of queues that could not be read.
        self._next: dict[tuple[str, str], int] = {}
        #: Queue -> the time of its next check, on the monotonic clock. Other threads only write to `_changed`.
        self._checks = dict.fromkeys(self._queues, 0.0)
        self._checked = dict.fromkeys(self._queues, -MIN_PAUSE)
        self._changed: SimpleQueue[str] = SimpleQueue()
        #: Redis's clock in ms, when the monotonic one was 0.
        self._zero_ms = 0.0

    @classmethod
    def of(cls, queues: ServerQueues, transport: Transport | None = None) -> Self:
        """Return the scheduler of the project's schedules that publish to these queues.

        Args:
            queues: queues on one server.
            transport: to that server; None: a session of its own.
        """
        session = transport or open_session_to(queues)
        configs = {config.name: config for config in queues.values() if config.has_schedules}
        entries = [entry for entry in _at_home(scheduled()) if entry.queue in configs]
        stores = {entry.queue: Schedules(configs[entry.queue], session) for entry in entries}
        runtime = {name: RuntimeSchedules(config, session) for name, config in configs.items()}
        return cls(entries, stores, runtime, session)

    def expect(self, queue: str) -> None:
        """Check a queue soon: a schedule was created, changed or deleted."""
        self._changed.put(queue)
        self.wake()

    def run_once(self) -> float:
        """Fire the ticks that are due."""
        if not self._queues:
            return CHECK_EVERY
        while not self._changed.empty():
            queue = self._changed.get()
            if queue in self._checks:
                self._checks[queue] = min(self._checks[queue], self._checked[queue] + MIN_PAUSE)
        self._check_due()
        is_read = self._read_on()
        now_ms, entries = self._now_ms(), [entry for entry, _last_ms in self._loaded.values()]
        due = [entry for entry in entries if self._next.get(entry.id, NEVER) <= now_ms]
        due.sort(key=lambda entry: self._next[entry.id])
        firing = RoundShares(due, lambda entry: entry.queue)
        self.each(firing, self._fire, called=lambda entry: f"schedule {entry.name}")
        if firing.left or not is_read:
            return 0.001
        tick = self.next_tick_ms()
        wait = min((tick - self._now_ms()) / 1000, min(self._checks.values()) - time.monotonic(), CHECK_EVERY)
        return max(0.001, wait)

    def next_tick_ms(self) -> int:
        """Return the time of the next tick that is known, or NEVER."""
        return min(self._next.values(), default=NEVER)

    def recover(self, error: Exception) -> None:
        """Check all queues again: ticks may have passed while Redis could not be reached."""
        self._checks = dict.fromkeys(self._queues, 0.0)

    def _check_due(self) -> None:
        """Check the queues whose time has come. Most have no schedule, which one command tells of all of them."""
        now = time.monotonic()
        due = [queue for queue in self._queues if self._checks[queue] <= now]
        if self._transport is None or not due:
            self.each(due, self._check, called=str)
            return
        # Those that are due soon, too: so all of them stay in one round.
        soon = [queue for queue in self._queues if self._checks[queue] <= now + CHECK_EVERY / 2]
        self.each_together(
            soon,
            lambda queue: self._runtime[queue].count_command(),
            lambda queue, answer: self._check(queue, is_empty=answer.reply == 0),
            transport=self._transport,
            called=str,
        )

    def _check(self, queue: str, *, is_empty: bool = False) -> None:
        """Read the schedules of a queue; `is_empty`: none was created at run time."""
        entries = [entry for entry in self._schedules if entry.queue == queue]
        known = {loaded_queue for loaded_queue, _name in self._loaded}
        self._checked[queue] = time.monotonic()
        if is_empty and not entries and queue not in known:
            self._checks[queue] = time.monotonic() + CHECK_EVERY
            return
        self._checks[queue] = time.monotonic() + TRY_AGAIN
        self._unread[queue] = {}
        if entries:
            now_ms, found = self._stores[queue].read_states(entries)
            self._set_clock(now_ms)
            # At once: those that were created at run time may be thousands.
            self.each(
                [loaded for loaded in found if not self._is_known(queue, loaded)],
                lambda loaded: self._expect_loaded(queue, loaded),
                called=lambda loaded: f"schedule {loaded.name}",
            )
        if queue in self._runtime:
            self._load(queue, {entry.name for entry in entries})
        self._checks[queue] = time.monotonic() + CHECK_EVERY

    def _load(self, queue: str, own: Collection[str]) -> None:
        """Read the schedules that were created at run time, except those whose names are taken."""
        now_ms, found = self._runtime[queue].load()
        hidden = {*own, *(entry.name for entry in _of_whole(queue))}
        found = [loaded for loaded in found if loaded.name not in hidden]
        existing = {(queue, name) for name in (*own, *(loaded.name for loaded in found))}
        for gone in [each for each in self._loaded if each[0] == queue and each not in existing]:
            self._drop(gone)
        self._set_clock(now_ms)
        self._unread[queue] = {loaded.name: loaded for loaded in found if not self._is_known(queue, loaded)}

    def _read_on(self) -> bool:
        """Parse what was loaded, and return whether that is all."""
        unread = [(queue, loaded) for queue, found in self._unread.items() for loaded in found.values()]
        shares = RoundShares(unread, lambda pair: pair[0])
        self.each(
            shares,
            lambda pair: self._expect_loaded(*pair),
            called=lambda pair: f"schedule {line(pair[1].name)}",
        )
        return not shares.left

    def _is_known(self, queue: str, loaded: Loaded) -> bool:
        """Return whether the next tick of a schedule is known: computing thousands takes seconds."""
        which = queue, loaded.name
        entry, last_ms = self._loaded.get(which, (None, None))
        return entry is not None and which in self._next and (entry.guard[1], last_ms) == loaded[1:3]

    def _expect_loaded(self, queue: str, loaded: Loaded) -> None:
        self._unread[queue].pop(loaded.name, None)
        entry, which = loaded.parsed.entry, (queue, loaded.name)
        if entry is not None and entry.queue != queue:
            entry = replace(entry, queue=queue)
        self._drop(which)
        if entry is None:
            raise InvalidSchedule(f"Its definition is not valid: {loaded.parsed.problem}")
        self._loaded[which] = entry, loaded.last_ms
        self._next[which] = entry.next_ms(loaded.last_ms, default_time_zone())

    def _drop(self, which: tuple[str, str]) -> None:
        self._loaded.pop(which, None)
        self._next.pop(which, None)

    def _fire(self, entry: Scheduled) -> None:
        # Removed first: a tick that cannot be fired is retried only after the next check of its queue.
        tick_ms, zone = self._next.pop(entry.id), default_time_zone()
        next_check, self._checks[entry.queue] = self._checks[entry.queue], time.monotonic() + TRY_AGAIN
        firing, now_ms, made = self._propose(entry, tick_ms)
        self._set_clock(now_ms)
        if firing is Firing.CHANGED:
            self._drop(entry.id)
            self._checks[entry.queue] = self._checked[entry.queue] + MIN_PAUSE
            return
        self._next[entry.id] = tick_ms if firing is Firing.EARLY else entry.next_ms(now_ms, zone)
        self._checks[entry.queue] = next_check
        if firing is Firing.SKIPPED:
            logger.info("Schedule %s skipped the tick of %s", entry.name, _moment(tick_ms))
        if firing is not Firing.FIRED:
            return
        if now_ms - tick_ms > LATE * 1000:
            logger.warning("Schedule %s fired once for the ticks missed since %s", entry.name, _moment(tick_ms))
        else:
            logger.info("Schedule %s fired", entry.name)
        announce(Queue, made, made.message.id)

    def _propose(self, entry: Scheduled, first_ms: int) -> Fired:
        store = (self._stores if entry.definition is None else self._runtime)[entry.queue]
        return store.fire_last(entry, first_ms, int(self._now_ms()))

    def _set_clock(self, now_ms: int) -> None:
        self._zero_ms = now_ms - time.monotonic() * 1000

    def _now_ms(self) -> float:
        return self._zero_ms + time.monotonic() * 1000


def _at_home(entries: Sequence[Scheduled]) -> Iterator[Scheduled]:
    """Yield schedules with the partitions that have their states in the place of their queues."""
    for entry in entries:
        whole = get_config().queues.get(entry.queue)
        if whole is not None:
            home = home_of(whole, entry)
            yield entry if home is whole else replace(entry, queue=home.name)


def _of_whole(queue: str) -> Sequence[Scheduled]:
    """Return the schedules of code and settings of the queue of a partition; none for a queue without partitions."""
    whole = public_name(queue)
    return [entry for entry in scheduled() if entry.queue == whole] if whole != queue else []


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
