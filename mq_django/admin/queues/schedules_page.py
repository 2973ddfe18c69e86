"""The schedules on the page of a queue."""

from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from mq_django.admin.queues.schedule_actions import NAMED, TICK, shown_tick
from mq_django.admin.queues.schedule_editing import change_url
from mq_django.admin.ui import text
from mq_django.admin.ui.page import OPERATE, SEE_DATA, Page
from mq_django.admin.ui.references import HIDDEN
from mq_django.conf import get_config
from mq_django.core.schedules import Every, Schedule
from mq_django.core.visible import escape, truncate
from mq_django.inspector import plans
from mq_django.inspector.plans import TAKEN, Origin, PlannedSchedule, SkippedTick

#: The most schedules that the page of a queue shows.
MAX_ROWS = 100


def section(page: Page, name: str) -> dict[str, Any]:
    """Return the schedules of a queue as rows, the URLs of their buttons, and what is wrong with them.

    Those of partitions are on the page of the queue.
    """
    config = get_config().queue(name)
    if not config.has_schedules or config.public_name != config.name:
        return {}
    now_ms, found, total = plans.schedules(name, limit=MAX_ROWS)
    can_edit = page.can(OPERATE, SEE_DATA)
    return {
        "alarms": [_alarm(plan) for plan in found if plan.problem],
        "schedules": [_row(page, plan, now_ms) for plan in found],
        "schedule_add_url": page.url("schedule_add", name) if can_edit else "",
        "schedule_delete_url": page.url("schedule_delete", name),
        "schedules_total": text.number(total) if total > len(found) else "",
        "schedule_field": NAMED,
        "schedule_pause_url": page.url("schedule_pause", name),
        "schedule_resume_url": page.url("schedule_resume", name),
        "schedule_skip_url": page.url("schedule_skip", name),
        "schedule_fire_url": page.url("schedule_fire", name),
        "schedule_forget_url": page.url("schedule_forget", name),
    }


def _alarm(plan: PlannedSchedule) -> dict[str, str]:
    words = _("has a schedule that does not fire: %(name)s.")
    return {"queue": plan.queue, "sentence": words % {"name": escape(truncate(plan.name, 80))}, "what": "alarm"}


def _row(page: Page, plan: PlannedSchedule, now_ms: int) -> dict[str, Any]:
    entry, late = plan.entry, plan.next_ms is not None and plan.next_ms < now_ms
    return {
        "name": text.to_url(plan.name.encode(errors="surrogateescape")),
        "shown": text.visible(plan.name, limit=80),
        "when": _when(entry.when) if entry else "",
        "message": text.visible(entry.message, limit=80) if entry else "",
        "next": _("overdue: no consumer fires it") if late else text.moment(plan.next_ms, now=now_ms),
        "late": late,
        "last": text.moment(plan.fired_ms, now=now_ms),
        "paused": plan.paused,
        "skips": [_skip_row(page, plan, skipped) for skipped in plan.skips],
        "notes": _notes(plan, now_ms),
        "problem": _problem(page, plan),
        "is_runtime": plan.origin is Origin.RUNTIME,
        "change_url": change_url(page, plan) if _can_change(page, plan) else "",
        "gone": plan.origin is Origin.REMOVED,
    }


def _problem(page: Page, plan: PlannedSchedule) -> str:
    """Return why a schedule does not fire. What is wrong with its definition may quote the data in it."""
    if not plan.problem or plan.problem == TAKEN or page.can(SEE_DATA):
        return text.visible(plan.problem, limit=200) if plan.problem else ""
    return HIDDEN


def _can_change(page: Page, plan: PlannedSchedule) -> bool:
    return plan.origin is Origin.RUNTIME and plan.problem != TAKEN and page.can(SEE_DATA)


def _notes(plan: PlannedSchedule, now_ms: int) -> list[SafeString]:
    """Return who paused, changed and created a schedule, and when, as HTML."""
    was_changed = plan.changed_ms != plan.created_ms
    stamps = (
        (_("paused by {who}, {when}"), plan.paused_ms if plan.paused else None, plan.paused_by),
        (_("changed by {who}, {when}"), plan.changed_ms if was_changed else None, plan.changed_by),
        (_("created by {who}, {when}"), plan.created_ms, plan.created_by),
    )
    return [
        format_html(words, who=text.visible(who or _("unknown"), limit=80), when=text.moment(ms, now=now_ms))
        for words, ms, who in stamps
        if ms is not None
    ]


def _skip_row(page: Page, plan: PlannedSchedule, skipped: SkippedTick) -> dict[str, Any]:
    """Return a tick that is skipped, by whom and since when, and the URL that lets it fire."""
    words = _("skips {tick}: {who}, {when}")
    return {
        "note": format_html(
            words,
            tick=shown_tick(skipped.tick_ms),
            who=text.visible(skipped.skipped_by or _("unknown"), limit=80),
            when=text.moment(skipped.skipped_ms, now=plan.now_ms),
        ),
        "undo_url": f"{page.url('schedule_unskip', plan.queue)}?{TICK}={skipped.tick_ms}",
    }


def _when(schedule: Schedule) -> str:
    if isinstance(schedule, Every):
        return _("every %(time)s") % {"time": text.period(schedule.period)}
    return text.visible(str(schedule), limit=80)
