"""Schedules: cron expressions and equal intervals."""

import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache, cached_property, lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol, TypedDict
from zoneinfo import ZoneInfo

from mq_django.core.clock import Duration, aware, read_duration
from mq_django.core.jsontext import dumps, loads
from mq_django.core.message_format import Priority, moment, numbered
from mq_django.core.messages import NO_HEADERS
from mq_django.core.options import WrongParts, read_positive_duration
from mq_django.core.publication import Publication, publication
from mq_django.core.publish_checks import check_name, check_priority, check_text
from mq_django.core.queue_configs import DeliveryOptions
from mq_django.core.texts import repr_of
from mq_django.errors import (
    ConfigurationError,
    DecodeError,
    InvalidMessage,
    InvalidSchedule,
    MissingDependency,
    MQError,
)


@cache
def _croniter() -> Any | None:
    """Return the class of the optional package croniter: `pip install mq-django[schedules]`."""
    # Imported when first needed: it takes half a megabyte, and few processes need it.
    return import_module("croniter").croniter if find_spec("croniter") else None


_ALIASES = frozenset({"@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"})
_FIELD = re.compile(r"[0-9*/,\-#?A-Za-z]+", re.ASCII)
#: croniter's extensions that choose a random time, which would differ between processes.
_RANDOM = re.compile(r"(?<![A-Za-z])[HRhr](?![A-Za-z])")
#: More than any change of the local time, so that its effect on ticks is found within this distance.
_SHIFT = timedelta(hours=3)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


#: The attributes of a message with its tick, and with the name of its schedule.
TICK_HEADER, SCHEDULE_HEADER = "scheduledtime", "schedule"
#: Later than every tick, in ms since 1970.
NEVER = 2**63


class Schedule(Protocol):
    """Computes ticks."""

    def after(self, moment: datetime, local: tzinfo) -> datetime:
        """Return the first tick after a moment, as an aware datetime in UTC.

        Args:
            moment: an aware datetime.
            local: the time zone of a schedule that names none.
        """


@dataclass(frozen=True, kw_only=True)
class Scheduled:
    """A message that is published at every tick of a schedule."""

    #: The name of the schedule, unique in its queue.
    name: str
    queue: str
    #: The name of the message, and its data.
    message: str
    data: Any
    when: Schedule
    priority: int = 0
    #: The key of the message, such as `order:7`.
    key: str | None = None
    #: How long after its tick a message may be handled; None: for ever.
    expires: timedelta | None = None
    #: No tick is before the first or after the second, both aware; None: no limit.
    starts: datetime | None = None
    ends: datetime | None = None
    #: Where it is defined, for error messages.
    where: str = ""
    #: Of one that was created at run time: its definition in Redis. None: it is in code or settings.
    definition: bytes | None = None
    #: Of one in code or settings: what overrides its times, in Redis. Empty: nothing does.
    override: bytes = b""

    @property
    def guard(self) -> tuple[str, bytes]:
        """Return a field in Redis and its value without which no tick fires: the schedule was changed or deleted."""
        return ("override:", self.override) if self.definition is None else ("definition:", self.definition)

    @property
    def id(self) -> tuple[str, str]:
        """Return its queue and name, which no other schedule that fires has."""
        return self.queue, self.name

    @property
    def times(self) -> tuple[Schedule, datetime | None, datetime | None]:
        """Return what its ticks depend on."""
        return self.when, self.starts, self.ends

    def publication(self, destination: DeliveryOptions, tick_ms: int | None = None) -> Publication:
        """Return the publication of a tick, in ms since 1970, or without a tick of now.

        Raises:
            InvalidMessage: it cannot be published.
        """
        made = publication(
            destination,
            self.message,
            self.data,
            key=self.key,
            headers=NO_HEADERS if tick_ms is None else self._headers(tick_ms),
            priority=self.priority,
            expires=self.expires,
            published_ms=tick_ms,
        )
        # The destination may be a partition, which publishers and handlers do not know.
        return made._replace(message=made.message._replace(queue=destination.public_name))

    def _headers(self, tick_ms: int) -> dict[str, str]:
        # Other programs may have written a name that is not text.
        name = self.name.encode(errors="replace").decode()
        return {TICK_HEADER: moment(tick_ms), SCHEDULE_HEADER: name}

    def next_ms(self, after_ms: int, local: tzinfo, skipped: Container[int] = ()) -> int:
        """Return the first tick after a time that is not skipped, all in ms since 1970; NEVER if it has ended.

        `local` is the project's time zone.
        """
        tick_ms = self._next_ms(after_ms, local)
        while tick_ms in skipped:
            tick_ms = self._next_ms(tick_ms, local)
        return tick_ms

    def _next_ms(self, after_ms: int, local: tzinfo) -> int:
        after = datetime.fromtimestamp(after_ms / 1000, UTC)
        if self.starts is not None:
            after = max(after, self.starts - timedelta(milliseconds=1))
        tick = self.when.after(after, local)
        return NEVER if self.ends is not None and tick > self.ends else round(tick.timestamp() * 1000)

    def due_ms(self, first_ms: int, now_ms: int, local: tzinfo) -> Iterator[int]:
        """Yield the ticks up to now, the last one first. `first_ms` is the first tick, and is always yielded."""
        if self.ends is not None:
            now_ms = min(now_ms, int(self.ends.timestamp() * 1000))
        until_ms, back = now_ms, 1000
        # Searches back from now in growing steps: a schedule of every minute may have missed a year of ticks.
        while until_ms > first_ms:
            after_ms = max(first_ms, now_ms - back)
            yield from reversed(list(self._between(after_ms, until_ms, local)))
            until_ms, back = after_ms, back * 2
        yield first_ms

    def _between(self, after_ms: int, until_ms: int, local: tzinfo) -> Iterator[int]:
        tick_ms = self.next_ms(after_ms, local)
        while tick_ms <= until_ms:
            yield tick_ms
            tick_ms = self.next_ms(tick_ms, local)


@dataclass(frozen=True)
class Every:
    """Ticks at equal intervals since 1970-01-01 00:00 UTC: the same in all processes and after restarts."""

    period: timedelta

    def after(self, moment: datetime, local: tzinfo) -> datetime:
        """See Schedule.after()."""
        return _EPOCH + ((moment - _EPOCH) // self.period + 1) * self.period

    def __str__(self) -> str:
        return f"every {self.period}"


@dataclass(frozen=True)
class Cron:
    """Ticks whenever minute, hour, day, month and weekday of the local time match an expression.

    When clocks go forward, a tick in the skipped hour is late by the length of the change. When they go back, a tick at
    a fixed hour happens once, the first time; a tick of every hour happens in both.
    """

    expression: str
    zone: str | None = None

    @cached_property
    def _tz(self) -> tzinfo | None:
        return None if self.zone is None else ZoneInfo(self.zone)

    @cached_property
    def _hourly(self) -> bool:
        return self.expression == "@hourly" or self.expression.split()[1:2] in (["*"], ["*/1"])

    def after(self, moment: datetime, local: tzinfo) -> datetime:
        """See Schedule.after()."""
        zone = self._tz or local
        wall = moment.astimezone(zone).replace(tzinfo=None)
        best = datetime.max.replace(tzinfo=UTC)
        for shown in self._walls(wall if _is_steady(moment, zone) else wall - _SHIFT):
            ticks = list(self._ticks(shown, zone))
            best = min([best, *(tick for tick in ticks if tick > moment)])
            # Around a change of the clock, a later local time may be an earlier moment.
            if best < ticks[0] - _SHIFT or (best <= ticks[-1] and _is_steady(best, zone)):
                break
        return best

    def _walls(self, start: datetime) -> Iterator[datetime]:
        """Yield the local times that match, as if clocks were never changed."""
        walls = _croniter()(self.expression, start)  # type: ignore[misc]  # cron() has checked that it is installed
        while True:
            yield walls.get_next(datetime)

    def _ticks(self, wall: datetime, zone: tzinfo) -> Iterator[datetime]:
        """Yield the moments of a local time."""
        first = wall.replace(tzinfo=zone).astimezone(UTC)
        yield first
        second = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
        if self._hourly and second > first:
            yield second

    def __str__(self) -> str:
        return f"{self.expression} ({self.zone})" if self.zone else self.expression


def _is_steady(moment: datetime, zone: tzinfo) -> bool:
    """Return whether clocks are not changed around a moment."""
    before, after = ((moment + shift).astimezone(zone).utcoffset() for shift in (-_SHIFT, _SHIFT))
    return before == after


def cron(expression: str, *, timezone: str | None = None) -> Cron:
    """Make a schedule of a cron expression: minute, hour, day of the month, month, day of the week.

    Args:
        expression: five fields as in crontab(5), with names, ranges, lists, steps, `L` and `#`; or @hourly and so on.
        timezone: such as "Europe/Berlin"; None: the project's TIME_ZONE.

    Returns:
        A schedule for `task(schedule=...)` or the setting SCHEDULES, such as `cron("0 7 * * mon-fri")`.

    Raises:
        MissingDependency: croniter is not installed.
        ConfigurationError: `expression` is not a cron expression, it never matches, or the time zone does not exist.
    """
    croniter = _croniter()
    if croniter is None:
        raise MissingDependency('cron() needs croniter: pip install "mq-django[schedules]"')
    if not _is_cron(expression):
        raise ConfigurationError(
            f"{repr_of(expression)} is not a cron expression of five fields, such as '*/5 * * * *'"
        )
    if timezone is not None:
        check_time_zone(timezone)
    try:
        _check_cron(croniter, expression)
    except (ValueError, LookupError) as error:
        raise ConfigurationError(
            f"No day ever matches {repr_of(expression)}, or it is not a cron expression: {error}"
        ) from error
    return Cron(" ".join(expression.split()), timezone)


@lru_cache(maxsize=1000)
def _check_cron(croniter: Any, expression: str) -> None:
    """Raise ValueError or LookupError if an expression is not valid or never matches. Many schedules have the same."""
    croniter(expression, datetime(2001, 1, 1)).get_next(datetime)  # noqa: DTZ001 - local time


def check_time_zone(name: str) -> None:
    """Raise ConfigurationError if there is no such time zone."""
    try:
        ZoneInfo(name)
    except (ValueError, LookupError, TypeError, OSError) as error:
        raise ConfigurationError(f"{repr_of(name)} is not a time zone, such as 'Europe/Berlin'") from error


def _is_cron(expression: object) -> bool:
    fields = expression.split() if isinstance(expression, str) else []
    if len(fields) == 1:
        return fields[0] in _ALIASES
    return len(fields) == 5 and all(_FIELD.fullmatch(part) and not _RANDOM.search(part) for part in fields)


def every(period: Duration | None = None, /, **parts: float) -> Every:
    """Make a schedule of equal intervals, such as `every(minutes=10)`.

    Args:
        period: a timedelta or a number of seconds, a second or more.
        parts: instead of `period`: the arguments of a timedelta.

    Returns:
        A schedule for `task(schedule=...)` or the setting SCHEDULES.

    Raises:
        ConfigurationError: it is shorter than a second, or `parts` are not the arguments of a timedelta.
    """
    try:
        if period is not None and parts:
            raise TypeError("not both")  # noqa: TRY301
        length = timedelta(**parts) if period is None else read_duration(period)
        if length >= timedelta(seconds=1):
            return Every(length)
    except (TypeError, ValueError, OverflowError) as error:
        words = "a timedelta, a number of seconds, or the arguments of a timedelta, such as minutes=10"
        raise ConfigurationError(f"every() takes {words}: {error}") from error
    raise ConfigurationError(f"every() takes a second or more, not {length}")


# Read the options of schedules, from the settings and from definitions that were made at run time.


class ScheduleOptions(TypedDict, total=False):
    """The options of a schedule: `cron` or `every`, and `message` or `task`. None is the same as no option."""

    #: A cron expression, and its time zone, such as "Europe/Berlin"; default: the project's TIME_ZONE.
    cron: str | None
    timezone: str | None
    #: A timedelta or seconds, from 1.
    every: Duration | None
    #: The name of the message, and its data.
    message: str | None
    data: Any
    #: The path of a task, and its arguments.
    task: str | None
    args: Sequence[Any] | None
    kwargs: Mapping[str, Any] | None
    #: As in `Queue.publish`.
    priority: Priority | None
    key: str | None
    #: How long after its tick a message may be handled: a timedelta or seconds.
    expires: Duration | None
    #: No tick is before the first or after the second: datetimes, or text in ISO format.
    starts: datetime | str | None
    ends: datetime | str | None


#: Option of a schedule in the settings -> its types.
SCHEDULE_OPTIONS: dict[str, tuple[type, ...]] = {
    "cron": (str,),
    "timezone": (str,),
    "every": (timedelta, int, float),
    "queue": (str,),
    "message": (str,),
    "data": (object,),
    "task": (str,),
    "args": (list, tuple),
    "kwargs": (Mapping,),
    "priority": (int, str),
    "key": (str,),
    "expires": (timedelta, int, float),
    "starts": (datetime, str),
    "ends": (datetime, str),
}
#: Option -> the one that it belongs to.
_BELONGS = {"timezone": "cron", "data": "message", "args": "task", "kwargs": "task"}
#: Option -> those that it replaces when a schedule is changed.
_REPLACES = {
    "cron": ("every",),
    "every": ("cron", "timezone"),
    "message": ("task", "args", "kwargs"),
    "task": ("message", "data"),
}


def read_schedule(name: object, entry: object, *, where: str) -> Scheduled:
    """Return a schedule of the settings.

    Raises:
        WrongParts: with all that is wrong.
        MissingDependency: croniter is not installed.
    """
    try:
        return _scheduled(check_schedule_name(name), entry, where=where)
    except (InvalidMessage, InvalidSchedule) as error:
        raise WrongParts([("", f": {error}")]) from error


def read_definition(queue: str, name: str, definition: bytes) -> Scheduled:
    """Return the schedule of a definition in Redis, which others may have written.

    Raises:
        TypeError, MQError: it is not the definition of a schedule.
    """
    options = loads(definition)
    if not isinstance(options, Mapping) or "queue" in options:
        raise DecodeError("not a JSON object of options")
    where = f"schedule {repr_of(name)} of queue {repr_of(queue)}, created at run time"
    return _scheduled(check_schedule_name(name), {**options, "queue": queue}, where=where, definition=definition)


def definition_of(options: Mapping[str, Any]) -> bytes:
    """Return the definition of a schedule with these options, as JSON text.

    Raises:
        TypeError: an option has another type.
        InvalidMessage: a value cannot be encoded as JSON.
    """
    written = {option: value for option, value in options.items() if value is not None}
    for option in ("every", "expires"):
        if option in written:
            seconds = _duration(option, written[option]).total_seconds()
            written[option] = int(seconds) if seconds.is_integer() else seconds
    if "priority" in written:
        written["priority"] = numbered(written["priority"])
    for option in ("starts", "ends"):
        if option in written:
            written[option] = read_moment(option, written[option]).isoformat()
    return dumps(written)


def changed_options(options: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with changes. An option that excludes an earlier one replaces it."""
    replaced = {other for option in changes if changes[option] is not None for other in _REPLACES.get(option, ())}
    return {**{option: value for option, value in options.items() if option not in replaced}, **changes}


def _duration(option: str, value: object, read: Callable[[object], timedelta] = read_duration) -> timedelta:
    try:
        return read(value)
    except TypeError as error:
        raise TypeError(f"{repr_of(option)} must be {error}, not {repr_of(value, 80)}") from error


def check_schedule_name(name: object) -> str:
    """Return a valid name of a schedule, else raise InvalidSchedule."""
    try:
        return check_text("A schedule's name", name)
    except InvalidMessage as error:
        raise InvalidSchedule(str(error)) from error


def _scheduled(name: str, entry: Any, *, where: str, definition: bytes | None = None) -> Scheduled:
    _check_options(entry)
    as_task = {"args": list(entry.get("args", ())), "kwargs": dict(entry.get("kwargs", {}))}
    starts, ends = (read_moment(option, entry[option]) if option in entry else None for option in ("starts", "ends"))
    if starts is not None and ends is not None and ends < starts:
        raise WrongParts([("ends", " must not be before 'starts'")])
    return Scheduled(
        name=name,
        queue=entry.get("queue", "default"),
        message=check_name(entry.get("message", entry.get("task"))),
        data=as_task if "task" in entry else entry.get("data"),
        when=_when(entry),
        priority=check_priority(entry.get("priority", 0)),
        key=entry.get("key"),
        expires=_lifetime(entry["expires"]) if "expires" in entry else None,
        starts=starts,
        ends=ends,
        where=where,
        definition=definition,
    )


def _when(entry: Mapping[str, Any]) -> Schedule:
    if "cron" in entry:
        return cron(entry["cron"], timezone=entry.get("timezone"))
    return every(_duration("every", entry["every"]))


#: The options that an override of a schedule in code or settings replaces.
TIMES = ("cron", "timezone", "every")


def override_of(times: Mapping[str, Any], *, code: Schedule, reason: str) -> bytes:
    """Return the text in Redis that overrides the times of a schedule in code or settings.

    Args:
        times: the options TIMES; None is no option.
        code: the times in code or settings.
        reason: why, for display.

    Raises:
        TypeError, ConfigurationError: no schedule can have these times.
        MissingDependency: croniter is not installed.
    """
    given = {option: value for option, value in times.items() if value is not None}
    _check_options(given, of=("cron", "every"))
    return dumps({**loads(definition_of(given)), "code": str(code), "reason": reason})


def overridden(entry: Scheduled, override: bytes) -> Scheduled:
    """Return a schedule with the times of an override in Redis, which others may have written.

    Raises:
        TypeError, MQError: it is not an override.
    """
    found = loads(override)
    if not isinstance(found, Mapping):
        raise DecodeError("not a JSON object of options")
    times = {option: found[option] for option in TIMES if option in found}
    _check_options(times, of=("cron", "every"))
    return replace(entry, when=_when(times), override=override)


def _check_options(entry: Any, *, of: tuple[str, str] | None = None) -> None:
    """Raise WrongParts with all that is wrong. `of`: only one of these two options is needed."""
    if not isinstance(entry, Mapping):
        raise WrongParts([("", f" must be a dict of options, not {repr_of(entry, 80)}")])
    wrong = [(option, text) for option, value in entry.items() if (text := _mistake(option, value))]
    for one, other in (("cron", "every"), ("message", "task")) if of is None else (of,):
        if (one in entry) == (other in entry):
            wrong.append(("", f' must have either "{one}" or "{other}"' + (", not both" if one in entry else "")))
    wrong += [
        (option, f" needs {other!r}") for option, other in _BELONGS.items() if option in entry and other not in entry
    ]
    if wrong:
        raise WrongParts(wrong)


#: The text after the name of an unknown option.
NO_OPTION = f" is not an option; options are {', '.join(SCHEDULE_OPTIONS)}"


def _mistake(option: Any, value: Any) -> str:
    """Return what is wrong with an option, as the text that follows its name; "" if nothing is."""
    kinds = SCHEDULE_OPTIONS.get(option)
    if kinds is None:
        return NO_OPTION
    if kinds != (object,) and (isinstance(value, bool) or not isinstance(value, kinds)):
        words = "a timedelta or a number of seconds" if timedelta in kinds else " or ".join(k.__name__ for k in kinds)
        return f" must be {words}, not {repr_of(value, 80)}"
    try:
        if option in _CHECKS:
            _CHECKS[option](value)
    except MissingDependency:
        raise
    except MQError as error:
        return f": {error}"
    except TypeError as error:
        text, named = str(error), repr(option)
        return text.removeprefix(named) if text.startswith(named) else f" must be {text}, not {repr_of(value, 80)}"
    return ""


def _period(value: Any) -> None:
    if read_duration(value) < timedelta(seconds=1):
        raise TypeError("a second or more")


def _lifetime(value: Any) -> timedelta:
    duration = _duration("expires", value, read_positive_duration)
    # The expiry must be a valid date.
    if duration > timedelta(days=36600):
        raise TypeError("at most 36600 days")
    return duration


def read_moment(option: str, value: object) -> datetime:
    """Return a time in UTC, given as a datetime or as text in ISO format.

    Raises:
        TypeError: it is no time from 1970 on.
    """
    with suppress(ValueError, OverflowError):
        given = datetime.fromisoformat(value) if isinstance(value, str) else value
        if isinstance(given, datetime) and (moment := aware(given)).year >= 1970:
            return moment
    raise TypeError(
        f"{repr_of(option)} must be a time from 1970 on, such as '2026-11-01T06:00+01:00', not {repr_of(value, 80)}"
    )


#: Option -> raises what is wrong with a value of the right type.
_CHECKS: dict[str, Callable[[Any], object]] = {
    "cron": cron,
    "timezone": check_time_zone,
    "every": _period,
    "message": check_name,
    "task": check_name,
    "priority": check_priority,
    "expires": _lifetime,
    "starts": partial(read_moment, "starts"),
    "ends": partial(read_moment, "ends"),
}
