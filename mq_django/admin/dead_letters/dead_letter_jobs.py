"""Redrive or delete many dead letters in the background: start, watch and cancel the job."""

import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.http import HttpResponse, HttpResponseBadRequest, HttpResponseRedirect
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.admin.ui import filter_form, text
from mq_django.admin.ui.confirm import CONFIRMED, confirm
from mq_django.admin.ui.page import OPERATE, PURGE, SEE_DATA, VIEW, Page, needs
from mq_django.admin.ui.references import HIDDEN
from mq_django.admin.ui.tabs import tabs
from mq_django.consumers.supervisor.redriver import work_here
from mq_django.core.filters import FailureGroup, Filter, is_exception
from mq_django.core.visible import escape
from mq_django.errors import InvalidFilter
from mq_django.inspector import dead_letters, jobs
from mq_django.inspector.dead_letters import DeadCount
from mq_django.inspector.jobs import BackgroundJob, What
from mq_django.inspector.queues import quick_stats

#: A job on up to this many dead letters is run by the request itself, for up to this many seconds.
AT_ONCE, SECONDS = 1000, 1.0

#: The highest rate that can be entered.
MAX_RATE = 1_000_000

REDRIVE, DELETE = "redrive", "delete"

PARTS = ("tabs", "job")


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
    criteria, rate = filter_form.criteria(page), _rate(filter_form.given(page, "rate") or "")
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
        _work_at_once(name)
    return HttpResponseRedirect(page.url("dead_job", name))


def _work_at_once(name: str) -> None:
    worker, deadline = f"admin-{secrets.token_hex(4)}", time.monotonic() + SECONDS
    # It returns 0 while there is another step to run at once.
    while not work_here(name, worker) and time.monotonic() < deadline:
        pass


def _ask(page: Page, name: str, what: What) -> HttpResponse:
    criteria, terms = filter_form.criteria(page), filter_form.asked(page)
    found = _counted(page, name, criteria)
    if not found.count:
        page.say(messages.INFO, _("There are no dead letters."))
        return HttpResponseRedirect(page.url("dead", name))
    description = filter_form.describe(page)
    rate = {"name": "rate", "label": _("Rate (messages/s)"), "value": "", "help": _("Empty = unlimited.")}
    return confirm_act(
        page,
        name,
        what,
        found.count,
        act_url=page.url("dead_all", name, what),
        fields=[("until", found.until), *terms.items()],
        listed=[text.visible(description, limit=1000)] if description else [],
        at_most=found.at_most,
        more=_("It runs in the background. You can follow its progress and cancel it."),
        inputs=[{**rate, "max": str(MAX_RATE)}],
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


@needs(VIEW)
def job(page: Page, name: str) -> HttpResponse:
    """Show the running job, or the last one."""
    return page.render(
        "dead_job",
        _("Background job"),
        live_url=page.url("dead_job_stats", name),
        **_context(page, name),
    )


@needs(VIEW)
def stats(page: Page, name: str) -> HttpResponse:
    """Return the live parts of the page."""
    return page.parts(PARTS, _context(page, name))


@needs(VIEW, OPERATE)
def cancel(page: Page, name: str) -> HttpResponse:
    """Cancel the job, after confirmation."""
    back_url = page.url("dead_job", name)
    found = jobs.look(name)
    if found is None or found.state != "running":
        page.say(messages.INFO, _("No job is running."))
        return HttpResponseRedirect(back_url)
    if page.request.method != "POST" or CONFIRMED not in page.request.POST:
        return confirm(
            page,
            name,
            _("Cancel the job?"),
            tab="dead",
            sentence=_("%(progress)s Changes made so far stay. The other dead letters are kept.")
            % {"progress": _progress(found)},
            button=_("Yes, cancel it"),
            act_url=page.url("dead_job_cancel", name),
            back_url=back_url,
        )
    if jobs.cancel(name):
        page.say(messages.SUCCESS, _("The job was cancelled."))
        page.log(name, f"Cancelled a job of {found.who}: {_progress(found)}")
    return HttpResponseRedirect(back_url)


def job_line(page: Page, name: str) -> dict[str, Any]:
    """Return the summary of the job for the list of dead letters."""
    found = jobs.look(name)
    if found is None:
        return {}
    return {
        "job_line": _progress(found),
        "job_runs": found.state == "running",
        "job_url": page.url("dead_job", name),
    }


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


def _context(page: Page, name: str) -> dict[str, Any]:
    found, view = jobs.look(name), quick_stats(name)
    frame = {"queue": name, "tabs": tabs(page, name, "dead", view), "list_url": page.url("dead", name)}
    if found is None:
        return {"job": None, "summary": _("There is no job."), **frame}
    runs = found.state == "running"
    is_idle = runs and not view.alive
    facts = [
        (_("Started by"), text.visible(found.who, limit=100)),
        (_("Started"), text.moment(found.since_ms)),
        (_("Last step") if runs else _("Ended"), text.moment(found.changed_ms)),
        (_("Rate limit"), _("%(count)s/s") % {"count": text.number(found.rate)} if found.rate else ""),
        (_("Worker"), text.visible(found.worker, limit=100) if found.worker else ""),
        (_("Scanned"), _of(found.looked, found.total)),
        (_("No longer existed"), text.number(found.missing) if found.missing else ""),
        (_("Not valid messages"), text.number(found.refused) if found.refused else ""),
    ]
    return {
        "job": found,
        "job_runs": runs,
        "job_is_idle": is_idle,
        "job_line": _progress(found),
        "job_filter": text.visible(_filter_text(found, can_see_data=page.can(SEE_DATA)), limit=1000),
        "job_facts": [(label, value) for label, value in facts if value],
        # Numbers for attributes, without separators.
        "job_value": str(found.total if found.state == "finished" else min(found.looked, found.total)),
        "job_max": str(max(1, found.total)),
        "summary": _progress(found),
        "cancel_url": page.url("dead_job_cancel", name),
        **frame,
    }


def _of(count: int, total: int) -> str:
    return _("%(count)s of %(total)s") % {"count": text.number(count), "total": text.number(total)}


def _progress(found: BackgroundJob) -> str:
    sentences: dict[tuple[str, str], str] = {
        ("redrive", "running"): _("Redriving: %(done)s so far."),
        ("redrive", "finished"): _("Redriven: %(done)s dead letters."),
        ("redrive", "cancelled"): _("Cancelled after %(done)s dead letters were redriven."),
        ("delete", "running"): _("Deleting: %(done)s so far."),
        ("delete", "finished"): _("Deleted: %(done)s dead letters."),
        ("delete", "cancelled"): _("Cancelled after %(done)s dead letters were deleted."),
    }
    return sentences[found.what, found.state] % {"done": text.number(found.done)}


def _filter_text(found: BackgroundJob, *, can_see_data: bool) -> str:
    """Return the filter of a job as text. Keys and errors may contain message data."""
    criteria = found.criteria
    if not criteria:
        return _("All dead letters at the start of the job.")
    group = criteria.group
    words = [
        (_("name contains “%s”"), criteria.name),
        (_("key is “%s”"), criteria.key if can_see_data or not criteria.key else HIDDEN),
        (_("error contains “%s”"), criteria.error if can_see_data or not criteria.error else HIDDEN),
        (_("published from %s"), "" if criteria.since_ms is None else text.date(criteria.since_ms)),
        (_("published until %s"), "" if criteria.until_ms is None else text.date(criteria.until_ms)),
        (_("name is “%s”"), group.name if group else ""),
        (_("error is “%s”"), _group_error(group, can_see_data=can_see_data)),
    ]
    return ", ".join(word % value for word, value in words if value)


def _group_error(group: FailureGroup | None, *, can_see_data: bool) -> str:
    if group is None or not group.error or can_see_data or is_exception(group.error):
        return group.error if group else ""
    return HIDDEN


def _rate(value: str) -> int:
    """Return the rate in messages per second, 0 for no limit. Invalid input must not mean no limit."""
    if not value:
        return 0
    if not (value.isdecimal() and len(value) < 10 and 0 < int(value) <= MAX_RATE):
        raise InvalidFilter(_("A rate is a number from 1 to %(most)s.") % {"most": text.number(MAX_RATE)})
    return int(value)
