"""Create and change schedules that are kept in Redis."""

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _

from mq_django import registry
from mq_django.admin.dead_letters.dead_letter_editing import editable
from mq_django.admin.ui import text
from mq_django.admin.ui.page import OPERATE, SEE_DATA, VIEW, Page, needs
from mq_django.admin.ui.tabs import tabs
from mq_django.core.exceptions import repr_of
from mq_django.core.jsontext import loads
from mq_django.core.redaction import redact, restored
from mq_django.core.visible import escape
from mq_django.errors import DecodeError, InvalidMessage, InvalidSchedule, MissingDependency, ScheduleError
from mq_django.inspector import plans
from mq_django.inspector.plans import Origin, PlannedSchedule
from mq_django.producers.schedule_collection import ScheduleCollection

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
        page.say(messages.WARNING, _("This schedule no longer exists, or is in the code."))
        return HttpResponseRedirect(page.queue_url(name))
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
