"""The schedules of a queue: seen, paused, fired at once, forgotten."""

from typing import Any

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _

from mq_django.admin.ui import text
from mq_django.admin.ui.confirm import CONFIRMED, confirm
from mq_django.admin.ui.page import OPERATE, VIEW, Page, needs
from mq_django.core.schedules import Every, Schedule
from mq_django.core.visible import escape
from mq_django.inspector import plans
from mq_django.inspector.plans import Planned

#: The form's field that names a schedule.
NAMED = "schedule"


def section(page: Page, name: str) -> dict[str, Any]:
    """Return the schedules of a queue as rows, and where their buttons lead."""
    now_ms, found = plans.schedules(name)
    return {
        "schedules": [_row(plan, now_ms) for plan in found],
        "schedule_field": NAMED,
        "schedule_pause_url": page.url("schedule_pause", name),
        "schedule_resume_url": page.url("schedule_resume", name),
        "schedule_fire_url": page.url("schedule_fire", name),
        "schedule_forget_url": page.url("schedule_forget", name),
    }


def _row(plan: Planned, now_ms: int) -> dict[str, Any]:
    entry, late = plan.entry, plan.next_ms is not None and plan.next_ms < now_ms
    return {
        "name": text.to_url(plan.name.encode()),
        "shown": text.visible(plan.name, limit=80),
        "when": _when(entry.when) if entry else "",
        "message": text.visible(entry.message, limit=80) if entry else "",
        "next": _("overdue: nobody fires it") if late else text.moment(plan.next_ms, now=now_ms),
        "late": late,
        "last": text.moment(plan.state.fired_ms, now=now_ms),
        "paused": plan.state.paused,
        "gone": entry is None,
    }


def _when(schedule: Schedule) -> str:
    if isinstance(schedule, Every):
        return _("every %(time)s") % {"time": text.duration(round(schedule.period.total_seconds() * 1000))}
    return text.visible(str(schedule), limit=80)


@needs(VIEW, OPERATE)
def pause(page: Page, name: str) -> HttpResponse:
    """Let the ticks of a schedule pass without a message."""
    return _act(
        page,
        name,
        "schedule_pause",
        title=_("Pause schedule “%(schedule)s”?"),
        sentence=_("Its 1 message a tick is not published from then on; what is published already is handled."),
        button=_("Yes, pause it"),
    )


@needs(VIEW, OPERATE)
def resume(page: Page, name: str) -> HttpResponse:
    """Let a schedule fire again from its next tick on."""
    return _act(
        page,
        name,
        "schedule_resume",
        title=_("Resume schedule “%(schedule)s”?"),
        sentence=_("It fires again from its next tick on, 1 message a tick. Those that passed are not made up for."),
        button=_("Yes, resume it"),
    )


@needs(VIEW, OPERATE)
def fire(page: Page, name: str) -> HttpResponse:
    """Publish the message of a schedule at once."""
    return _act(
        page,
        name,
        "schedule_fire",
        title=_("Fire schedule “%(schedule)s” now?"),
        sentence=_("1 message is published at once, even while the schedule is paused. Its ticks stay as they are."),
        button=_("Yes, fire it"),
    )


@needs(VIEW, OPERATE)
def forget(page: Page, name: str) -> HttpResponse:
    """Forget a schedule that has left the code."""
    return _act(
        page,
        name,
        "schedule_forget",
        title=_("Forget schedule “%(schedule)s”?"),
        sentence=_("When it fired last is forgotten. If it comes back into the code, it begins anew."),
        button=_("Yes, forget it"),
    )


def _act(page: Page, name: str, route: str, *, title: str, sentence: str, button: str) -> HttpResponse:
    asked, back_url = page.request.POST.get(NAMED, ""), page.queue_url(name)
    plan = plans.find(name, text.from_url(asked).decode(errors="replace"))
    if plan is None:
        page.say(messages.WARNING, _("There is no such schedule any more."))
    elif CONFIRMED not in page.request.POST:
        return confirm(
            page,
            name,
            title % {"schedule": escape(plan.name)},
            tab="queue",
            sentence=sentence,
            button=button,
            act_url=page.url(route, name),
            back_url=back_url,
            fields=[(NAMED, asked)],
        )
    else:
        said, logged = _do(plan, route)
        page.say(messages.SUCCESS if logged else messages.WARNING, said)
        if logged:
            page.log(name, logged)
    return HttpResponseRedirect(back_url)


def _do(plan: Planned, route: str) -> tuple[str, str]:
    """Do it, and return what to say, and to log; nothing to log when nothing was done."""
    name = escape(plan.name)
    if route == "schedule_fire":
        message_id = plans.fire(plan)
        if message_id is None:
            return _("It has left the code: there is nothing to publish."), ""
        return _("Message %(id)s was published.") % {"id": message_id}, f"Fired schedule {name}: message {message_id}"
    if route == "schedule_forget":
        if plan.entry is not None:
            return _("It is in the code, so it is not forgotten."), ""
        plans.forget(plan)
        return _("The schedule is forgotten."), f"Forgot schedule {name}"
    paused = route == "schedule_pause"
    plans.switch(plan, paused=paused)
    if paused:
        return _("The schedule is paused."), f"Paused schedule {name}"
    return _("The schedule fires again."), f"Resumed schedule {name}"
