"""What reads the value of each setting: a reader raises TypeError with the words for "must be ..."."""

import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

from mq_django.core.limits import Limits, Rate
from mq_django.core.retries import RetryPolicy
from mq_django.core.rsmq_format import MAX_MAXSIZE, MAX_SECONDS, MIN_MAXSIZE, check_maxsize, check_seconds
from mq_django.core.schedules import Schedule, Scheduled, cron, every
from mq_django.core.wire import check_name
from mq_django.errors import InvalidValue, MQError

URL_SCHEMES = ("redis://", "rediss://", "unix://")


def _duration(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):  # not a number, or more than a timedelta holds
            return timedelta(seconds=value)
    raise TypeError("a timedelta or a number of seconds")


def _positive_duration(value: Any) -> timedelta:
    duration = _duration(value)
    if duration <= timedelta(0):
        raise TypeError("a timedelta or a number of seconds above zero")
    return duration


def _lifetime(value: Any) -> timedelta:
    duration = _positive_duration(value)
    # Its end has to be a date.
    if duration > timedelta(days=36600):
        raise TypeError("'expires' must be at most 36600 days")
    return duration


def _optional_timeout(value: Any) -> timedelta | None:
    return None if value is None else _positive_duration(value)


def _result_ttl(value: Any) -> timedelta:
    duration = _duration(value)
    if duration < timedelta(0):
        raise TypeError("a timedelta or a number of seconds, not below zero")
    return duration


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise TypeError("a whole number from 1")
    return value


def _optional_count(value: Any) -> int | None:
    return None if value is None else _count(value)


def _size(value: Any) -> int:
    # Consumers refuse what is over a megabyte, so a larger limit would let messages in that nobody handles.
    if _count(value) > 1024 * 1000:
        raise TypeError("a number of bytes from 1 to 1,024,000")
    return int(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise TypeError("a number")
    return value


def _exceptions(value: Any) -> tuple[type[Exception], ...]:
    if isinstance(value, list | tuple) and all(
        isinstance(item, type) and issubclass(item, Exception) for item in value
    ):
        return tuple(value)
    raise TypeError("a list of exception classes")


RETRY_ARGUMENTS = {
    "max_attempts": _optional_count,
    "delay": _duration,
    "factor": _number,
    "max_delay": _duration,
    "jitter": _number,
    "bury_on": _exceptions,
}


def _retry_argument(name: str, value: Any) -> Any:
    try:
        return RETRY_ARGUMENTS[name](value)
    except TypeError as error:
        raise TypeError(f"a RetryPolicy whose {name} is {error}") from error


def _retry(value: Any) -> RetryPolicy:
    if isinstance(value, RetryPolicy):
        return value
    if not isinstance(value, Mapping):
        raise TypeError("a RetryPolicy, or a dict of its arguments")
    unknown = [key for key in value if key not in RETRY_ARGUMENTS]
    if unknown:
        raise TypeError(f"a dict of {', '.join(RETRY_ARGUMENTS)} (it has {unknown[0]!r})")
    arguments = {name: _retry_argument(name, item) for name, item in value.items()}
    try:
        return RetryPolicy(**arguments)
    except ValueError as error:
        raise TypeError(f"a RetryPolicy that can work ({error})") from error


def _store(value: Any) -> str:
    if value not in ("stream", "rsmq"):
        raise TypeError('"stream" or "rsmq"')
    return str(value)


def _of_queue_and_key(value: Any, read: Callable[[Any], Any], words: str) -> dict[str, Any]:
    """Read a limit of the queue, or a dict of one of the queue and one of each key."""
    parts = value if isinstance(value, Mapping) else {"queue": value}
    if not parts or set(parts) - {"queue", "key"}:
        raise TypeError(f'{words}, or a dict of "queue" and "key"')
    try:
        return {name: None if part is None else read(part) for name, part in parts.items()}
    except (TypeError, ValueError) as error:
        raise TypeError(f'{words}, or a dict of "queue" and "key"') from error


def _rate_limit(value: Any) -> dict[str, Any]:
    return _of_queue_and_key(value, Rate.parse, 'a rate such as "10/s", "100/m" or "5/10s"')


def _concurrency(value: Any) -> dict[str, Any]:
    return _of_queue_and_key(value, _count, "a whole number from 1")


def limits(options: dict[str, Any]) -> dict[str, Any]:
    """Return a queue's options with its limits as one value."""
    rates, at_once = options.pop("rate_limit", {}), options.pop("concurrency", {})
    found = Limits(
        rate=rates.get("queue"),
        key_rate=rates.get("key"),
        concurrency=at_once.get("queue"),
        key_concurrency=at_once.get("key"),
    )
    return {**options, "limits": found}


#: Option -> what reads its value.
QUEUE_OPTIONS = {
    "STORE": _store,
    "VISIBILITY_TIMEOUT": _positive_duration,
    "MAX_ATTEMPTS": _count,
    "RETRY": _retry,
    "TIMEOUT": _optional_timeout,
    "MAX_SIZE": _size,
    "MAX_DEPTH": _optional_count,
    "RESULT_TTL": _result_ttl,
    "RATE_LIMIT": _rate_limit,
    "CONCURRENCY": _concurrency,
}


def _from_one(value: Any) -> int:
    try:
        found = check_seconds("VT", value)
    except InvalidValue as error:
        raise TypeError(f"a whole number of seconds from 1 to {MAX_SECONDS}") from error
    # RSMQ allows 0, which hides nothing: two consumers would handle the same message at once.
    if found < 1:
        raise TypeError(f"a whole number of seconds from 1 to {MAX_SECONDS}")
    return found


def _delay(value: Any) -> int:
    try:
        return check_seconds("DELAY", value)
    except InvalidValue as error:
        raise TypeError(f"a whole number of seconds from 0 to {MAX_SECONDS}") from error


def _maxsize(value: Any) -> int:
    try:
        return check_maxsize(value)
    except InvalidValue as error:
        raise TypeError(f"a whole number from {MIN_MAXSIZE} to {MAX_MAXSIZE}, or -1") from error


def _rsmq_namespace(value: Any) -> str:
    # Braces, because on a Redis Cluster the namespace carries the hash tag.
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9_.:{}-]{1,80}", value):
        raise TypeError("1 to 80 letters, digits, and any of _ . : - { }")
    return value


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("True or False")
    return value


RSMQ_OPTIONS = {
    "STORE": _store,
    "NAMESPACE": _rsmq_namespace,
    "VT": _from_one,
    "DELAY": _delay,
    "MAXSIZE": _maxsize,
    "REALTIME": _switch,
    "MAX_ATTEMPTS": _count,
    "RETRY": _retry,
    "TIMEOUT": _optional_timeout,
    "MAX_DEPTH": _optional_count,
}


def _share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise TypeError("a number above 0 and up to 1")
    return float(value)


TOPIC_OPTIONS = {
    "RETENTION": _optional_timeout,
    "RETENTION_COUNT": _optional_count,
    "RETENTION_BYTES": _optional_count,
    "RETENTION_ALARM": _share,
    "DUPLICATE_WINDOW": _positive_duration,
    "VISIBILITY_TIMEOUT": _positive_duration,
    "MAX_ATTEMPTS": _count,
    "RETRY": _retry,
    "TIMEOUT": _optional_timeout,
    "MAX_SIZE": _size,
}


def _connection(value: Any) -> str:
    # One slash is a mistake, and what it leaves may be a password: an alias is told in full.
    is_url = isinstance(value, str) and (":/" in value or "@" in value)
    if not isinstance(value, str) or not value or (is_url and not value.startswith(URL_SCHEMES)):
        raise TypeError('a django-redis alias, a redis://, rediss:// or unix:// URL, or "embedded"')
    return value


def _namespace(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9_.:-]{1,80}", value):
        raise TypeError("1 to 80 letters, digits, and any of _ . : -")
    return value


def _directory(value: Any) -> Path:
    if not isinstance(value, str | Path):
        raise TypeError("a path")
    return Path(value)


def _signals(value: Any) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, Mapping) for item in value):
        raise TypeError("a list of dicts")
    return tuple(MappingProxyType(dict(item)) for item in value)


#: Option of a schedule -> the type it must have.
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


def _schedules(value: Any) -> Mapping[str, Scheduled]:
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
            raise TypeError(f"{option!r} is no option; there are {', '.join(SCHEDULE_OPTIONS)}")
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise TypeError(f"{option!r} must be {' or '.join(kind.__name__ for kind in kinds)}, not {value!r:.80}")
    if ("cron" in entry) == ("every" in entry) or ("message" in entry) == ("task" in entry):
        raise TypeError('give "cron" or "every", and "message" or "task"')
    if "cron" in entry:
        when: Schedule = cron(entry["cron"], timezone=entry.get("timezone"))
    else:
        when = every(_duration(entry["every"]))
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


OPTIONS = {
    "CONNECTION": _connection,
    "NAMESPACE": _namespace,
    "DIRECTORY": _directory,
    "SIGNALS": _signals,
    "SCHEDULES": _schedules,
}
