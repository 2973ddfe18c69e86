"""Create, change, pause and delete schedules at run time."""

from typing import NoReturn, Unpack

from mq_django.conf import QueueConfig, get_config
from mq_django.core.schedule_options import ScheduleOptions, changed_options, check_schedule_name
from mq_django.errors import (
    InvalidSchedule,
    NotSupported,
    ScheduleChanged,
    ScheduleExists,
    ScheduleInCode,
    UnknownSchedule,
)
from mq_django.producers.asynchronous import asynchronous
from mq_django.producers.queues import Queue
from mq_django.producers.schedule_checks import checked
from mq_django.producers.sinks import announce
from mq_django.stores.runtime_schedules import MAX_SCHEDULES, RuntimeSchedules
from mq_django.stores.schedule_state import Schedules
from mq_django.stores.schedule_status import Origin, PlannedSchedule, ScheduleStatus, statuses
from mq_django.transport.connections import Role, open_wire

#: How often a change is tried again when somebody else changes the schedule at the same time.
TRIES = 10


class ScheduleCollection:
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

    def __init__(self, role: Role = "produce") -> None:
        self._role = role

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
        config = _config(queue)
        check_schedule_name(name)
        if not isinstance(paused, bool):
            raise InvalidSchedule(f"paused must be True or False, not {paused!r:.100}")
        found = self._find(config, name)
        if found is not None and found.origin is not Origin.REMOVED:
            raise ScheduleExists(f"Queue {queue!r} has a schedule {name!r} already: it is in {_place(found)}")
        definition, _ = checked(config, name, options)
        result = self._runtime(config).define(name, definition, before=b"", who=_text(by), paused=paused)
        if result == "EXISTS":
            raise ScheduleExists(f"Queue {queue!r} has a schedule {name!r} already: it was just created")
        if result == "FULL":
            raise InvalidSchedule(f"Queue {queue!r} has {MAX_SCHEDULES} schedules, the most that it may have")
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
            InvalidSchedule: no schedule can have these options.
            InvalidMessage: its messages could not be sent.
            UnknownSchedule: the queue has no such schedule.
            ScheduleInCode: it is in code or settings, and can only be paused.
            ScheduleChanged: somebody else has changed it.
            MissingDependency: croniter is not installed, which `cron` needs.
        """
        config = _config(queue)
        for _ in range(TRIES):
            found = self._changeable(config, name)
            if version is not None and version != found.version:
                break
            definition, entry = checked(config, name, changed_options(found.options, changes))
            if definition == found.definition:
                return found
            anew = found.entry is None or found.entry.times != entry.times
            result = self._runtime(config).define(name, definition, before=found.definition, who=_text(by), anew=anew)
            if result == "DEFINED":
                return self.get(name, queue=queue)
        raise ScheduleChanged(f"Somebody else has just changed schedule {name!r} of queue {queue!r}")

    def get(self, name: str, *, queue: str = "default") -> ScheduleStatus:
        """Return a schedule of code, settings or run time.

        Args:
            name: its name.
            queue: its queue.

        Raises:
            UnknownSchedule: the queue has no such schedule.
        """
        return self._existing(_config(queue), name)

    def get_all(self, queue: str | None = None) -> list[ScheduleStatus]:
        """Return all schedules of code, settings and run time, by queue and name.

        Args:
            queue: only those of one queue.
        """
        names = [name for name, config in get_config().queues.items() if config.has_schedules]
        configs = [_config(name) for name in (names if queue is None else [queue])]
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
        return self._store(self._existing(_config(queue), name)).pause(name, who=_text(by))

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
        return self._store(self._existing(_config(queue), name)).resume(name)

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
        found = self._existing(_config(queue), name)
        if found.entry is None:
            raise InvalidSchedule(f"Schedule {name!r} of queue {queue!r} is not valid: {found.problem}")
        made = self._store(found).fire_now(found.entry)
        if made is None:
            raise ScheduleChanged(f"Somebody else has just changed schedule {name!r} of queue {queue!r}")
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
        config = _config(queue)
        if not self._runtime(config).delete(name):
            self._changeable(config, name)
            _refuse_unknown(config, name)

    acreate = asynchronous(create)
    aupdate = asynchronous(update)
    aget = asynchronous(get)
    aget_all = asynchronous(get_all)
    apause = asynchronous(pause)
    aresume = asynchronous(resume)
    afire = asynchronous(fire)
    adelete = asynchronous(delete)

    def _runtime(self, config: QueueConfig) -> RuntimeSchedules:
        return RuntimeSchedules(config, open_wire(self._role, config.connection))

    def _store(self, found: PlannedSchedule) -> Schedules:
        config = get_config().queue(found.queue)
        return (
            self._runtime(config)
            if found.origin is Origin.RUNTIME
            else Schedules(config, open_wire(self._role, config.connection))
        )

    def _find(self, config: QueueConfig, name: str) -> PlannedSchedule | None:
        return next(iter(statuses(config, open_wire(self._role, config.connection), name=name).found), None)

    def _existing(self, config: QueueConfig, name: str) -> PlannedSchedule:
        found = self._find(config, name)
        if found is None or found.origin is Origin.REMOVED:
            _refuse_unknown(config, name)
        return found

    def _changeable(self, config: QueueConfig, name: str) -> PlannedSchedule:
        found = self._existing(config, name)
        if found.origin is not Origin.RUNTIME:
            raise ScheduleInCode(
                f"Schedule {name!r} of queue {config.name!r} is in {_place(found)}: change it there, or pause it"
            )
        return found


def _config(queue: str) -> QueueConfig:
    config = get_config().queue(queue)
    if not config.has_schedules:
        raise NotSupported(f"{queue!r} has no schedules: it has RSMQ's format, or is a group of a topic")
    return config


def _text(by: object) -> str:
    if not isinstance(by, str):
        raise InvalidSchedule(f"by must be text, such as request.user.get_username(), not {by!r:.100}")
    return by


def _place(found: ScheduleStatus) -> str:
    return "Redis, created at run time" if found.origin is Origin.RUNTIME else found.origin.value


def _refuse_unknown(config: QueueConfig, name: str) -> NoReturn:
    raise UnknownSchedule(f"Queue {config.name!r} has no schedule {name!r:.300}")


#: The schedules of this project.
schedules = ScheduleCollection()
