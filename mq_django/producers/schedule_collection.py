"""Create, change, pause, skip and delete schedules at run time."""

from datetime import datetime
from typing import Unpack

from mq_django.conf import get_config
from mq_django.core.exceptions import repr_of
from mq_django.core.schedule_options import ScheduleOptions, changed_options, check_schedule_name
from mq_django.errors import InvalidSchedule, ScheduleChanged, ScheduleExists
from mq_django.producers.asynchronous import asynchronous
from mq_django.producers.queues import Queue
from mq_django.producers.schedule_checks import checked
from mq_django.producers.schedule_lookup import (
    ScheduleLookup,
    checked_text,
    config_of,
    is_named,
    place_of,
    refuse_unknown,
    same_home,
)
from mq_django.producers.schedule_skips import skip, unskip
from mq_django.producers.sinks import announce
from mq_django.stores.runtime_schedules import MAX_SCHEDULES
from mq_django.stores.schedule_state import home_of
from mq_django.stores.schedule_status import Origin, ScheduleStatus, statuses
from mq_django.transport.connections import open_wire

#: How often a change is tried again when somebody else changes the schedule at the same time.
TRIES = 10


class ScheduleCollection(ScheduleLookup):
    """The schedules of all queues. Use it as `mq_django.schedules`.

        schedules.create("report-7", queue="emails", cron="0 7 * * mon-fri", timezone="Europe/Berlin",
                         message="report", data={"customer": 7}, by=request.user.get_username())
        schedules.create("clean-7", every=timedelta(hours=1), task=clean, args=[7])

    Changes take effect at once, in all consumers and also inside `atomic()`: with `transaction.on_commit()` they wait
    for the commit. Each method has an asynchronous version with the same parameters, such as `acreate()`.

    Raises:
        UnknownQueue: `queue` is not configured.
        NotSupported: the queue has RSMQ's format, or is a group of a topic.
        ConfigurationError: `MQ_DJANGO` cannot be used.
        StoreError: Redis cannot be reached or refused.
    """

    def create(
        self,
        name: str,
        *,
        queue: str = "default",
        paused: bool = False,
        by: str = "",
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleStatus:
        """Create a schedule and return it. Its first tick is after now.

        Args:
            name: unique in its queue; 1 to 255 printable characters.
            queue: one of MQ_DJANGO["QUEUES"]. A task runs in this queue, too, whatever its own is.
            paused: it does not fire until it is resumed.
            by: the user, for display.
            options: as in the setting SCHEDULES: `cron` with `timezone`, or `every`; `message` with `data`, or `task`
                with `args` and `kwargs`; `priority`, `key`, `expires`, `starts`, `ends`. `task` is a task of this
                project, or its path.

        Raises:
            InvalidSchedule: no schedule can have these options, or the queue has too many schedules.
            InvalidMessage: its messages could not be sent.
            ScheduleExists: the queue has a schedule of this name.
            UnknownSchedule: somebody has deleted it at once.
            MissingDependency: croniter is not installed, which `cron` needs.
        """
        config = config_of(queue)
        check_schedule_name(name)
        if not isinstance(paused, bool):
            raise InvalidSchedule(f"paused must be True or False, not {repr_of(paused)}")
        found = self._find(config, name)
        if found is not None and found.origin is not Origin.REMOVED:
            raise ScheduleExists(
                f"Queue {repr_of(queue)} has a schedule {repr_of(name)} already: it is in {place_of(found)}"
            )
        definition, entry = checked(config, name, options)
        home = home_of(config, entry)
        result = self._runtime(home).define(name, definition, before=b"", who=checked_text(by), paused=paused)
        if result == "EXISTS":
            raise ScheduleExists(f"Queue {repr_of(queue)} has a schedule {repr_of(name)} already: it was just created")
        if result == "FULL":
            raise InvalidSchedule(f"Queue {repr_of(queue)} has {MAX_SCHEDULES} schedules, the most that it may have")
        return self.get(name, queue=queue)

    def update(
        self,
        name: str,
        *,
        queue: str = "default",
        by: str = "",
        version: str | None = None,
        **changes: Unpack[ScheduleOptions],
    ) -> ScheduleStatus:
        """Change a schedule that was created at run time, and return it.

        A change of its times counts from now on; ticks that were missed before do not fire.

        Args:
            name: its name.
            queue: its queue.
            by: the user, for display.
            version: `ScheduleStatus.version` of the schedule that was shown to the user: if somebody has changed it
                since, that is an error.
            changes: the options that change; see create(). None removes an option. `cron` replaces `every`, `message`
                replaces `task` with its arguments, and the other way round.

        Raises:
            InvalidSchedule: no schedule can have these options, or `key` is one of another partition.
            InvalidMessage: its messages could not be sent.
            UnknownSchedule: the queue has no such schedule.
            ScheduleInCode: it is in code or settings, and can only be paused.
            ScheduleChanged: somebody else has changed it.
            MissingDependency: croniter is not installed, which `cron` needs.
        """
        config, who = config_of(queue), checked_text(by)
        for _ in range(TRIES):
            found = self._changeable(config, name)
            if version is not None and version != found.version:
                break
            definition, entry = checked(config, name, changed_options(found.options, changes))
            if definition == found.definition:
                return found
            anew = found.entry is None or found.entry.times != entry.times
            home = same_home(config, entry, found)
            result = self._runtime(home).define(name, definition, before=found.definition, who=who, anew=anew)
            if result == "DEFINED":
                return self.get(name, queue=queue)
        raise ScheduleChanged(f"Somebody else has just changed schedule {repr_of(name)} of queue {repr_of(queue)}")

    def get(self, name: str, *, queue: str = "default") -> ScheduleStatus:
        """Return a schedule of code, settings or run time.

        Args:
            name: its name.
            queue: its queue.

        Raises:
            UnknownSchedule: the queue has no such schedule.
        """
        return self._existing(config_of(queue), name)

    def get_all(self, queue: str | None = None) -> list[ScheduleStatus]:
        """Return all schedules of code, settings and run time, by queue and name.

        Args:
            queue: only those of one queue.
        """
        names = [name for name, config in get_config().queues.items() if config.has_schedules]
        configs = [config_of(name) for name in (names if queue is None else [queue])]
        return [
            found for config in configs for found in statuses(config, open_wire(self._role, config.connection)).found
        ]

    def pause(self, name: str, *, queue: str = "default", by: str = "") -> bool:
        """Pause a schedule, also one of code or settings. The ticks of the pause never fire.

        Args:
            name: its name.
            queue: its queue.
            by: the user, for display.

        Returns:
            Whether it was running before.

        Raises:
            UnknownSchedule: the queue has no such schedule.
            InvalidSchedule: `by` is not text.
        """
        return self._store(self._existing(config_of(queue), name)).pause(name, who=checked_text(by))

    def resume(self, name: str, *, queue: str = "default") -> bool:
        """Resume a paused schedule from its next tick on.

        Args:
            name: its name.
            queue: its queue.

        Returns:
            Whether it was paused before.

        Raises:
            UnknownSchedule: the queue has no such schedule.
        """
        return self._store(self._existing(config_of(queue), name)).resume(name)

    def skip(self, name: str, *, queue: str = "default", tick: datetime | str | None = None, by: str = "") -> datetime:
        """Let one tick of a schedule pass without a message, also of one in code or settings, and return the tick.

        Other ticks are not changed. What is skipped is forgotten when its time has passed, and when the times of a
        schedule of run time are changed.

        Args:
            name: its name.
            queue: its queue.
            tick: a later tick: a datetime, or text in ISO format; None: the next one.
            by: the user, for display.

        Raises:
            UnknownSchedule: the queue has no such schedule.
            InvalidSchedule: it has no such tick, the tick has passed, or too many ticks are skipped.
            ScheduleChanged: somebody else has just changed it.
        """
        found = self._existing(config_of(queue), name)
        return skip(self._store(found), found, tick, who=checked_text(by))

    def unskip(self, name: str, *, queue: str = "default", tick: datetime | str | None = None) -> datetime | None:
        """Let a skipped tick of a schedule fire after all.

        Args:
            name: its name.
            queue: its queue.
            tick: a datetime, or text in ISO format; None: the first tick that is skipped.

        Returns:
            The tick; None if it was not skipped.

        Raises:
            UnknownSchedule: the queue has no such schedule.
            InvalidSchedule: the tick has passed.
        """
        found = self._existing(config_of(queue), name)
        return unskip(self._store(found), found, tick)

    def fire(self, name: str, *, queue: str = "default") -> str:
        """Publish the message of a schedule now, even if it is paused, and return the message's id.

        Its ticks stay as they are.

        Args:
            name: its name.
            queue: its queue.

        Raises:
            UnknownSchedule: the queue has no such schedule.
            InvalidSchedule: its definition is not valid.
            InvalidMessage: its message cannot be sent.
            ScheduleChanged: somebody else has just changed it.
            QueueFull: the queue is at its MAX_DEPTH.
        """
        found = self._existing(config_of(queue), name)
        if found.entry is None:
            raise InvalidSchedule(f"Schedule {repr_of(name)} of queue {repr_of(queue)} is not valid: {found.problem}")
        made = self._store(found).fire_now(found.entry)
        if made is None:
            raise ScheduleChanged(f"Somebody else has just changed schedule {repr_of(name)} of queue {repr_of(queue)}")
        announce(Queue, made, made.message.id)
        return made.message.id

    def delete(self, name: str, *, queue: str = "default") -> None:
        """Delete a schedule that was created at run time. It never fires again.

        Args:
            name: its name.
            queue: its queue.

        Raises:
            UnknownSchedule: the queue has no such schedule.
            ScheduleInCode: it is in code or settings, and can only be paused.
        """
        config = config_of(queue)
        parts = config.each_part if is_named(name) else ()
        if not any([self._runtime(part).delete(name) for part in parts]):  # noqa: C419 - in each
            self._changeable(config, name)
            refuse_unknown(config, name)

    acreate = asynchronous(create)
    aupdate = asynchronous(update)
    aget = asynchronous(get)
    aget_all = asynchronous(get_all)
    apause = asynchronous(pause)
    aresume = asynchronous(resume)
    askip = asynchronous(skip)
    aunskip = asynchronous(unskip)
    afire = asynchronous(fire)
    adelete = asynchronous(delete)


#: The schedules of this project.
schedules = ScheduleCollection()
