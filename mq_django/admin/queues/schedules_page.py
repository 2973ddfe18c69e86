"""The schedules of a queue: show, pause, resume, fire now, delete."""

from collections.abc import Callable
from typing import Any, NamedTuple

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from mq_django.admin.queues.schedule_editing import change_url, schedules
from mq_django.admin.ui import text
from mq_django.admin.ui.confirm import CONFIRMED, confirm
from mq_django.admin.ui.page import OPERATE, SEE_DATA, VIEW, Page, needs
from mq_django.admin.ui.references import HIDDEN
from mq_django.conf import get_config
from mq_django.core.schedules import Every, Schedule
from mq_django.core.visible import escape, truncate
from mq_django.errors import InvalidMessage, MQError, QueueFull, ScheduleError
from mq_django.inspector import plans
from mq_django.inspector.plans import TAKEN, Origin, PlannedSchedule

#: The form field with the name of a schedule.
NAMED = "schedule"
#: The most schedules that the page of a queue shows.
MAX_ROWS = 100


class Done(NamedTuple):
    """The result of an action on a schedule."""

    said: str
    #: The texts of the admin's log before and after the schedule's name; empty if nothing was done.
    logged: str = ""
    more: str = ""


def section(page: Page, name: str) -> dict[str, Any]:
    """Return the schedules of a queue as rows, the URLs of their buttons, and what is wrong with them."""
    if not get_config().queue(name).has_schedules:
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


def _when(schedule: Schedule) -> str:
    if isinstance(schedule, Every):
        return _("every %(time)s") % {"time": text.period(schedule.period)}
    return text.visible(str(schedule), limit=80)


def _pause(page: Page, plan: PlannedSchedule) -> Done:
    if not schedules.pause(plan.name, queue=plan.queue, by=page.request.user.get_username()):
        return Done(_("The schedule is already paused."))
    return Done(_("The schedule is paused."), "Paused schedule")


def _resume(_page: Page, plan: PlannedSchedule) -> Done:
    if not schedules.resume(plan.name, queue=plan.queue):
        return Done(_("The schedule is not paused."))
    return Done(_("The schedule was resumed."), "Resumed schedule")


def _fire(_page: Page, plan: PlannedSchedule) -> Done:
    message_id = schedules.fire(plan.name, queue=plan.queue)
    return Done(_("Message %(id)s was published.") % {"id": message_id}, "Fired schedule", f": message {message_id}")


def _forget(_page: Page, plan: PlannedSchedule) -> Done:
    if plan.origin is not Origin.REMOVED:
        return Done(_("The schedule is in the code, so its state was not deleted."))
    plans.forget(plan)
    return Done(_("The state of the schedule was deleted."), "Forgot schedule")


def _delete(_page: Page, plan: PlannedSchedule) -> Done:
    schedules.delete(plan.name, queue=plan.queue)
    return Done(_("The schedule was deleted."), "Deleted schedule")


def _refused(page: Page, plan: PlannedSchedule, error: MQError) -> Done:
    """Return why an action was not done. An error may quote the message, which only some users may see."""
    if isinstance(error, QueueFull):
        return Done(_("The queue is at its MAX_DEPTH: no message was published."))
    if plan.origin is Origin.REMOVED:
        return Done(_("The schedule is no longer in the code."))
    if page.can(SEE_DATA):
        return Done(escape(str(error)))
    return Done(_("The schedule was just changed, or is not valid. Nothing was done."))


def _view(
    route: str,
    do: Callable[[Page, PlannedSchedule], Done],
    *,
    title: Any,
    sentence: Any,
    button: Any,
    of: Origin | None = None,
) -> Callable[..., HttpResponse]:
    """Return a view for an action on a schedule, after confirmation. Texts are translated when shown."""

    @needs(VIEW, OPERATE)
    def view(page: Page, name: str) -> HttpResponse:
        asked, back_url = page.request.POST.get(NAMED, ""), page.queue_url(name)
        plan = plans.find(name, text.from_url(asked).decode(errors="surrogateescape"), *([] if of is None else [of]))
        if plan is None:
            page.say(messages.WARNING, _("This schedule no longer exists."))
        elif CONFIRMED not in page.request.POST:
            return confirm(
                page,
                name,
                title % {"schedule": escape(plan.name)},
                tab="queue",
                sentence=str(sentence),
                button=str(button),
                act_url=page.url(route, name),
                back_url=back_url,
                fields=[(NAMED, asked)],
            )
        else:
            try:
                done = do(page, plan)
            except (ScheduleError, InvalidMessage, QueueFull) as error:
                done = _refused(page, plan, error)
            page.say(messages.SUCCESS if done.logged else messages.WARNING, done.said)
            if done.logged:
                page.log(name, f"{done.logged} {escape(plan.name)}{done.more}")
        return HttpResponseRedirect(back_url)

    return view


#: Pauses a schedule.
pause = _view(
    "schedule_pause",
    _pause,
    title=gettext_lazy("Pause schedule “%(schedule)s”?"),
    sentence=gettext_lazy(
        "Until it is resumed, it does not publish its 1 message per tick. Published messages are handled."
    ),
    button=gettext_lazy("Yes, pause it"),
)

#: Resumes a schedule from its next tick on.
resume = _view(
    "schedule_resume",
    _resume,
    title=gettext_lazy("Resume schedule “%(schedule)s”?"),
    sentence=gettext_lazy("It publishes 1 message per tick again, from the next tick on. Missed ticks do not fire."),
    button=gettext_lazy("Yes, resume it"),
)

#: Publishes the message of a schedule now.
fire = _view(
    "schedule_fire",
    _fire,
    title=gettext_lazy("Fire schedule “%(schedule)s” now?"),
    sentence=gettext_lazy(
        "1 message is published at once, even while the schedule is paused. Its ticks stay as they are."
    ),
    button=gettext_lazy("Yes, fire it"),
)

#: Deletes the state of a schedule that was removed from the code.
forget = _view(
    "schedule_forget",
    _forget,
    title=gettext_lazy("Forget schedule “%(schedule)s”?"),
    sentence=gettext_lazy("The time of its last tick is deleted. If it returns to the code, it starts anew."),
    button=gettext_lazy("Yes, forget it"),
)

#: Deletes a schedule that was created at run time.
delete = _view(
    "schedule_delete",
    _delete,
    title=gettext_lazy("Delete schedule “%(schedule)s”?"),
    sentence=gettext_lazy("It never fires again. Messages that it has published stay."),
    button=gettext_lazy("Yes, delete it"),
    of=Origin.RUNTIME,
)
