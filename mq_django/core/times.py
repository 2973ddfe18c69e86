"""Times as callers give them: a moment is a datetime, a duration is a timedelta or seconds."""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo

#: What is accepted wherever a duration is given. A number counts seconds.
Duration = timedelta | float

#: The longest delay: longer than that is a mistake in the unit.
MAX_DELAY = timedelta(days=3660)


def _utc() -> tzinfo:
    return UTC


_current_time_zone: Callable[[], tzinfo] = _utc


def use_time_zone(current: Callable[[], tzinfo]) -> None:
    """Set what returns the time zone of datetimes that have none. `conf` sets Django's: this layer does not know it."""
    global _current_time_zone  # noqa: PLW0603 - set once, when Django's settings are loaded
    _current_time_zone = current


def aware(moment: datetime) -> datetime:
    """Return a datetime with a time zone: Django's current one where it has none."""
    return moment.replace(tzinfo=_current_time_zone()) if moment.utcoffset() is None else moment


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
