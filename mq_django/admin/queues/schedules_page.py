"""The schedules of a queue: show, pause, resume, fire now, delete the state."""

from collections.abc import Callable
from typing import Any, NamedTuple

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from mq_django.admin.ui import text
from mq_django.admin.ui.confirm import CONFIRMED, confirm
from mq_django.admin.ui.page import OPERATE, VIEW, Page, needs
from mq_django.core.schedules import Every, Schedule
from mq_django.core.visible import escape
from mq_django.errors import QueueFull
from mq_django.inspector import plans
from mq_django.inspector.plans import Planned
from mq_django.producers.queues import Queue
from mq_django.producers.sinks import announce

#: The form field with the name of a schedule.
NAMED = "schedule"


class Done(NamedTuple):
    """The result of an action on a schedule."""

    said: str
    #: The texts of the admin's log before and after the schedule's name; empty if nothing was done.
    logged: str = ""
    more: str = ""


def section(page: Page, name: str) -> dict[str, Any]:
    """Return the schedules of a queue as rows, and the URLs of their buttons."""
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
        "next": _("overdue: no consumer fires it") if late else text.moment(plan.next_ms, now=now_ms),
        "late": late,
        "last": text.moment(plan.fired_ms, now=now_ms),
        "paused": plan.paused,
        "gone": entry is None,
    }


def _when(schedule: Schedule) -> str:
    if isinstance(schedule, Every):
        return _("every %(time)s") % {"time": text.duration(round(schedule.period.total_seconds() * 1000))}
    return text.visible(str(schedule), limit=80)


def _pause(plan: Planned) -> Done:
    plans.switch(plan, paused=True)
    return Done(_("The schedule is paused."), "Paused schedule")


def _resume(plan: Planned) -> Done:
    plans.switch(plan, paused=False)
    return Done(_("The schedule was resumed."), "Resumed schedule")


def _fire(plan: Planned) -> Done:
    if plan.entry is None:
        return Done(_("The schedule is no longer in the code."))
    try:
        message_id = plans.fire(plan.entry)
    except QueueFull:
        return Done(_("The queue is at its MAX_DEPTH: no message was published."))
    announce(Queue, plan.queue, message_id, plan.entry.message)
    return Done(_("Message %(id)s was published.") % {"id": message_id}, "Fired schedule", f": message {message_id}")


def _forget(plan: Planned) -> Done:
    if plan.entry is not None:
        return Done(_("The schedule is in the code, so its state was not deleted."))
    plans.forget(plan)
    return Done(_("The state of the schedule was deleted."), "Forgot schedule")


def _view(
    route: str, do: Callable[[Planned], Done], *, title: Any, sentence: Any, button: Any
) -> Callable[..., HttpResponse]:
    """Return a view for an action on a schedule, after confirmation. Texts are translated when shown."""

    @needs(VIEW, OPERATE)
    def view(page: Page, name: str) -> HttpResponse:
        asked, back_url = page.request.POST.get(NAMED, ""), page.queue_url(name)
        plan = plans.find(name, text.from_url(asked).decode(errors="replace"))
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
            done = do(plan)
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
