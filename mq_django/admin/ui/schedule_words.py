"""The times of a schedule in words, in the current language."""

import re
from collections.abc import Sequence
from datetime import timedelta

from django.utils.dates import WEEKDAYS
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.admin.ui import text
from mq_django.core.schedules import Cron, Every, Schedule

_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
}
#: Days as cron names them, from Monday as Django counts them.
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
#: The most times and days that are listed: more is easier to read as an expression.
_MOST = 4


def words(schedule: Schedule) -> str:
    """Return the times of a schedule in words; empty if there are no better ones than its expression."""
    if isinstance(schedule, Every):
        return _every(schedule.period)
    if not isinstance(schedule, Cron):
        return ""
    said = _cron(_ALIASES.get(schedule.expression, schedule.expression).lower().split())
    if said and schedule.zone is not None:
        return _("%(times)s, %(zone)s") % {"times": said, "zone": schedule.zone}
    return said


def _every(period: timedelta) -> str:
    seconds = period.total_seconds()
    if seconds % 86400 == 0:
        return ngettext("every day", "every %(count)s days", count := int(seconds // 86400)) % {"count": count}
    if seconds % 3600 == 0:
        return ngettext("every hour", "every %(count)s hours", count := int(seconds // 3600)) % {"count": count}
    if seconds % 60 == 0:
        return ngettext("every minute", "every %(count)s minutes", count := int(seconds // 60)) % {"count": count}
    return _("every %(time)s") % {"time": text.period(period)}


def _cron(fields: Sequence[str]) -> str:
    if len(fields) != 5:
        return ""
    minute, hour, day, month, weekday = fields
    if month != "*":
        return ""
    if (day, weekday) == ("*", "*") and (said := _within_a_day(minute, hour)):
        return said
    times = _times(minute, hour)
    return _on_days(day, weekday, times) if times else ""


def _within_a_day(minute: str, hour: str) -> str:
    """Return what happens several times on each day."""
    step = _step(minute, 60)
    if hour == "*" and step:
        return _every(timedelta(minutes=step))
    hours = _step(hour, 24)
    if not hours or not _is_number(minute, 60):
        return ""
    at = ngettext("every hour at minute %(minute)s", "every %(count)s hours at minute %(minute)s", hours)
    return _every(timedelta(hours=hours)) if int(minute) == 0 else at % {"count": hours, "minute": int(minute)}


def _on_days(day: str, weekday: str, times: str) -> str:
    at = {"times": times}
    if day != "*":
        if weekday != "*":
            return ""
        if day == "l":
            return _("on the last day of each month at %(times)s") % at
        is_day = _is_number(day, 32) and int(day)
        return _("on day %(day)s of each month at %(times)s") % {"day": int(day), **at} if is_day else ""
    if weekday == "*":
        return _("every day at %(times)s") % at
    days = _weekdays(weekday)
    if days == [0, 1, 2, 3, 4]:
        return _("at %(times)s on weekdays") % at
    if days == [5, 6]:
        return _("at %(times)s on Saturday and Sunday") % at
    if not days or len(days) > _MOST:
        return ""
    return _("every %(days)s at %(times)s") % {"days": ", ".join(str(WEEKDAYS[each]) for each in days), **at}


def _step(field: str, of: int) -> int:
    """Return the step of a field that matches at equal distances, else 0."""
    if field == "*":
        return 1
    found = re.fullmatch(r"\*/(\d{1,2})", field, re.ASCII)
    step = int(found[1]) if found else 0
    return step if step and of % step == 0 else 0


def _is_number(field: str, below: int) -> bool:
    return field.isascii() and field.isdecimal() and len(field) < 3 and int(field) < below


def _times(minute: str, hour: str) -> str:
    """Return the times of a day; empty if there are too many."""
    parts = hour.split(",")
    if not _is_number(minute, 60) or len(parts) > _MOST or not all(_is_number(part, 24) for part in parts):
        return ""
    return ", ".join(f"{each:02}:{int(minute):02}" for each in sorted({int(part) for part in parts}))


def _weekdays(field: str) -> list[int]:
    """Return the days of a field as Django counts them; none if it has anything else."""
    found = set[int]()
    for part in field.split(","):
        first, dash, last = part.partition("-")
        ends = [_weekday(first), _weekday(last) if dash else _weekday(first)]
        if -1 in ends or ends[1] < ends[0]:
            return []
        found |= {*range(ends[0], ends[1] + 1)}
    return sorted(found)


def _weekday(name: str) -> int:
    """Return a day as Django counts them, or -1."""
    if name in _DAYS:
        return _DAYS.index(name)
    return (int(name) - 1) % 7 if _is_number(name, 8) else -1
