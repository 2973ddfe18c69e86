"""Schedules as rows: on the page of a queue, the schedules of all queues, and the page of one."""

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from django.http import HttpResponse
from django.utils.dates import WEEKDAYS
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.admin.message_lists import state_words
from mq_django.admin.ui import text
from mq_django.admin.ui.filter_form import HIDDEN, given, message_url, refuse_others
from mq_django.admin.ui.page import OPERATE, SEE_DATA, VIEW, Page, needs, sections, tabs
from mq_django.conf import get_config
from mq_django.core.jsontext import whole
from mq_django.core.schedules import Cron, Every, Schedule
from mq_django.core.texts import escape
from mq_django.errors import InvalidFilter
from mq_django.inspector import plans
from mq_django.inspector.plans import TAKEN, ListedSchedule, Origin, PlannedSchedule, Published, SkippedTick

#: The parameters with the name of a schedule, with a tick in ms since 1970, and with the page to return to.
NAMED, TICK, BACK = "schedule", "tick", "back"
#: The most schedules that the page of a queue shows.
MAX_ROWS = 100
#: The actions on schedules.
ACTIONS = ("pause", "resume", "skip", "fire", "forget", "delete", "restore")


def asked_name(page: Page) -> str:
    """Return the name of a schedule in an address."""
    return text.from_url(str(page.request.GET.get(NAMED, ""))).decode(errors="surrogateescape")


def _in_url(plan: PlannedSchedule) -> str:
    return text.to_url(plan.name.encode(errors="surrogateescape"))


def change_url(page: Page, plan: PlannedSchedule) -> str:
    """Return the URL of the form of a schedule."""
    return f"{page.url('schedule_change', plan.queue)}?{NAMED}={_in_url(plan)}"


def url_back(page: Page, queue: str, schedule: str, back: str) -> str:
    """Return the URL of the page from which an action on a schedule was chosen."""
    if back == "schedules":
        return page.url("schedules")
    return f"{page.url('schedule', queue)}?{NAMED}={schedule}" if back == "schedule" else page.queue_url(queue)


def shown_tick(tick_ms: int | None) -> str:
    """Return a tick in the current time zone, with its offset: when clocks go back, an hour comes twice."""
    return "" if tick_ms is None else text.date(tick_ms)


def times_of(schedule: Schedule) -> tuple[str, str]:
    """Return the times of a schedule in words, and its expression; only this if there are no good words."""
    said, expression = words(schedule), text.visible(str(schedule), limit=80)
    return (said, "" if str(schedule).startswith("every") else expression) if said else (expression, "")


# The schedules on the page of a queue.


def section(page: Page, name: str) -> dict[str, Any]:
    """Return the schedules of a queue as rows.

    Those of partitions are on the page of the queue.
    """
    config = get_config().queue(name)
    if not config.has_schedules or config.public_name != config.name:
        return {}
    now_ms, found, total, is_part = plans.schedules(name, limit=MAX_ROWS, bounded=True)
    return {
        "schedules": [_row(page, plan, now_ms, back="") for plan in found],
        "schedule_add_url": page.url("schedule_add", name) if page.can(OPERATE, SEE_DATA) else "",
        "schedules_total": text.number(total) if total > len(found) else "",
        "schedules_are_part": is_part,
        "schedule_field": NAMED,
    }


def _row(page: Page, plan: PlannedSchedule, now_ms: int, *, back: str) -> dict[str, Any]:
    entry, late = plan.entry, _is_overdue(plan)
    can_change = plan.origin is Origin.RUNTIME and plan.problem != TAKEN and page.can(SEE_DATA)
    can_override = plan.origin in (Origin.CODE, Origin.SETTINGS)
    where = f"?{urlencode({NAMED: _in_url(plan), **({BACK: back} if back else {})})}"
    when, expression = times_of(entry.when) if entry else ("", "")
    return {
        "name": _in_url(plan),
        "shown": text.visible(plan.name, limit=80),
        "url": f"{page.url('schedule', plan.queue)}?{NAMED}={_in_url(plan)}",
        "queue": text.visible(plan.queue, limit=80),
        "queue_url": page.queue_url(plan.queue),
        "when": when,
        "expression": expression,
        "message": text.visible(entry.message, limit=80) if entry else "",
        "next": _("overdue: no consumer fires it") if late else text.moment(plan.next_ms, now=now_ms),
        "late": late,
        "last": text.moment(plan.fired_ms, now=now_ms),
        "paused": plan.paused,
        "skips": [_skip_row(page, plan, skipped) for skipped in plan.skips],
        "notes": _notes(plan, now_ms),
        "overridden": plan.override is not None,
        "problem": _problem(page, plan),
        "is_runtime": plan.origin is Origin.RUNTIME,
        "change_url": change_url(page, plan) if can_change else "",
        "override_url": page.url("schedule_override", plan.queue) + where if can_override else "",
        "gone": plan.origin is Origin.REMOVED,
        "urls": {action: page.url(f"schedule_{action}", plan.queue) for action in ACTIONS},
    }


def _is_overdue(plan: PlannedSchedule) -> bool:
    return plan.next_ms is not None and plan.next_ms < plan.now_ms


def _problem(page: Page, plan: PlannedSchedule) -> str:
    """Return why a schedule does not fire. What is wrong with its definition may quote the data in it."""
    if not plan.problem or plan.problem == TAKEN or page.can(SEE_DATA):
        return text.visible(plan.problem, limit=200) if plan.problem else ""
    return HIDDEN


def _notes(plan: PlannedSchedule, now_ms: int) -> list[SafeString]:
    """Return who paused, changed and created a schedule, and when, as HTML."""
    was_changed = plan.changed_ms != plan.created_ms
    stamps = (
        (_("paused by {who}, {when}"), plan.paused_ms if plan.paused else None, plan.paused_by),
        (_("changed by {who}, {when}"), plan.changed_ms if was_changed else None, plan.changed_by),
        (_("created by {who}, {when}"), plan.created_ms, plan.created_by),
    )
    return _override_notes(plan, now_ms) + [
        format_html(said, who=text.visible(who or _("unknown"), limit=80), when=text.moment(ms, now=now_ms))
        for said, ms, who in stamps
        if ms is not None
    ]


def _override_notes(plan: PlannedSchedule, now_ms: int) -> list[SafeString]:
    """Return who gave a schedule other times than the code, when and why, and what the code says, as HTML."""
    found = plan.override
    if found is None:
        return []
    when = text.moment(found.set_ms, now=now_ms) or _("unknown")
    who, reason = text.visible(found.set_by or _("unknown"), limit=80), text.visible(found.reason, limit=500)
    said = _("other times by {who}, {when}: {reason}") if found.reason else _("other times by {who}, {when}")
    in_code = _("in the code: {times}; the code has changed since") if found.is_outdated else _("in the code: {times}")
    return [
        format_html(said, who=who, when=when, reason=reason),
        format_html(in_code, times=times_of(found.code)[0]),
    ]


def _skip_row(page: Page, plan: PlannedSchedule, skipped: SkippedTick) -> dict[str, Any]:
    """Return a tick that is skipped, by whom and since when, and the URL that lets it fire."""
    said = _("skips {tick}: {who}, {when}")
    return {
        "note": format_html(
            said,
            tick=shown_tick(skipped.tick_ms),
            who=text.visible(skipped.skipped_by or _("unknown"), limit=80),
            when=text.moment(skipped.skipped_ms, now=plan.now_ms),
        ),
        "undo_url": f"{page.url('schedule_unskip', plan.queue)}?{TICK}={skipped.tick_ms}",
    }


# The schedules of all queues.

#: Schedules on a page, and the most that are looked at for it.
SIZE, MAX_LOOKED = 50, 1000
#: Fields of the filter.
FILTER, STATE, START = "q", "state", "start"


@needs(VIEW)
def all_schedules(page: Page) -> HttpResponse:
    """Show the schedules of all queues, by queue and name."""
    refuse_others(page, FILTER, STATE, START)
    asked, state = (given(page, FILTER) or "").strip(), given(page, STATE) or ""
    labels = {
        "paused": _("paused"),
        "overdue": _("overdue"),
        "invalid": _("does not fire"),
        "overridden": _("other times than in the code"),
    }
    if state and state not in labels:
        raise InvalidFilter(_("This page has no filter “%(field)s”.") % {"field": STATE})
    every = plans.all_schedules(text.now_ms())
    matching = [each for each in every.found if asked.lower() in f"{each.queue} {each.name}".lower()]
    start = min(whole(given(page, START) or "0") or 0, len(matching))
    found, looked = _page_of(matching, start, state)
    terms = {FILTER: asked, STATE: state, START: str(looked)}
    return page.render(
        "schedules",
        _("Schedules"),
        tabs=sections(page, "schedules"),
        schedules=[_row(page, plan, plan.now_ms, back="schedules") for plan in found],
        schedule_field=NAMED,
        with_queue=True,
        back="schedules",
        asked=asked,
        states=[{"value": each, "label": label, "is_chosen": each == state} for each, label in labels.items()],
        is_filtered=bool(asked or state),
        is_later=start > 0,
        unread=[text.visible(name, limit=160) for name in every.unread[:MAX_ROWS]],
        partly=[text.visible(name, limit=160) for name in every.partly[:MAX_ROWS]],
        go_on=f"?{urlencode({field: value for field, value in terms.items() if value})}"
        if looked < len(matching)
        else "",
    )


def _page_of(matching: Sequence[ListedSchedule], start: int, state: str) -> tuple[list[PlannedSchedule], int]:
    """Return the schedules of a page that are in a state, and the position after the last one that was looked at."""
    found, at = list[PlannedSchedule](), start
    while at < len(matching) and len(found) < SIZE and at - start < MAX_LOOKED:
        plan = matching[at].read()
        at += 1
        if not state or _is_in(plan, state):
            found.append(plan)
    return found, at


def _is_in(plan: PlannedSchedule, state: str) -> bool:
    return {
        "paused": plan.paused,
        "overdue": _is_overdue(plan),
        "invalid": bool(plan.problem),
        "overridden": plan.override is not None,
    }[state]


# The page of a schedule.

#: The width and height of the time line, and the space at its ends.
WIDTH, HEIGHT, END = 640, 28, 10


@needs(VIEW)
def show(page: Page, name: str) -> HttpResponse:
    """Show a schedule with its next ticks and its latest messages."""
    plan = plans.find(name, asked_name(page))
    if plan is None:
        return page.leave(page.queue_url(name), _("This schedule no longer exists."))
    ticks, latest = plans.coming(plan), plans.latest(plan)
    config = get_config().queue(name)
    return page.render(
        "schedule_page",
        _("Schedule “%(name)s”") % {"name": escape(plan.name)},
        queue=name,
        tabs=tabs(page, name, "queue"),
        schedules=[_row(page, plan, plan.now_ms, back="schedule")],
        schedule_field=NAMED,
        back="schedule",
        line=_time_line(plan.now_ms, ticks) if ticks else "",
        ticks=[_tick_row(page, plan, *tick) for tick in ticks],
        messages_of_it=[_message_row(page, plan, each) for each in latest],
        needs_history=config.history is None and any(each.view is None for each in latest),
    )


def _tick_row(page: Page, plan: PlannedSchedule, tick_ms: int, is_skipped: bool) -> dict[str, Any]:
    action = "unskip" if is_skipped else "skip"
    return {
        "when": text.moment(tick_ms, now=plan.now_ms, exact=True),
        "label": shown_tick(tick_ms),
        "is_skipped": is_skipped,
        "url": f"{page.url(f'schedule_{action}', plan.queue)}?{TICK}={tick_ms}",
    }


def _time_line(now_ms: int, ticks: Sequence[tuple[int, bool]]) -> SafeString:
    """Return the ticks on a line that begins now, as SVG. The list beside it has the same as text."""
    span = max(1, ticks[-1][0] - now_ms)
    marks = format_html_join(
        "",
        '<circle class="{}" cx="{}" cy="{}" r="5"><title>{}</title></circle>',
        (
            (
                "mq-tick mq-tick-skipped" if is_skipped else "mq-tick",
                END + round((WIDTH - 2 * END) * (tick_ms - now_ms) / span),
                HEIGHT // 2,
                shown_tick(tick_ms),
            )
            for tick_ms, is_skipped in ticks
        ),
    )
    return format_html(
        '<svg class="mq-time-line" viewBox="0 0 {w} {h}" width="{w}" height="{h}" aria-hidden="true" focusable="false">'
        '<path class="mq-edge" d="M{x} {y}H{to}"/>{marks}</svg>',
        w=WIDTH,
        h=HEIGHT,
        x=END,
        y=HEIGHT // 2,
        to=WIDTH - END,
        marks=marks,
    )


def _unknown(plan: PlannedSchedule, published_ms: int) -> str:
    """Return where a message is that no index has: ready and pending ones would have to be scanned."""
    history = get_config().queue(plan.home).history
    return _("not known") if history is None or published_ms < plan.now_ms - history.age_ms else _("ready or pending")


def _message_row(page: Page, plan: PlannedSchedule, found: Published) -> dict[str, Any]:
    view = found.view
    return {
        "id": text.visible(found.id, limit=80),
        "url": "" if view is None else message_url(page, plan.home, view),
        "published": text.moment(found.ms, now=plan.now_ms),
        "state": _unknown(plan, found.ms) if view is None else state_words(view.state, view.ending),
        "is_bad": view is not None and view.state == "dead",
        "took": "" if view is None else text.seconds(view.seconds),
    }


# The times of a schedule in words.

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
