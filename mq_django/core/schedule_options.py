"""Read the schedules in the settings."""

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from mq_django.core.options import read_positive_duration
from mq_django.core.publish_checks import check_name
from mq_django.core.schedules import Schedule, Scheduled, cron, every
from mq_django.core.times import read_duration
from mq_django.errors import MQError

#: Option of a schedule -> its types.
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
}


def read_schedules(value: Any) -> Mapping[str, Scheduled]:
    """Return the schedules of a setting by name.

    Raises:
        TypeError: with the words that follow "must be".
    """
    if not isinstance(value, Mapping):
        raise TypeError("a dict of name: schedule")
    found = {}
    for name, entry in value.items():
        try:
            found[name] = _scheduled(check_name(name), entry)
        except (TypeError, MQError) as error:
            raise TypeError(f"a dict of name: schedule; in {name!r:.80}, {error}") from error
    return MappingProxyType(found)


def _scheduled(name: str, entry: Any) -> Scheduled:
    if not isinstance(entry, Mapping):
        raise TypeError("write a dict of options")
    for option, value in entry.items():
        kinds = SCHEDULE_OPTIONS.get(option)
        if kinds is None:
            raise TypeError(f"{option!r} is not an option; options are {', '.join(SCHEDULE_OPTIONS)}")
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise TypeError(f"{option!r} must be {' or '.join(kind.__name__ for kind in kinds)}, not {value!r:.80}")
    if ("cron" in entry) == ("every" in entry) or ("message" in entry) == ("task" in entry):
        raise TypeError('give "cron" or "every", and "message" or "task"')
    if "cron" in entry:
        when: Schedule = cron(entry["cron"], timezone=entry.get("timezone"))
    else:
        when = every(read_duration(entry["every"]))
    as_task = {"args": list(entry.get("args", ())), "kwargs": dict(entry.get("kwargs", {}))}
    return Scheduled(
        name=name,
        queue=entry.get("queue", "default"),
        message=check_name(entry.get("message", entry.get("task"))),
        data=as_task if "task" in entry else entry.get("data"),
        when=when,
        priority=max(-100, min(100, entry.get("priority", 0))),
        key=entry.get("key"),
        expires=_lifetime(entry["expires"]) if "expires" in entry else None,
        where=f'MQ_DJANGO["SCHEDULES"][{name!r}]',
    )


def _lifetime(value: Any) -> timedelta:
    duration = read_positive_duration(value)
    # The expiry must be a valid date.
    if duration > timedelta(days=36600):
        raise TypeError("'expires' must be at most 36600 days")
    return duration
