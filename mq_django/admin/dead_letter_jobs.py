"""Redrive, move or delete many dead letters in the background: start, watch and cancel the job."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.http import HttpResponse, HttpResponseBadRequest, HttpResponseRedirect
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.admin.ui import filter_form, job_pages, text
from mq_django.admin.ui.confirm import CONFIRMED, confirm
from mq_django.admin.ui.job_pages import AT_ONCE, JobPages, work_at_once
from mq_django.admin.ui.page import OPERATE, PURGE, VIEW, Page, needs
from mq_django.consumers.supervisor.redriver import work_here
from mq_django.core.filters import Filter
from mq_django.core.texts import escape
from mq_django.errors import InvalidFilter
from mq_django.inspector import dead_letters, jobs, moves
from mq_django.inspector.dead_letters import DeadCount
from mq_django.inspector.jobs import What

REDRIVE, MOVE, DELETE = "redrive", "move", "delete"

#: The form field with the queue to which dead letters are moved.
TARGET = "target"

PAGES = JobPages("dead")


@needs(VIEW, OPERATE)
def act_on_all(page: Page, name: str, what: str) -> HttpResponse:
    """Redrive, move or delete all matching dead letters in the background."""
    own = ("until", "rate", *([TARGET] if what == MOVE else []))
    filter_form.refuse_others(page, *filter_form.FIELDS, filter_form.OF_NAME, filter_form.OF_ERROR, *own)
    if what == REDRIVE:
        return _act_on_all(page, name, "redrive")
    if what == MOVE:
        return _act_on_all(page, name, "move")
    if what == DELETE:
        return _delete_all(page, name=name)
    return HttpResponseBadRequest()


@needs(VIEW, OPERATE, PURGE)
def _delete_all(page: Page, name: str) -> HttpResponse:
    return _act_on_all(page, name, "delete")


def _act_on_all(page: Page, name: str, what: What) -> HttpResponse:
    request = page.request
    if request.method != "POST" or CONFIRMED not in request.POST:
        return _ask(page, name, what)
    criteria, rate = filter_form.criteria(page), job_pages.read_rate(filter_form.given(page, "rate") or "")
    counted = _counted(page, name, criteria)
    target = chosen_target(page, name) if what == MOVE else ""
    which: dict[str, Any] = {"criteria": criteria, "until": filter_form.given(page, "until") or "", "target": target}
    begun = jobs.begin(name, what, who=escape(request.user.get_username()), rate=rate, **which)
    if begun.word == "nothing":
        page.say(messages.INFO, _("There are no dead letters."))
        return HttpResponseRedirect(page.url("dead", name))
    if begun.word == "busy":
        page.say(messages.WARNING, _("Another job is running. Wait until it finishes, or cancel it."))
        return HttpResponseRedirect(page.url("dead_job", name))
    _log(page, name, counted, what, target, rate)
    if begun.total <= AT_ONCE and not rate:
        work_at_once(lambda worker: work_here(name, worker))
    return HttpResponseRedirect(page.url("dead_job", name))


def _log(page: Page, name: str, counted: DeadCount, what: What, target: str, rate: int) -> None:
    description, most = filter_form.describe(page, log=True), f", at most {rate}/s" if rate else ""
    which = f" where {description}" if description else ""
    limit, where = "up to " if counted.at_most else "", f" to {target}" if target else ""
    page.log(name, f"Began to {what} {limit}{text.number(counted.count)} dead letters{where}{which}{most}")


def chosen_target(page: Page, name: str) -> str:
    """Return the queue to which a user moves dead letters.

    Raises:
        InvalidFilter: none was selected, or one to which they cannot be moved.
    """
    target = filter_form.given(page, TARGET) or ""
    if target not in moves.targets(name):
        raise InvalidFilter(_("Select the queue to which the dead letters are moved."))
    return target


def _ask(page: Page, name: str, what: What) -> HttpResponse:
    criteria, terms = filter_form.criteria(page), filter_form.asked(page)
    found = _counted(page, name, criteria)
    if not found.count:
        page.say(messages.INFO, _("There are no dead letters."))
        return HttpResponseRedirect(page.url("dead", name))
    description = filter_form.describe(page)
    return confirm_act(
        page,
        name,
        what,
        found.count,
        act_url=page.url("dead_all", name, what),
        fields=[("until", found.until), *terms.items()],
        listed=[text.visible(description, limit=1000)] if description else [],
        at_most=found.at_most,
        more=job_pages.in_background(),
        inputs=[job_pages.rate_input()],
    )


def _counted(page: Page, name: str, criteria: Filter) -> DeadCount:
    """Return how many dead letters match: exactly for all, or for one group; for other filters, at most how many."""
    found = dead_letters.count(name, until=filter_form.given(page, "until") or "")
    if not criteria:
        return found
    if criteria.group is not None and len(filter_form.asked(page)) == len(filter_form.group_terms(criteria.group)):
        counted = dead_letters.count_group(name, criteria.group)
        if counted is not None:
            return replace(found, count=counted)
    return replace(found, at_most=True)


def confirm_act(
    page: Page,
    name: str,
    what: str,
    count: int,
    *,
    act_url: str,
    fields: list[tuple[str, str]],
    listed: Sequence[SafeString] = (),
    unlisted: int = 0,
    at_most: bool = False,
    more: str = "",
    inputs: Sequence[Mapping[str, Any]] = (),
) -> HttpResponse:
    """Render the confirmation page to redrive, move or delete dead letters."""
    title, sentence, button = _question(what, count)
    if what == MOVE:
        inputs = [_target_input(name), *inputs]
    number = text.number(count)
    return confirm(
        page,
        name,
        title % {"count": _("up to %(count)s") % {"count": number} if at_most else number},
        tab="dead",
        sentence=f"{sentence} {more}" if more else sentence,
        button=button,
        act_url=act_url,
        back_url=page.url("dead", name) + filter_form.query(page),
        fields=fields,
        listed=listed,
        unlisted=unlisted,
        dangerous=what == DELETE,
        inputs=inputs,
    )


def _question(what: str, count: int) -> tuple[str, str, str]:
    """Return the title, the sentence and the button of the confirmation page of an action."""
    if what == REDRIVE:
        title = ngettext("Redrive %(count)s dead letter?", "Redrive %(count)s dead letters?", count)
        sentence = ngettext(
            "It returns to the queue and restarts at its first attempt.",
            "They return to the queue, and each restarts at its first attempt.",
            count,
        )
    elif what == MOVE:
        title = ngettext(
            "Move %(count)s dead letter to another queue?", "Move %(count)s dead letters to another queue?", count
        )
        sentence = ngettext(
            "It becomes ready in the queue that you select, and restarts at its first attempt.",
            "They become ready in the queue that you select, and each restarts at its first attempt.",
            count,
        )
    else:
        title = ngettext("Delete %(count)s dead letter?", "Delete %(count)s dead letters?", count)
        sentence = _("Deleted messages cannot be restored and are never handled.")
    words = {
        REDRIVE: (_("Yes, redrive it"), _("Yes, redrive them")),
        MOVE: (_("Yes, move it"), _("Yes, move them")),
        DELETE: (_("Yes, delete it"), _("Yes, delete them")),
    }
    return title, sentence, words[what][count != 1]


def _target_input(name: str) -> dict[str, Any]:
    """Return the field for the queue to which dead letters are moved."""
    return {
        "name": TARGET,
        "label": _("To queue"),
        "choices": moves.targets(name),
        "help": _("It needs handlers for these messages. Without one, they wait."),
    }
