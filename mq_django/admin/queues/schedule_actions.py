"""Actions on a schedule: pause, resume, skip a tick, fire now, delete."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from mq_django.admin.queues.schedule_editing import schedules
from mq_django.admin.ui import text
from mq_django.admin.ui.confirm import CONFIRMED, confirm
from mq_django.admin.ui.page import OPERATE, SEE_DATA, VIEW, Page, needs
from mq_django.core.numbers import LAST_MS, whole
from mq_django.core.visible import escape
from mq_django.errors import InvalidMessage, MQError, QueueFull, ScheduleError
from mq_django.inspector import plans
from mq_django.inspector.plans import Origin, PlannedSchedule

#: The form field with the name of a schedule.
NAMED = "schedule"
#: The form field with the tick that an action is about, in ms since 1970.
TICK = "tick"


def shown_tick(tick_ms: int | None) -> str:
    """Return a tick in the current time zone, with its offset: when clocks go back, an hour comes twice."""
    when = None if tick_ms is None else text.local(tick_ms)
    return "" if when is None else when.isoformat(sep=" ", timespec="seconds")


class Done(NamedTuple):
    """The result of an action on a schedule."""

    said: str
    #: The texts of the admin's log before and after the schedule's name; empty if nothing was done.
    logged: str = ""
    more: str = ""


def _pause(page: Page, plan: PlannedSchedule) -> Done:
    if not schedules.pause(plan.name, queue=plan.queue, by=page.request.user.get_username()):
        return Done(_("The schedule is already paused."))
    return Done(_("The schedule is paused."), "Paused schedule")


def _resume(_page: Page, plan: PlannedSchedule) -> Done:
    if not schedules.resume(plan.name, queue=plan.queue):
        return Done(_("The schedule is not paused."))
    return Done(_("The schedule was resumed."), "Resumed schedule")


def _tick_to_skip(page: Page, plan: PlannedSchedule) -> int | None:
    """Return the tick of the form, or else the next one that is not skipped yet."""
    skipped = {each.tick_ms for each in plan.skips}
    return _tick_asked(page) if TICK in page.request.POST else plan.next_tick_ms(plan.now_ms, skipped=skipped)


def _datetime(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)


def _tick_asked(page: Page) -> int | None:
    return whole(page.request.POST.get(TICK, page.request.GET.get(TICK)), LAST_MS)


def _skip(page: Page, plan: PlannedSchedule) -> Done:
    tick = _datetime(_tick_asked(page))
    if tick is None:
        return Done(_("The schedule has no such tick."))
    schedules.skip(plan.name, queue=plan.queue, tick=tick, by=page.request.user.get_username())
    said = _("The tick of %(tick)s is skipped.") % {"tick": shown_tick(_tick_asked(page))}
    return Done(said, "Skipped a tick of schedule", f": {tick.isoformat()}")


def _unskip(page: Page, plan: PlannedSchedule) -> Done:
    tick = _datetime(_tick_asked(page))
    if tick is None or not schedules.unskip(plan.name, queue=plan.queue, tick=tick):
        return Done(_("The tick is not skipped."))
    said = _("The tick of %(tick)s is not skipped any more.") % {"tick": shown_tick(_tick_asked(page))}
    return Done(said, "No longer skipped a tick of schedule", f": {tick.isoformat()}")


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
    tick_of: Callable[[Page, PlannedSchedule], int | None] | None = None,
) -> Callable[..., HttpResponse]:
    """Return a view for an action on a schedule, after confirmation. Texts are translated when shown."""

    @needs(VIEW, OPERATE)
    def view(page: Page, name: str) -> HttpResponse:
        asked, back_url = page.request.POST.get(NAMED, ""), page.queue_url(name)
        plan = plans.find(name, text.from_url(asked).decode(errors="surrogateescape"), *([] if of is None else [of]))
        if plan is None:
            page.say(messages.WARNING, _("This schedule no longer exists."))
        elif CONFIRMED not in page.request.POST:
            tick_ms = None if tick_of is None else tick_of(page, plan)
            return confirm(
                page,
                name,
                title % {"schedule": escape(plan.name), "tick": shown_tick(tick_ms)},
                tab="queue",
                sentence=str(sentence),
                button=str(button),
                act_url=page.url(route, name),
                back_url=back_url,
                fields=[(NAMED, asked), *([] if tick_ms is None else [(TICK, str(tick_ms))])],
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

#: Skips one tick of a schedule.
skip = _view(
    "schedule_skip",
    _skip,
    title=gettext_lazy("Skip the tick %(tick)s of schedule “%(schedule)s”?"),
    sentence=gettext_lazy("The 1 message of this tick is not published. All other ticks stay as they are."),
    button=gettext_lazy("Yes, skip it"),
    tick_of=_tick_to_skip,
)

#: Lets a tick fire that was to be skipped.
unskip = _view(
    "schedule_unskip",
    _unskip,
    title=gettext_lazy("Let the tick %(tick)s of schedule “%(schedule)s” fire?"),
    sentence=gettext_lazy("It is no longer skipped: its 1 message is published."),
    button=gettext_lazy("Yes, let it fire"),
    tick_of=lambda page, _plan: _tick_asked(page),
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
