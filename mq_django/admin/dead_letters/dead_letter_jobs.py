"""Redrive or delete many dead letters in the background: start, watch and cancel the job."""

from collections.abc import Sequence
from dataclasses import replace

from django.contrib import messages
from django.http import HttpResponse, HttpResponseBadRequest, HttpResponseRedirect
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.admin.ui import filter_form, job_text, text
from mq_django.admin.ui.confirm import CONFIRMED, confirm
from mq_django.admin.ui.job_pages import AT_ONCE, JobPages, work_at_once
from mq_django.admin.ui.page import OPERATE, PURGE, VIEW, Page, needs
from mq_django.consumers.supervisor.redriver import work_here
from mq_django.core.filters import Filter
from mq_django.core.visible import escape
from mq_django.inspector import dead_letters, jobs
from mq_django.inspector.dead_letters import DeadCount
from mq_django.inspector.jobs import What

REDRIVE, DELETE = "redrive", "delete"

PAGES = JobPages("dead")


@needs(VIEW, OPERATE)
def act_on_all(page: Page, name: str, what: str) -> HttpResponse:
    """Redrive or delete all matching dead letters in the background."""
    filter_form.refuse_others(page, *filter_form.FIELDS, filter_form.OF_NAME, filter_form.OF_ERROR, "until", "rate")
    if what == REDRIVE:
        return _act_on_all(page, name, "redrive")
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
    criteria, rate = filter_form.criteria(page), job_text.read_rate(filter_form.given(page, "rate") or "")
    counted = _counted(page, name, criteria)
    who = escape(request.user.get_username())
    begun = jobs.begin(name, what, who=who, criteria=criteria, until=filter_form.given(page, "until") or "", rate=rate)
    if begun.word == "nothing":
        page.say(messages.INFO, _("There are no dead letters."))
        return HttpResponseRedirect(page.url("dead", name))
    if begun.word == "busy":
        page.say(messages.WARNING, _("Another job is running. Wait until it finishes, or cancel it."))
        return HttpResponseRedirect(page.url("dead_job", name))
    verb = "redrive" if what == REDRIVE else "delete"
    description, most = filter_form.describe(page, log=True), f", at most {rate}/s" if rate else ""
    which = f" where {description}" if description else ""
    limit = "up to " if counted.at_most else ""
    page.log(name, f"Began to {verb} {limit}{text.number(counted.count)} dead letters{which}{most}")
    if begun.total <= AT_ONCE and not rate:
        work_at_once(lambda worker: work_here(name, worker))
    return HttpResponseRedirect(page.url("dead_job", name))


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
        more=job_text.in_background(),
        inputs=[job_text.rate_input()],
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
    inputs: Sequence[dict[str, str]] = (),
) -> HttpResponse:
    """Render the confirmation page to redrive or delete dead letters."""
    if what == REDRIVE:
        title = ngettext("Redrive %(count)s dead letter?", "Redrive %(count)s dead letters?", count)
        sentence = ngettext(
            "It returns to the queue and restarts at its first attempt.",
            "They return to the queue, and each restarts at its first attempt.",
            count,
        )
    else:
        title = ngettext("Delete %(count)s dead letter?", "Delete %(count)s dead letters?", count)
        sentence = _("Deleted messages cannot be restored and are never handled.")
    words = {
        REDRIVE: (_("Yes, redrive it"), _("Yes, redrive them")),
        DELETE: (_("Yes, delete it"), _("Yes, delete them")),
    }
    number = text.number(count)
    return confirm(
        page,
        name,
        title % {"count": _("up to %(count)s") % {"count": number} if at_most else number},
        tab="dead",
        sentence=f"{sentence} {more}" if more else sentence,
        button=words[what][count != 1],
        act_url=act_url,
        back_url=page.url("dead", name) + filter_form.query(page),
        fields=fields,
        listed=listed,
        unlisted=unlisted,
        dangerous=what == DELETE,
        inputs=inputs,
    )
