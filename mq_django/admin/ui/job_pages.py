"""The pages of a queue's background jobs: watch one, cancel it, and run it in the request if it is short."""

import secrets
import time
from collections.abc import Callable
from typing import Any, get_args

from django.contrib import messages
from django.http import Http404, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _

from mq_django.admin.ui import filter_form, text
from mq_django.admin.ui.confirm import CONFIRMED, confirm
from mq_django.admin.ui.page import OPERATE, SEE_DATA, VIEW, Page, needs, tabs
from mq_django.core.texts import escape
from mq_django.errors import InvalidFilter
from mq_django.inspector import jobs
from mq_django.inspector.jobs import BackgroundJob, JobPlace, pace_of
from mq_django.inspector.queues import quick_stats

# Background jobs as text: what they do, how far they are, and the fields of their forms.

#: The highest rate that can be entered.
MAX_RATE = 1_000_000


def rate_input() -> dict[str, str]:
    """Return the field for the rate of a job, for a confirmation page."""
    shown = {"name": "rate", "label": _("Rate (messages/s)"), "value": "", "help": _("Empty = unlimited.")}
    return {**shown, "max": str(MAX_RATE)}


def scanned(found: BackgroundJob) -> str:
    """Return how many messages a job has scanned, of how many."""
    return _("%(count)s of %(total)s") % {"count": text.number(found.looked), "total": text.number(found.total)}


def pace(found: BackgroundJob) -> str:
    """Return how far a running job is, how fast, and when it ends if it continues like this; else empty."""
    paced = pace_of(found)
    if paced is None:
        return ""
    per_second, left_ms = paced
    return _("Scanned %(scanned)s, %(count)s/s, about %(time)s left.") % {
        "scanned": scanned(found),
        "count": text.number(max(1, per_second)),
        "time": text.duration(left_ms),
    }


def progress(found: BackgroundJob) -> str:
    """Return what a job does, or did, and to how many messages."""
    order, done = found.order, text.number(found.done)
    sentences: dict[tuple[str, str], str] = {
        ("redrive", "running"): _("Redriving: %(done)s so far."),
        ("redrive", "finished"): _("Redriven: %(done)s dead letters."),
        ("redrive", "cancelled"): _("Cancelled after %(done)s dead letters were redriven."),
        ("move", "running"): _("Moving to %(target)s: %(done)s so far."),
        ("move", "finished"): _("Moved to %(target)s: %(done)s dead letters."),
        ("move", "cancelled"): _("Cancelled after %(done)s dead letters were moved to %(target)s."),
        ("delete", "running"): _("Deleting: %(done)s so far."),
        ("delete", "finished"): _("Deleted: %(done)s dead letters."),
        ("delete", "cancelled"): _("Cancelled after %(done)s dead letters were deleted."),
        ("purge", "running"): _("Deleting messages: %(done)s so far."),
        ("purge", "finished"): _("Deleted: %(done)s messages."),
        ("purge", "cancelled"): _("Cancelled after %(done)s messages were deleted."),
    }
    what = order.what if order.place == "dead" else "purge"
    return sentences[what, found.state] % {"done": done, "target": escape(order.target)[:160]}


def summary(found: BackgroundJob) -> str:
    """Return what a job does or did, to how many messages, and how far it is while it runs."""
    return f"{progress(found)} {pace(found)}".strip()


def filter_text(found: BackgroundJob, *, can_see_data: bool) -> str:
    """Return the filter of a job as text. Keys and errors may contain message data."""
    criteria, place = found.order.criteria, found.order.place
    all_of_them = {
        "dead": _("All dead letters at the start of the job."),
        "ready": _("Ready messages at the start of the job."),
        "delayed": _("Delayed messages at the start of the job."),
        "unhandled": _("Unhandled messages at the start of the job."),
        "parked": _("Parked messages at the start of the job."),
    }[place]
    if not criteria:
        return all_of_them
    name, error = criteria.group or ("", "")
    terms = {
        "name": criteria.name,
        "key": criteria.key,
        "error": criteria.error,
        "from": "" if criteria.since_ms is None else text.date(criteria.since_ms),
        "to": "" if criteria.until_ms is None else text.date(criteria.until_ms),
        filter_form.OF_NAME: name,
        filter_form.OF_ERROR: error,
    }
    known = {field: value for field, value in terms.items() if value}
    selected = filter_form.described(known, can_see_data=can_see_data)
    return selected if place == "dead" else f"{all_of_them} {selected}"


def read_rate(value: str) -> int:
    """Return the rate in messages per second, 0 for no limit. Invalid input must not mean no limit."""
    if not value:
        return 0
    if not (value.isdecimal() and len(value) < 10 and 0 < int(value) <= MAX_RATE):
        raise InvalidFilter(_("A rate is a number from 1 to %(most)s.") % {"most": text.number(MAX_RATE)})
    return int(value)


# The pages of a queue's background jobs: watch one, cancel it, and run it in the request if it is short.

#: A job on up to this many messages is run by the request itself, for up to this many seconds.
AT_ONCE, SECONDS = 1000, 1.0

PARTS = ("tabs", "job")


def work_at_once(step: Callable[[str], float]) -> None:
    """Run a short job in this request. `step` gets a worker; it returns 0 while another step can follow at once."""
    worker, deadline = f"admin-{secrets.token_hex(4)}", time.monotonic() + SECONDS
    while not step(worker) and time.monotonic() < deadline:
        pass


def place_of(word: str) -> JobPlace:
    """Return the place in an address.

    Raises:
        Http404: jobs are on no such place.
    """
    for place in get_args(JobPlace):
        if word == place:
            found: JobPlace = place
            return found
    raise Http404


def running_jobs(page: Page, name: str, found: tuple[BackgroundJob, ...]) -> list[dict[str, str]]:
    """Return the running jobs of a queue, for the overview and the queue's page."""
    return [{"queue": name, "line": summary(job), "url": page.url("job", name, job.order.place)} for job in found]


def job_line(page: Page, name: str, place: JobPlace) -> dict[str, Any]:
    """Return the summary of the job for the list of messages that it is on."""
    found = jobs.look(name, place)
    if found is None:
        return {}
    return {
        "job_line": summary(found),
        "job_runs": found.state == "running",
        "job_url": page.url("job", name, place),
    }


@needs(VIEW)
def show(page: Page, name: str, place: str) -> HttpResponse:
    """Show the running job of a place, or the last one."""
    live_url = page.url("job_stats", name, place)
    return page.render("job", _("Background job"), live_url=live_url, **_context(page, name, place_of(place)))


@needs(VIEW)
def stats(page: Page, name: str, place: str) -> HttpResponse:
    """Return the live parts of the page."""
    return page.parts(PARTS, _context(page, name, place_of(place)))


@needs(VIEW)
def latest(page: Page, name: str) -> HttpResponse:
    """Go to the page of the running job, or the last one, whatever its place: an old address says none."""
    found = max(jobs.look_all(name).values(), key=lambda job: (job.state == "running", job.since_ms), default=None)
    return HttpResponseRedirect(page.queue_url(name) if found is None else page.url("job", name, found.order.place))


@needs(VIEW, OPERATE)
def cancel(page: Page, name: str, place: str) -> HttpResponse:
    """Cancel the job, after confirmation."""
    where, back_url = place_of(place), page.url("job", name, place)
    found = jobs.look(name, where)
    if found is None or found.state != "running":
        page.say(messages.INFO, _("No job is running."))
        return HttpResponseRedirect(back_url)
    if page.request.method != "POST" or CONFIRMED not in page.request.POST:
        others = _("The other dead letters are kept.") if where == "dead" else _("The other messages are kept.")
        changes = _("%(progress)s Changes made so far stay.") % {"progress": progress(found)}
        return confirm(
            page,
            name,
            _("Cancel the job?"),
            tab=where,
            sentence=f"{changes} {others}",
            button=_("Yes, cancel it"),
            act_url=page.url("job_cancel", name, where),
            back_url=back_url,
        )
    if jobs.cancel(name, where):
        page.say(messages.SUCCESS, _("The job was cancelled."))
        page.log(name, f"Cancelled a job of {found.order.who}: {progress(found)}")
    return HttpResponseRedirect(back_url)


def _context(page: Page, name: str, place: JobPlace) -> dict[str, Any]:
    found, view = jobs.look(name, place), quick_stats(name)
    frame = {
        "queue": name,
        "tabs": tabs(page, name, place, view),
        "list_url": page.url("messages", name, place),
        "list_label": _("Back to the dead letters") if place == "dead" else _("Back to the messages"),
    }
    if found is None:
        return {"job": None, "summary": _("There is no job."), **frame}
    runs, can_see_data = found.state == "running", page.can(SEE_DATA)
    return {
        "job": found,
        "job_runs": runs,
        "job_is_idle": runs and not view.alive,
        "job_filter": text.visible(filter_text(found, can_see_data=can_see_data), limit=1000),
        "job_facts": [(label, value) for label, value in _facts(found) if value],
        # Numbers for attributes, without separators.
        "job_value": str(found.total if found.state == "finished" else min(found.looked, found.total)),
        "job_max": str(max(1, found.total)),
        "summary": summary(found),
        "cancel_url": page.url("job_cancel", name, place),
        **frame,
    }


def _facts(found: BackgroundJob) -> list[tuple[str, Any]]:
    return [
        (_("To queue"), text.visible(found.order.target, limit=160) if found.order.target else ""),
        (_("Started by"), text.visible(found.order.who, limit=100)),
        (_("Started"), text.moment(found.since_ms)),
        (_("Last step") if found.state == "running" else _("Ended"), text.moment(found.changed_ms)),
        (_("Rate limit"), _("%(count)s/s") % {"count": text.number(found.rate)} if found.rate else ""),
        (_("Worker"), text.visible(found.worker, limit=100) if found.worker else ""),
        (_("Scanned"), scanned(found)),
        (_("No longer existed"), text.number(found.missing) if found.missing else ""),
        (
            _("Refused") if found.order.target else _("Not valid messages"),
            text.number(found.refused) if found.refused else "",
        ),
    ]
