"""Create, change, pause, skip and delete schedules at run time."""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import wraps
from typing import Any, NoReturn, ParamSpec, TypeVar, Unpack

from mq_django import errors, registry
from mq_django.conf import QueueConfig, get_config
from mq_django.core.clock import Duration
from mq_django.core.ids import is_text
from mq_django.core.message_format import moment
from mq_django.core.redaction import redact
from mq_django.core.schedules import (
    NO_OPTION,
    Scheduled,
    ScheduleOptions,
    changed_options,
    check_schedule_name,
    definition_of,
    read_definition,
)
from mq_django.core.texts import repr_of
from mq_django.discovery import import_declaring
from mq_django.producers.asynchronous import asynchronous
from mq_django.producers.queues import check_partitions
from mq_django.producers.schedule_ticks import check_time, checked_override, fire_now, set_override, skip, unskip
from mq_django.stores.activity import Effect, Given, for_undo, recorded
from mq_django.stores.schedule_status import Origin, PlannedSchedule, ScheduleStatus, statuses, version_of
from mq_django.stores.schedules import MAX_SCHEDULES, RuntimeSchedules, Schedules, home_of
from mq_django.transport.connections import Role, open_transport
from mq_django.transport.sessions import Transport

# Check a schedule when it is created or changed.


def checked(config: QueueConfig, name: str, options: Mapping[str, Any]) -> tuple[bytes, Scheduled]:
    """Return the definition of a schedule whose ticks can be published, and the schedule.

    Raises:
        InvalidSchedule: no schedule can have these options.
        InvalidMessage: its messages could not be sent.
        MissingDependency: croniter is not installed.
    """
    given = {option: value for option, value in options.items() if value is not None}
    path = getattr(given.get("task"), "module_path", given.get("task"))
    if path is not None:
        given["task"] = path
    try:
        definition = definition_of(given)
        entry = read_definition(config.name, name, definition)
        if path is not None:
            check_task(config, path, entry.data)
        entry.publication(config)
        check_time(entry)
    except (errors.MissingDependency, errors.InvalidMessage):
        raise
    except (TypeError, errors.ConfigurationError, errors.NotSupported) as error:
        raise errors.InvalidSchedule(f"Schedule {repr_of(name)}: {error}") from error
    return definition, entry


def check_task(config: QueueConfig, path: str, data: Mapping[str, Any]) -> None:
    """Check a task's arguments. Only tasks of this project have a handler, and no path is imported.

    Raises:
        TypeError: the path is not that of a task, or its function cannot be called with these arguments.
    """
    handler = registry.find(config.name, path)
    if handler is None:  # perhaps of a module that this process has not needed
        import_declaring()
        handler = registry.find(config.name, path)
    if handler is None or handler.accepts is None:
        raise TypeError(f"{repr_of(path, 300)} is not the path of a task of this project")
    handler.accepts(data["args"], data["kwargs"])


# Find the schedules that the methods of `schedules` are about.

OTHER_PARTITION = (
    "Schedule {name!r} would be in another partition of its queue with this key: delete it, and create it again"
)


class ScheduleLookup:
    """Finds schedules, and the stores of their states."""

    def __init__(self, role: Role = "produce") -> None:
        self._role = role

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
            queue: only schedules of this queue.
        """
        names = [name for name, config in get_config().queues.items() if config.has_schedules]
        configs = [config_of(name) for name in (names if queue is None else [queue])]
        return [found for config in configs for found in statuses(config, self._transport(config)).found]

    aget = asynchronous(get)
    aget_all = asynchronous(get_all)

    def _transport(self, config: QueueConfig) -> Transport:
        return open_transport(self._role, config.connection)

    def _runtime(self, config: QueueConfig) -> RuntimeSchedules:
        check_partitions(config)
        return RuntimeSchedules(config, self._transport(config))

    def _store(self, found: PlannedSchedule) -> Schedules:
        config = get_config().queue(found.home)
        if found.origin is Origin.RUNTIME:
            return self._runtime(config)
        check_partitions(config)
        return Schedules(config, self._transport(config))

    def _find(self, config: QueueConfig, name: str) -> PlannedSchedule | None:
        if not is_named(name):
            return None
        return next(iter(statuses(config, self._transport(config), name=name).found), None)

    def _existing(self, config: QueueConfig, name: str) -> PlannedSchedule:
        found = self._find(config, name)
        if found is None or found.origin is Origin.REMOVED:
            refuse_unknown(config, name)
        return found

    def _changeable(self, config: QueueConfig, name: str) -> PlannedSchedule:
        found = self._existing(config, name)
        if found.origin is not Origin.RUNTIME:
            raise errors.ScheduleInCode(
                f"Schedule {name!r} of queue {config.name!r} is in {origin_text(found)}: change it there, "
                "override its times, or pause it"
            )
        return found

    def _override(
        self, config: QueueConfig, name: str, override: Callable[[PlannedSchedule], bytes], *, who: str = ""
    ) -> bool:
        """Override the times of a schedule, and return whether that is a change; see `set_override()`."""
        for _ in range(TRIES):
            found = self._existing(config, name)
            text = override(found)
            if text == found.definition or (not text and found.override is None):
                return False
            if set_override(self._store(found), found, text, who=who):
                return True
        raise _changed_by_others(config, name)


def is_named(name: object) -> bool:
    """Return whether a schedule may have this name; one that others have written may have bytes that are not UTF-8."""
    return is_text(name, errors="surrogateescape")


def config_of(queue: str) -> QueueConfig:
    """Return the config of a queue that has schedules, else raise NotSupported; UnknownQueue for a partition."""
    config = get_config().whole_queue(queue)
    if not config.has_schedules:
        raise errors.NotSupported(f"{repr_of(queue)} has no schedules: it has RSMQ's format, or is a group of a topic")
    return config


def same_home(config: QueueConfig, entry: Scheduled, before: PlannedSchedule) -> QueueConfig:
    """Return where the state of a schedule is; raise InvalidSchedule if a change would need another partition."""
    home = home_of(config, entry)
    if home.name != before.home:
        raise errors.InvalidSchedule(OTHER_PARTITION.format(name=entry.name))
    return home


def checked_text(by: object) -> str:
    """Return the name of a user, else raise InvalidSchedule."""
    if not isinstance(by, str):
        raise errors.InvalidSchedule(f"by must be text, such as request.user.get_username(), not {repr_of(by)}")
    return by


def origin_text(found: ScheduleStatus) -> str:
    """Return where a schedule is defined, for error messages."""
    return "Redis, created at run time" if found.origin is Origin.RUNTIME else found.origin.value


def refuse_unknown(config: QueueConfig, name: str) -> NoReturn:
    """Raise UnknownSchedule."""
    raise errors.UnknownSchedule(f"Queue {config.name!r} has no schedule {repr_of(name, 300)}")


def _changed_by_others(config: QueueConfig, name: str) -> errors.ScheduleChanged:
    text = f"Somebody else has just changed schedule {repr_of(name)} of queue {repr_of(config.name)}"
    return errors.ScheduleChanged(text)


def _tick_effect(given: Given, tick: datetime | None) -> Effect:
    ms = None if tick is None else round(tick.timestamp() * 1000)
    return Effect(0) if ms is None else Effect(1, about=[given["name"], moment(ms)], undo={"tick": ms})


#: The most bytes of a definition that an entry of the activity keeps.
MAX_KEPT = 4096


def _keep(found: PlannedSchedule, *, changed: str = "") -> None:
    """Keep the options of a schedule for an undo, with the version to which it was changed.

    An entry outlives its schedule, so it has no secrets: without a part of the options, there is no undo.
    """
    options = dict(found.options)
    if options and len(found.definition) <= MAX_KEPT and redact(options) == options:
        for_undo({"name": found.name, "options": options, "paused": found.paused, "changed": changed})


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def _named_once(method: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Refuse `name` as an option, like any unknown one: Python itself would raise a TypeError."""

    @wraps(method)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if len(args) > 1 and "name" in kwargs:
            raise errors.InvalidSchedule(f"Schedule {repr_of(args[1])}: 'name'{NO_OPTION}")
        return method(*args, **kwargs)

    return call


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

    @_named_once
    @recorded("create schedule", queue="queue", about="name", by="by")
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
            raise errors.InvalidSchedule(f"paused must be True or False, not {repr_of(paused)}")
        found, exists = self._find(config, name), f"Queue {repr_of(queue)} has a schedule {repr_of(name)} already"
        if found is not None and found.origin is not Origin.REMOVED:
            raise errors.ScheduleExists(f"{exists}: it is in {origin_text(found)}")
        definition, entry = checked(config, name, options)
        home = home_of(config, entry)
        result = self._runtime(home).define(name, definition, before=b"", who=checked_text(by), paused=paused)
        if result == "EXISTS":
            raise errors.ScheduleExists(f"{exists}: it was just created")
        if result == "FULL":
            raise errors.InvalidSchedule(
                f"Queue {repr_of(queue)} has {MAX_SCHEDULES} schedules, the most that it may have"
            )
        return self.get(name, queue=queue)

    @_named_once
    @recorded("change schedule", queue="queue", about="name", by="by")
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
            ScheduleInCode: it is in code or settings.
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
                _keep(found, changed=version_of(definition))
                return self.get(name, queue=queue)
        raise _changed_by_others(config, name)

    @recorded("pause schedule", queue="queue", about="name", by="by")
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

    @recorded("resume schedule", queue="queue", about="name")
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

    @recorded("skip tick", queue="queue", about="name", by="by", effect=_tick_effect)
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

    @recorded("unskip tick", queue="queue", about="name", effect=_tick_effect)
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

    @recorded("fire schedule", queue="queue", about="name", effect=lambda _, made: Effect(1, f"message {made}"))
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
        return fire_now(self._store(found), found)

    @recorded("override schedule", queue="queue", about="name", by="by")
    def override(
        self,
        name: str,
        *,
        queue: str = "default",
        cron: str | None = None,
        timezone: str | None = None,
        every: Duration | None = None,
        by: str = "",
        reason: str = "",
    ) -> ScheduleStatus:
        """Let a schedule in code or settings fire at other times until restore(), and return it.

        Its message, start and end stay. A tick of the earlier times that is due fires before.

        Args:
            name: its name.
            queue: its queue.
            cron: a cron expression.
            timezone: of `cron`, such as "Europe/Berlin"; None: the project's TIME_ZONE.
            every: instead of `cron`: a timedelta or a number of seconds, from 1.
            by: the user, for display.
            reason: why, for display.

        Raises:
            InvalidSchedule: no schedule can have these times, or it was created at run time.
            UnknownSchedule: the queue has no such schedule.
            ScheduleChanged: somebody else changes it all the time.
            MissingDependency: croniter is not installed, which `cron` needs.
            InvalidMessage, QueueFull: a tick is due, and cannot be published.
        """
        times, who = {"cron": cron, "timezone": timezone, "every": every}, checked_text(by)
        self._override(config_of(queue), name, lambda found: checked_override(found, times, reason), who=who)
        return self.get(name, queue=queue)

    @recorded("restore schedule", queue="queue", about="name")
    def restore(self, name: str, *, queue: str = "default") -> bool:
        """Let the times in code or settings count again from now on, and return whether they were overridden.

        Args:
            name: its name.
            queue: its queue.

        Raises:
            UnknownSchedule: the queue has no such schedule.
            ScheduleChanged: somebody else changes it all the time.
            InvalidMessage, QueueFull: a tick is due, and cannot be published.
        """
        return self._override(config_of(queue), name, lambda found: b"")

    @recorded("delete schedule", queue="queue", about="name")
    def delete(self, name: str, *, queue: str = "default") -> None:
        """Delete a schedule that was created at run time. It never fires again.

        Args:
            name: its name.
            queue: its queue.

        Raises:
            UnknownSchedule: the queue has no such schedule.
            ScheduleInCode: it is in code or settings.
        """
        config = config_of(queue)
        parts = config.each_part if is_named(name) else ()
        found = self._find(config, name)
        if not any([self._runtime(part).delete(name) for part in parts]):  # noqa: C419 - in each
            self._changeable(config, name)
            refuse_unknown(config, name)
        if found is not None and found.origin is Origin.RUNTIME:
            _keep(found)

    acreate = asynchronous(create)
    aupdate = asynchronous(update)
    apause = asynchronous(pause)
    aresume = asynchronous(resume)
    askip = asynchronous(skip)
    aunskip = asynchronous(unskip)
    afire = asynchronous(fire)
    aoverride = asynchronous(override)
    arestore = asynchronous(restore)
    adelete = asynchronous(delete)


#: The schedules of this project.
schedules = ScheduleCollection()
