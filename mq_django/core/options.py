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
from mq_django.core.rsmq import MAX_MAXSIZE, MAX_SECONDS, MIN_MAXSIZE, check_maxsize, check_seconds
from mq_django.errors import InvalidValue

URL_SCHEMES = ("redis://", "rediss://", "unix://")


def read_duration(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):  # not a number, or more than a timedelta holds
            return timedelta(seconds=value)
    raise TypeError("a timedelta or a number of seconds")


def read_positive_duration(value: Any) -> timedelta:
    duration = read_duration(value)
    if duration <= timedelta(0):
        raise TypeError("a timedelta or a number of seconds above zero")
    return duration


def read_optional_timeout(value: Any) -> timedelta | None:
    return None if value is None else read_positive_duration(value)


def read_result_ttl(value: Any) -> timedelta:
    duration = read_duration(value)
    if duration < timedelta(0):
        raise TypeError("a timedelta or a number of seconds, not below zero")
    return duration


def read_count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise TypeError("a whole number from 1")
    return value


def read_optional_count(value: Any) -> int | None:
    return None if value is None else read_count(value)


def read_size(value: Any) -> int:
    # Consumers refuse what is over a megabyte, so a larger limit would let messages in that nobody handles.
    if read_count(value) > 1024 * 1000:
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
    "max_attempts": read_optional_count,
    "delay": read_duration,
    "factor": _number,
    "max_delay": read_duration,
    "jitter": _number,
    "bury_on": _exceptions,
}


def _retry_argument(name: str, value: Any) -> Any:
    try:
        return RETRY_ARGUMENTS[name](value)
    except TypeError as error:
        raise TypeError(f"a RetryPolicy whose {name} is {error}") from error


def read_retry(value: Any) -> RetryPolicy:
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


def read_store(value: Any) -> str:
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


def read_rate_limit(value: Any) -> dict[str, Any]:
    return _of_queue_and_key(value, Rate.parse, 'a rate such as "10/s", "100/m" or "5/10s"')


def read_concurrency(value: Any) -> dict[str, Any]:
    return _of_queue_and_key(value, read_count, "a whole number from 1")


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
    "STORE": read_store,
    "VISIBILITY_TIMEOUT": read_positive_duration,
    "MAX_ATTEMPTS": read_count,
    "RETRY": read_retry,
    "TIMEOUT": read_optional_timeout,
    "MAX_SIZE": read_size,
    "MAX_DEPTH": read_optional_count,
    "RESULT_TTL": read_result_ttl,
    "RATE_LIMIT": read_rate_limit,
    "CONCURRENCY": read_concurrency,
}


def read_vt(value: Any) -> int:
    try:
        found = check_seconds("VT", value)
    except InvalidValue as error:
        raise TypeError(f"a whole number of seconds from 1 to {MAX_SECONDS}") from error
    # RSMQ allows 0, which hides nothing: two consumers would handle the same message at once.
    if found < 1:
        raise TypeError(f"a whole number of seconds from 1 to {MAX_SECONDS}")
    return found


def read_delay(value: Any) -> int:
    try:
        return check_seconds("DELAY", value)
    except InvalidValue as error:
        raise TypeError(f"a whole number of seconds from 0 to {MAX_SECONDS}") from error


def read_maxsize(value: Any) -> int:
    try:
        return check_maxsize(value)
    except InvalidValue as error:
        raise TypeError(f"a whole number from {MIN_MAXSIZE} to {MAX_MAXSIZE}, or -1") from error


def read_rsmq_namespace(value: Any) -> str:
    # Braces, because on a Redis Cluster the namespace carries the hash tag.
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9_.:{}-]{1,80}", value):
        raise TypeError("1 to 80 letters, digits, and any of _ . : - { }")
    return value


def read_switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("True or False")
    return value


RSMQ_OPTIONS = {
    "STORE": read_store,
    "NAMESPACE": read_rsmq_namespace,
    "VT": read_vt,
    "DELAY": read_delay,
    "MAXSIZE": read_maxsize,
    "REALTIME": read_switch,
    "MAX_ATTEMPTS": read_count,
    "RETRY": read_retry,
    "TIMEOUT": read_optional_timeout,
    "MAX_DEPTH": read_optional_count,
}


def read_share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise TypeError("a number above 0 and up to 1")
    return float(value)


TOPIC_OPTIONS = {
    "RETENTION": read_optional_timeout,
    "RETENTION_COUNT": read_optional_count,
    "RETENTION_BYTES": read_optional_count,
    "RETENTION_ALARM": read_share,
    "DUPLICATE_WINDOW": read_positive_duration,
    "VISIBILITY_TIMEOUT": read_positive_duration,
    "MAX_ATTEMPTS": read_count,
    "RETRY": read_retry,
    "TIMEOUT": read_optional_timeout,
    "MAX_SIZE": read_size,
}


def read_connection(value: Any) -> str:
    # One slash is a mistake, and what it leaves may be a password: an alias is told in full.
    is_url = isinstance(value, str) and (":/" in value or "@" in value)
    if not isinstance(value, str) or not value or (is_url and not value.startswith(URL_SCHEMES)):
        raise TypeError('a django-redis alias, a redis://, rediss:// or unix:// URL, or "embedded"')
    return value


def read_namespace(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9_.:-]{1,80}", value):
        raise TypeError("1 to 80 letters, digits, and any of _ . : -")
    return value


def read_directory(value: Any) -> Path:
    if not isinstance(value, str | Path):
        raise TypeError("a path")
    return Path(value)


def read_signals(value: Any) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, Mapping) for item in value):
        raise TypeError("a list of dicts")
    return tuple(MappingProxyType(dict(item)) for item in value)


OPTIONS = {
    "CONNECTION": read_connection,
    "NAMESPACE": read_namespace,
    "DIRECTORY": read_directory,
    "SIGNALS": read_signals,
}
