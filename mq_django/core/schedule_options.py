"""Read the options of schedules: those of the settings, and those of definitions that were made at run time."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypedDict

from mq_django.core.exceptions import repr_of
from mq_django.core.jsontext import dumps, loads
from mq_django.core.options import WrongParts, read_positive_duration
from mq_django.core.publish_checks import check_name, check_priority, check_text
from mq_django.core.schedules import Schedule, Scheduled, check_time_zone, cron, every
from mq_django.core.times import Duration, aware, read_duration
from mq_django.errors import DecodeError, InvalidMessage, InvalidSchedule, MissingDependency, MQError


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
    priority: int | None
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
    "priority": (int,),
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
    if "cron" in entry:
        when: Schedule = cron(entry["cron"], timezone=entry.get("timezone"))
    else:
        when = every(_duration("every", entry["every"]))
    as_task = {"args": list(entry.get("args", ())), "kwargs": dict(entry.get("kwargs", {}))}
    starts, ends = (read_moment(option, entry[option]) if option in entry else None for option in ("starts", "ends"))
    if starts is not None and ends is not None and ends < starts:
        raise WrongParts([("ends", " must not be before 'starts'")])
    return Scheduled(
        name=name,
        queue=entry.get("queue", "default"),
        message=check_name(entry.get("message", entry.get("task"))),
        data=as_task if "task" in entry else entry.get("data"),
        when=when,
        priority=check_priority(entry.get("priority", 0)),
        key=entry.get("key"),
        expires=_lifetime(entry["expires"]) if "expires" in entry else None,
        starts=starts,
        ends=ends,
        where=where,
        definition=definition,
    )


def _check_options(entry: Any) -> None:
    """Raise WrongParts with all that is wrong."""
    if not isinstance(entry, Mapping):
        raise WrongParts([("", f" must be a dict of options, not {repr_of(entry, 80)}")])
    wrong = [(option, text) for option, value in entry.items() if (text := _mistake(option, value))]
    for one, other in (("cron", "every"), ("message", "task")):
        if (one in entry) == (other in entry):
            wrong.append(("", f' must have either "{one}" or "{other}"' + (", not both" if one in entry else "")))
    wrong += [
        (option, f" needs {other!r}") for option, other in _BELONGS.items() if option in entry and other not in entry
    ]
    if wrong:
        raise WrongParts(wrong)


def _mistake(option: Any, value: Any) -> str:
    """Return what is wrong with an option, as the text that follows its name; "" if nothing is."""
    kinds = SCHEDULE_OPTIONS.get(option)
    if kinds is None:
        return f" is not an option; options are {', '.join(SCHEDULE_OPTIONS)}"
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
        if isinstance(given, datetime) and (moment := aware(given).astimezone(UTC)).year >= 1970:
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
