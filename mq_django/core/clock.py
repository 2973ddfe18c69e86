"""The wall clock of this process. All times that are compared with times of messages come from here.

Durations are measured with `time.monotonic()`. What is compared with the times of files is the machine's own clock.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo

#: Nanoseconds that are added to the time of this machine. Only tests move it.
_shift = 0


def now() -> float:
    """Return the time in seconds since 1970."""
    return (time.time_ns() + _shift) / 1_000_000_000


def now_ms() -> int:
    """Return the time in whole milliseconds since 1970."""
    return (time.time_ns() + _shift) // 1_000_000


def now_us() -> int:
    """Return the time in whole microseconds since 1970."""
    return (time.time_ns() + _shift) // 1000


def set_shift(seconds: float) -> None:
    """Let this clock differ from that of the machine. It is for tests.

    Args:
        seconds: how far it is ahead; a negative number: behind. 0: it does not differ.
    """
    global _shift  # noqa: PLW0603 - a test sets it, and every reading of the clock needs it
    _shift = round(seconds * 1_000_000_000)


# Times as callers give them: a moment is a datetime, a duration is a timedelta or seconds.

#: What is accepted wherever a duration is given. A number counts seconds.
Duration = timedelta | float

#: The longest delay: longer than that is a mistake in the unit.
MAX_DELAY = timedelta(days=3660)


def _utc() -> tzinfo:
    return UTC


_current_time_zone: Callable[[], tzinfo] = _utc
_uses_time_zones: Callable[[], bool] = bool


def use_time_zone(current: Callable[[], tzinfo], uses: Callable[[], bool]) -> None:
    """Set what returns the current time zone, and `USE_TZ`. `conf` sets Django's: this layer does not know it."""
    global _current_time_zone, _uses_time_zones
    _current_time_zone, _uses_time_zones = current, uses


def aware(moment: datetime) -> datetime:
    """Return a datetime in UTC. Without a time zone it is in Django's current one. It is for what a user types.

    Raises:
        OverflowError: in UTC, it is not in the years 1 to 9999.
    """
    return (moment.replace(tzinfo=_current_time_zone()) if moment.utcoffset() is None else moment).astimezone(UTC)


def check_aware(moment: object) -> datetime:
    """Return a datetime that code has passed, in UTC.

    A naive one is refused, as Django refuses that of `run_after`: it may be in any time zone. In a project without
    `USE_TZ`, where all are naive, it is in that of the project.

    Raises:
        TypeError: it is not such a datetime; the text goes on after "must be".
    """
    if not isinstance(moment, datetime):
        raise TypeError("a datetime")
    if moment.utcoffset() is None and _uses_time_zones():
        raise TypeError("an aware datetime: django.utils.timezone.make_aware() adds a time zone")
    try:
        return aware(moment)
    except OverflowError as error:
        raise TypeError("a datetime in the years 1 to 9999 of UTC") from error


def read_duration(value: object) -> timedelta:
    """Return a duration as a timedelta.

    Raises:
        TypeError: it is not a duration; the text goes on after "must be".
    """
    if isinstance(value, timedelta):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):  # not a number, or more than a timedelta holds
            return timedelta(seconds=value)
    raise TypeError("a timedelta or a number of seconds")
