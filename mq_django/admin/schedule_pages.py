"""The schedules on the page of a queue."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from mq_django import registry
from mq_django.admin.message_pages import editable
from mq_django.admin.ui import text
from mq_django.admin.ui.filter_form import HIDDEN
from mq_django.admin.ui.page import OPERATE, SEE_DATA, VIEW, Page, View, confirm, needs, tabs
from mq_django.conf import get_config
from mq_django.core.jsontext import loads
from mq_django.core.numbers import LAST_MS, whole
from mq_django.core.redaction import redact, restored
from mq_django.core.schedules import Every, Schedule
from mq_django.core.texts import escape, repr_of
from mq_django.errors import (
    DecodeError,
    InvalidMessage,
    InvalidSchedule,
    MissingDependency,
    MQError,
    QueueFull,
    ScheduleError,
)
from mq_django.inspector import plans
from mq_django.inspector.plans import TAKEN, Origin, PlannedSchedule, SkippedTick
from mq_django.producers.schedules import ScheduleCollection

# Create and change schedules that are kept in Redis.

#: With the short timeouts of pages.
schedules = ScheduleCollection("inspect")
#: The fields of the form: texts, numbers and JSON, all named like the options of a schedule.
TEXTS = ("cron", "timezone", "message", "task", "key", "starts", "ends")
NUMBERS = ("every", "priority", "expires")
JSON = ("data", "args", "kwargs")
#: Other fields.
NAME, PAUSED, VERSION = "name", "paused", "version"
#: The parameter with the name of the schedule that is changed.
NAMED = "schedule"


@needs(VIEW, SEE_DATA, OPERATE)
def add(page: Page, name: str) -> HttpResponse:
    """Show the form, and create a schedule."""
    asked = page.request.POST.dict()
    if page.request.method != "POST":
        return _form(page, name, {}, act_url=page.url("schedule_add", name))
    called = str(asked.get(NAME, "")).strip()
    try:
        schedules.create(called, queue=name, by=_user(page), paused=PAUSED in asked, **_options(asked, {}))
    except (ScheduleError, InvalidMessage, MissingDependency) as error:
        return _form(page, name, asked, act_url=page.url("schedule_add", name), error=str(error))
    page.say(messages.SUCCESS, _("Schedule “%(name)s” was created.") % {"name": escape(called)})
    page.log(name, f"Created schedule {called}")
    return HttpResponseRedirect(page.queue_url(name))


@needs(VIEW, SEE_DATA, OPERATE)
def change(page: Page, name: str) -> HttpResponse:
    """Show the form with the options of a schedule, and change them."""
    asked = page.request.POST.dict()
    called = text.from_url(str(page.request.GET.get(NAMED, ""))).decode(errors="surrogateescape")
    found = plans.find(name, called, Origin.RUNTIME)
    if found is None:
        return page.leave(page.queue_url(name), _("This schedule no longer exists, or is in the code."))
    act_url = change_url(page, found)
    if page.request.method != "POST":
        return _form(page, name, _written(found), act_url=act_url, changed=found)
    try:
        options: Any = {**dict.fromkeys((*TEXTS, *NUMBERS, *JSON)), **_options(asked, found.options)}
        schedules.update(called, queue=name, by=_user(page), version=str(asked.get(VERSION, "")), **options)
    except (ScheduleError, InvalidMessage, MissingDependency) as error:
        return _form(page, name, asked, act_url=act_url, changed=found, error=str(error))
    page.say(messages.SUCCESS, _("Schedule “%(name)s” was changed.") % {"name": escape(called)})
    page.log(name, f"Changed schedule {called}")
    return HttpResponseRedirect(page.queue_url(name))


def change_url(page: Page, plan: PlannedSchedule) -> str:
    """Return the URL of the form of a schedule."""
    return (
        f"{page.url('schedule_change', plan.queue)}?{NAMED}={text.to_url(plan.name.encode(errors='surrogateescape'))}"
    )


def _user(page: Page) -> str:
    return str(page.request.user.get_username())


def _options(asked: Mapping[str, Any], original: Mapping[str, Any]) -> Any:
    """Return the options in a form. Placeholders that stand for secrets are replaced by these."""
    given = {option: str(asked.get(option, "")).strip() for option in (*TEXTS, *NUMBERS, *JSON)}
    given = {option: value for option, value in given.items() if value}
    found: dict[str, Any] = dict(given)
    for option in given.keys() & {*NUMBERS}:
        try:
            number = float(given[option])
            found[option] = int(number) if number.is_integer() else number
        except (ValueError, OverflowError) as error:
            raise InvalidSchedule(f"{option!r} must be a number, not {repr_of(given[option], 80)}") from error
    for option in given.keys() & {*JSON}:
        try:
            edited = loads(given[option].encode(errors="surrogatepass"))
        except DecodeError as error:
            raise InvalidSchedule(f"{option!r} is {error}") from error
        found[option] = restored(edited, original.get(option))
    return found


def _written(found: PlannedSchedule) -> dict[str, str]:
    """Return the options of a schedule as a form shows them, with secrets replaced."""
    return {
        option: editable(redact(value)) if option in JSON else str(value) for option, value in found.options.items()
    }


def _form(
    page: Page,
    name: str,
    asked: Mapping[str, Any],
    *,
    act_url: str,
    changed: PlannedSchedule | None = None,
    error: str = "",
) -> HttpResponse:
    names = {each: registry.find(name, each) for each in sorted(registry.names(name))}
    tasks = [each for each, handler in names.items() if handler is not None and handler.keeps_result]
    return page.render(
        "schedule",
        _("Add a schedule") if changed is None else _("Change schedule “%(name)s”") % {"name": escape(changed.name)},
        queue=name,
        tabs=tabs(page, name, "queue"),
        asked=asked,
        is_new=changed is None,
        version=asked.get(VERSION, changed.version) if changed is not None else "",
        tasks=tasks,
        handled=[each for each in names if each not in tasks],
        problem="" if changed is None or not changed.problem else text.visible(changed.problem, limit=500),
        error=text.visible(error, limit=500) if error else "",
        act_url=act_url,
        back_url=page.queue_url(name),
    )


# Actions on a schedule: pause, resume, skip a tick, fire now, delete.

#: The form field with the name of a schedule.
#: The form field with the tick that an action is about, in ms since 1970.
TICK = "tick"


def shown_tick(tick_ms: int | None) -> str:
    """Return a tick in the current time zone, with its offset: when clocks go back, an hour comes twice."""
    return "" if tick_ms is None else text.date(tick_ms)


class Done(NamedTuple):
    """The result of an action on a schedule."""

    said: str
    #: The texts of the admin's log before and after the schedule's name; empty if nothing was done.
    logged: str = ""
    more: str = ""


#: Does something to a schedule.
Action = Callable[[Page, PlannedSchedule], Done]


def _view(
    *,
    title: Any,
    sentence: Any,
    button: Any,
    of: Origin | None = None,
    tick_of: Callable[[Page, PlannedSchedule], int | None] | None = None,
) -> Callable[[Action], View]:
    """Make an action on a schedule a view, which asks before. Texts are translated when shown."""

    def decorate(do: Action) -> View:
        @needs(VIEW, OPERATE)
        def view(page: Page, name: str) -> HttpResponse:
            asked, back_url = page.request.POST.get(NAMED, ""), page.queue_url(name)
            plan = plans.find(
                name, text.from_url(asked).decode(errors="surrogateescape"), *([] if of is None else [of])
            )
            if plan is None:
                page.say(messages.WARNING, _("This schedule no longer exists."))
            elif not page.is_confirmed:
                tick_ms = None if tick_of is None else tick_of(page, plan)
                return confirm(
                    page,
                    name,
                    title % {"schedule": escape(plan.name), "tick": shown_tick(tick_ms)},
                    str(sentence),
                    str(button),
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

    return decorate


@_view(
    title=gettext_lazy("Pause schedule “%(schedule)s”?"),
    sentence=gettext_lazy(
        "Until it is resumed, it does not publish its 1 message per tick. Published messages are handled."
    ),
    button=gettext_lazy("Yes, pause it"),
)
def pause(page: Page, plan: PlannedSchedule) -> Done:
    if not schedules.pause(plan.name, queue=plan.queue, by=page.request.user.get_username()):
        return Done(_("The schedule is already paused."))
    return Done(_("The schedule is paused."), "Paused schedule")


@_view(
    title=gettext_lazy("Resume schedule “%(schedule)s”?"),
    sentence=gettext_lazy("It publishes 1 message per tick again, from the next tick on. Missed ticks do not fire."),
    button=gettext_lazy("Yes, resume it"),
)
def resume(_page: Page, plan: PlannedSchedule) -> Done:
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


@_view(
    title=gettext_lazy("Skip the tick %(tick)s of schedule “%(schedule)s”?"),
    sentence=gettext_lazy("The 1 message of this tick is not published. All other ticks stay as they are."),
    button=gettext_lazy("Yes, skip it"),
    tick_of=_tick_to_skip,
)
def skip(page: Page, plan: PlannedSchedule) -> Done:
    tick = _datetime(_tick_asked(page))
    if tick is None:
        return Done(_("The schedule has no such tick."))
    schedules.skip(plan.name, queue=plan.queue, tick=tick, by=page.request.user.get_username())
    said = _("The tick of %(tick)s is skipped.") % {"tick": shown_tick(_tick_asked(page))}
    return Done(said, "Skipped a tick of schedule", f": {tick.isoformat()}")


@_view(
    title=gettext_lazy("Let the tick %(tick)s of schedule “%(schedule)s” fire?"),
    sentence=gettext_lazy("It is no longer skipped: its 1 message is published."),
    button=gettext_lazy("Yes, let it fire"),
    tick_of=lambda page, _plan: _tick_asked(page),
)
def unskip(page: Page, plan: PlannedSchedule) -> Done:
    tick = _datetime(_tick_asked(page))
    if tick is None or not schedules.unskip(plan.name, queue=plan.queue, tick=tick):
        return Done(_("The tick is not skipped."))
    said = _("The tick of %(tick)s is not skipped any more.") % {"tick": shown_tick(_tick_asked(page))}
    return Done(said, "No longer skipped a tick of schedule", f": {tick.isoformat()}")


@_view(
    title=gettext_lazy("Fire schedule “%(schedule)s” now?"),
    sentence=gettext_lazy(
        "1 message is published at once, even while the schedule is paused. Its ticks stay as they are."
    ),
    button=gettext_lazy("Yes, fire it"),
)
def fire(_page: Page, plan: PlannedSchedule) -> Done:
    message_id = schedules.fire(plan.name, queue=plan.queue)
    return Done(_("Message %(id)s was published.") % {"id": message_id}, "Fired schedule", f": message {message_id}")


@_view(
    title=gettext_lazy("Forget schedule “%(schedule)s”?"),
    sentence=gettext_lazy("The time of its last tick is deleted. If it returns to the code, it starts anew."),
    button=gettext_lazy("Yes, forget it"),
)
def forget(_page: Page, plan: PlannedSchedule) -> Done:
    if plan.origin is not Origin.REMOVED:
        return Done(_("The schedule is in the code, so its state was not deleted."))
    plans.forget(plan)
    return Done(_("The state of the schedule was deleted."), "Forgot schedule")


@_view(
    title=gettext_lazy("Delete schedule “%(schedule)s”?"),
    sentence=gettext_lazy("It never fires again. Messages that it has published stay."),
    button=gettext_lazy("Yes, delete it"),
    of=Origin.RUNTIME,
)
def delete(_page: Page, plan: PlannedSchedule) -> Done:
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


#: The most schedules that the page of a queue shows.
MAX_ROWS = 100


def section(page: Page, name: str) -> dict[str, Any]:
    """Return the schedules of a queue as rows, and the URLs of their buttons.

    Those of partitions are on the page of the queue.
    """
    config = get_config().queue(name)
    if not config.has_schedules or config.public_name != config.name:
        return {}
    now_ms, found, total = plans.schedules(name, limit=MAX_ROWS)
    can_edit = page.can(OPERATE, SEE_DATA)
    return {
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


def _row(page: Page, plan: PlannedSchedule, now_ms: int) -> dict[str, Any]:
    entry, late = plan.entry, plan.next_ms is not None and plan.next_ms < now_ms
    can_change = plan.origin is Origin.RUNTIME and plan.problem != TAKEN and page.can(SEE_DATA)
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
        "change_url": change_url(page, plan) if can_change else "",
        "gone": plan.origin is Origin.REMOVED,
    }


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
