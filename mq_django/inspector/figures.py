"""Numbers, durations and times as words, in the current language and time zone."""

from datetime import UTC, datetime, timedelta
from math import inf

from django.utils.formats import number_format
from django.utils.translation import gettext as _

from mq_django.conf import current_time_zone

# Milliseconds of each unit, and the number from which the next unit is used.
_UNITS = (("s", 1000, 120), ("min", 60_000, 120), ("h", 3_600_000, 72), ("d", 86_400_000, inf))


def number(value: float) -> str:
    """Return a number with separators, rounded."""
    # Django truncates decimals: 9.9 would become 9.
    return str(number_format(round(value), use_l10n=True, force_grouping=True))


def duration(ms: int) -> str:
    """Return a measured duration, rounded down to one unit."""
    unit, count = next((unit, ms // part) for unit, part, enough in _UNITS if ms // part < enough)
    return _in_unit(unit, number(count))


def period(value: timedelta) -> str:
    """Return a configured duration exactly, in the largest unit of which it is a multiple."""
    ms = round(value.total_seconds() * 1000)
    unit, part = next(((unit, part) for unit, part, _ in reversed(_UNITS) if ms and not ms % part), ("s", 1000))
    return _in_unit(unit, number(ms // part) if not ms % part else str(number_format(ms / 1000, force_grouping=True)))


def _in_unit(unit: str, count: str) -> str:
    words = {"s": _("%(count)s s"), "min": _("%(count)s min"), "h": _("%(count)s h"), "d": _("%(count)s d")}
    return words[unit] % {"count": count}


def date(ms: int) -> str:
    """Return a time as date and time in the current time zone."""
    when = local(ms)
    return str(ms) if when is None else when.isoformat(sep=" ", timespec="minutes")


def local(ms: int) -> datetime | None:
    """Return a time in the current time zone, or None if it has no valid date there."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).astimezone(current_time_zone())
    except (ValueError, OverflowError, OSError):
        return None
