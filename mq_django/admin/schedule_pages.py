"""Actions on schedules, and the forms that create and change them and their times."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from mq_django import registry
from mq_django.admin.message_pages import editable
from mq_django.admin.schedule_rows import BACK, NAMED, TICK, asked_name, change_url, shown_tick, times_of, url_back
from mq_django.admin.ui import text
from mq_django.admin.ui.page import OPERATE, SEE_DATA, VIEW, Page, View, confirm, needs, tabs
from mq_django.core.jsontext import LAST_MS, loads, whole
from mq_django.core.redaction import redact, restored
from mq_django.core.schedules import Cron, Every
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
from mq_django.inspector.action_log import OF_OPTIONS, to_undo
from mq_django.inspector.plans import MAX_REASON, Origin, PlannedSchedule
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


@needs(VIEW, SEE_DATA, OPERATE)
def add(page: Page, name: str) -> HttpResponse:
    """Show the form, and create a schedule."""
    asked = page.request.POST.dict()
    if page.request.method != "POST":
        return _form(page, name, {})
    called = str(asked.get(NAME, "")).strip()
    try:
        schedules.create(called, queue=name, by=page.username, paused=PAUSED in asked, **_options(asked, {}))
    except (ScheduleError, InvalidMessage, MissingDependency) as error:
        return _form(page, name, asked, error=str(error))
    page.log(name, f"Created schedule {called}")
    said = _("Schedule “%(name)s” was created.") % {"name": escape(called)}
    return page.leave(page.queue_url(name), said, messages.SUCCESS)


@needs(VIEW, SEE_DATA, OPERATE)
def change(page: Page, name: str) -> HttpResponse:
    """Show the form with the options of a schedule, and change them."""
    asked = page.request.POST.dict()
    called = asked_name(page)
    found = plans.find(name, called, Origin.RUNTIME)
    if found is None:
        return page.leave(page.queue_url(name), _("This schedule no longer exists, or is in the code."))
    if page.request.method != "POST":
        return _form(page, name, _written(found), changed=found)
    try:
        options: Any = {**dict.fromkeys((*TEXTS, *NUMBERS, *JSON)), **_options(asked, found.options)}
        schedules.update(called, queue=name, by=page.username, version=str(asked.get(VERSION, "")), **options)
    except (ScheduleError, InvalidMessage, MissingDependency) as error:
        return _form(page, name, asked, changed=found, error=str(error))
    page.log(name, f"Changed schedule {called}")
    said = _("Schedule “%(name)s” was changed.") % {"name": escape(called)}
    return page.leave(page.queue_url(name), said, messages.SUCCESS)


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
        act_url=page.url("schedule_add", name) if changed is None else change_url(page, changed),
        back_url=page.queue_url(name),
    )


# Actions on a schedule: pause, resume, skip a tick, fire now, delete.


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
            asked, back = page.request.POST.get(NAMED, ""), page.request.POST.get(BACK, "")
            back_url = url_back(page, name, asked, back)
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
                    back_url=back_url,
                    fields=[(NAMED, asked), (BACK, back), *([] if tick_ms is None else [(TICK, str(tick_ms))])],
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
    if not schedules.pause(plan.name, queue=plan.queue, by=page.username):
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
    is_asked = TICK in page.request.POST or TICK in page.request.GET
    return _tick_asked(page) if is_asked else plan.next_tick_ms(plan.now_ms, skipped=skipped)


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
    schedules.skip(plan.name, queue=plan.queue, tick=tick, by=page.username)
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


# Undo that a schedule was changed or deleted.

#: The field with the entry of the activity.
ENTRY = "entry"


@needs(VIEW, SEE_DATA, OPERATE)
def undo(page: Page, name: str) -> HttpResponse:
    """Bring back a deleted schedule, or the options of a schedule before a change, after confirmation."""
    found, back_url = to_undo(page.request.POST.get(ENTRY, "")), page.url("activity")
    if found is None or found.verb not in OF_OPTIONS or name not in found.queues:
        return page.leave(back_url, _("The schedule was changed or created again since, and stays as it is."))
    called, before, is_paused = str(found.undo["name"]), found.undo["options"], found.undo.get("paused") is True
    if not page.is_confirmed:
        plan = plans.find(name, called, Origin.RUNTIME)
        return _confirm_undo(page, name, called, before, found.id, plan=plan, is_paused=is_paused)
    options: Any = {**dict.fromkeys((*TEXTS, *NUMBERS, *JSON)), **before}
    try:
        if found.verb == "delete schedule":
            schedules.create(called, queue=name, by=page.username, paused=is_paused, **options)
        else:
            schedules.update(called, queue=name, by=page.username, version=str(found.undo["changed"]), **options)
    except (ScheduleError, InvalidMessage, MissingDependency) as error:
        return page.leave(back_url, _("Nothing was undone: %(error)s.") % {"error": str(error)})
    page.log(name, f"Undid: {found.verb} {called}")
    return page.leave(back_url, _("Schedule “%(name)s” is as before.") % {"name": escape(called)}, messages.SUCCESS)


def _confirm_undo(
    page: Page,
    name: str,
    called: str,
    before: Mapping[str, Any],
    entry: str,
    *,
    plan: PlannedSchedule | None,
    is_paused: bool,
) -> HttpResponse:
    if plan is None:
        title = _("Create schedule “%(name)s” again?")
        sentence = _("It is paused, as it was.") if is_paused else _("It fires again, from its next tick on.")
        samples = {"diff": text.pretty(before), "diff_title": _("Its options")}
    else:
        title, sentence = _("Change schedule “%(name)s” back?"), _("Its earlier options count from now on.")
        samples = {"diff": text.difference(redact(plan.options), before), "diff_title": _("Changes of the options")}
    return confirm(
        page,
        name,
        title % {"name": escape(called)},
        sentence,
        _("Yes, undo it"),
        back_url=page.url("activity"),
        fields=[(ENTRY, entry)],
        samples=samples,
    )


# Override the times of a schedule in code or settings.

#: The fields of the form.
OVERRIDE = ("cron", "timezone", "every", "reason")


@needs(VIEW, OPERATE)
def override(page: Page, name: str) -> HttpResponse:
    """Show the form with the times of a schedule in code or settings, and override them."""
    called, back = asked_name(page), page.request.GET.get(BACK, "")
    found, asked = plans.find(name, called), page.request.POST
    back_url = url_back(page, name, page.request.GET.get(NAMED, ""), back)
    if found is None or found.origin not in (Origin.CODE, Origin.SETTINGS):
        return page.leave(page.queue_url(name), _("This schedule is not in the code."))
    if page.request.method != "POST":
        return _override_form(page, found, _written_times(found), back_url=back_url)
    fields = {field: asked.get(field, "").strip() for field in OVERRIDE}
    if not fields["reason"]:
        return _override_form(page, found, fields, back_url=back_url, error=_("Say why, for your colleagues."))
    try:
        times = _options({field: fields[field] for field in ("cron", "timezone", "every")}, {})
        schedules.override(called, queue=name, by=page.username, reason=fields["reason"], **times)
    except (ScheduleError, MissingDependency) as error:
        return _override_form(page, found, fields, back_url=back_url, error=str(error))
    except (InvalidMessage, QueueFull) as error:
        return page.leave(back_url, _refused(page, found, error).said)
    page.log(name, f"Overrode the times of schedule {called}: {fields['reason']}")
    return page.leave(back_url, _("The schedule has other times until it is changed back."), messages.SUCCESS)


def _written_times(found: PlannedSchedule) -> dict[str, str]:
    """Return the times of a schedule as the form shows them."""
    match found.when:
        case Cron(expression, zone):
            return {"cron": expression, "timezone": zone or ""}
        case Every(period):
            return {"every": f"{period.total_seconds():g}"}
    return {}


def _override_form(
    page: Page, found: PlannedSchedule, asked: Mapping[str, str], *, back_url: str, error: str = ""
) -> HttpResponse:
    code = found.override.code if found.override is not None else found.when
    return page.render(
        "schedule_override",
        _("Other times for schedule “%(name)s”") % {"name": escape(found.name)},
        queue=found.queue,
        tabs=tabs(page, found.queue, "queue"),
        asked=asked,
        code="" if code is None else times_of(code)[0],
        error=text.visible(error, limit=500) if error else "",
        act_url=page.request.get_full_path(),
        back_url=back_url,
        longest=MAX_REASON,
    )


@_view(
    title=gettext_lazy("Change schedule “%(schedule)s” back?"),
    sentence=gettext_lazy("It has the times of the code again, from now on. Its 1 message per tick stays the same."),
    button=gettext_lazy("Yes, change it back"),
)
def restore(_page: Page, plan: PlannedSchedule) -> Done:
    if not schedules.restore(plan.name, queue=plan.queue):
        return Done(_("The schedule has the times of the code already."))
    return Done(_("The schedule has the times of the code again."), "Changed back schedule")


def _refused(page: Page, plan: PlannedSchedule, error: MQError) -> Done:
    """Return why an action was not done. An error may quote the message, which only some users may see."""
    if isinstance(error, QueueFull):
        return Done(_("The queue is at its MAX_DEPTH: no message was published."))
    if plan.origin is Origin.REMOVED:
        return Done(_("The schedule is no longer in the code."))
    if page.can(SEE_DATA):
        return Done(escape(str(error)))
    return Done(_("The schedule was just changed, or is not valid. Nothing was done."))
