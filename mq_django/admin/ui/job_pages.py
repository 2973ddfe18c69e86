"""The page of a queue's background job: watch it, cancel it, and start it in the request if it is short."""

import secrets
import time
from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _

from mq_django.admin.ui import job_text, text
from mq_django.admin.ui.confirm import CONFIRMED, confirm
from mq_django.admin.ui.page import OPERATE, SEE_DATA, VIEW, Page, needs
from mq_django.admin.ui.tabs import tabs
from mq_django.inspector import jobs
from mq_django.inspector.jobs import BackgroundJob, Kind
from mq_django.inspector.queues import quick_stats

#: A job on up to this many messages is run by the request itself, for up to this many seconds.
AT_ONCE, SECONDS = 1000, 1.0

PARTS = ("tabs", "job")


def work_at_once(step: Callable[[str], float]) -> None:
    """Run a short job in this request. `step` gets a worker; it returns 0 while another step can follow at once."""
    worker, deadline = f"admin-{secrets.token_hex(4)}", time.monotonic() + SECONDS
    while not step(worker) and time.monotonic() < deadline:
        pass


def job_url(page: Page, name: str, found: BackgroundJob) -> str:
    """Return the URL of a job's page."""
    return page.url("message_job" if found.place else "dead_job", name)


def running_jobs(page: Page, name: str, found: tuple[BackgroundJob, ...]) -> list[dict[str, str]]:
    """Return the running jobs of a queue, for the overview and the queue's page."""
    return [
        {
            "queue": name,
            "line": f"{job_text.progress(job)} {job_text.pace(job)}".strip(),
            "url": job_url(page, name, job),
        }
        for job in found
    ]


class JobPages:
    """The views of one kind of job."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._route = "dead_job" if kind == "dead" else "message_job"
        #: The page, its live parts as JSON, and cancelling.
        self.show, self.stats = needs(VIEW)(self._show), needs(VIEW)(self._stats)
        self.cancel = needs(VIEW, OPERATE)(self._cancel)

    def _show(self, page: Page, name: str) -> HttpResponse:
        """Show the running job, or the last one."""
        live_url = page.url(f"{self._route}_stats", name)
        return page.render("job", _("Background job"), live_url=live_url, **self._context(page, name))

    def _stats(self, page: Page, name: str) -> HttpResponse:
        """Return the live parts of the page."""
        return page.parts(PARTS, self._context(page, name))

    def _cancel(self, page: Page, name: str) -> HttpResponse:
        """Cancel the job, after confirmation."""
        back_url = page.url(self._route, name)
        found = jobs.look(name, self._kind)
        if found is None or found.state != "running":
            page.say(messages.INFO, _("No job is running."))
            return HttpResponseRedirect(back_url)
        if page.request.method != "POST" or CONFIRMED not in page.request.POST:
            others = _("The other messages are kept.") if found.place else _("The other dead letters are kept.")
            changes = _("%(progress)s Changes made so far stay.") % {"progress": job_text.progress(found)}
            return confirm(
                page,
                name,
                _("Cancel the job?"),
                tab=self._tab(found),
                sentence=f"{changes} {others}",
                button=_("Yes, cancel it"),
                act_url=page.url(f"{self._route}_cancel", name),
                back_url=back_url,
            )
        if jobs.cancel(name, self._kind):
            page.say(messages.SUCCESS, _("The job was cancelled."))
            page.log(name, f"Cancelled a job of {found.who}: {job_text.progress(found)}")
        return HttpResponseRedirect(back_url)

    def line(self, page: Page, name: str, place: str = "") -> dict[str, Any]:
        """Return the summary of the job for a list of messages, if it is on these."""
        found = jobs.look(name, self._kind)
        if found is None or found.place != place:
            return {}
        return {
            "job_line": f"{job_text.progress(found)} {job_text.pace(found)}".strip(),
            "job_runs": found.state == "running",
            "job_url": page.url(self._route, name),
        }

    def _tab(self, found: BackgroundJob | None) -> str:
        if self._kind == "dead":
            return "dead"
        return found.place if found is not None and found.place else "queue"

    def _list_url(self, page: Page, name: str, found: BackgroundJob | None) -> str:
        tab = self._tab(found)
        if tab == "queue":
            return page.queue_url(name)
        return page.url(tab, name) if tab in ("dead", "ready") else page.url("waiting", name, tab)

    def _context(self, page: Page, name: str) -> dict[str, Any]:
        found, view = jobs.look(name, self._kind), quick_stats(name)
        frame = {
            "queue": name,
            "tabs": tabs(page, name, self._tab(found), view),
            "list_url": self._list_url(page, name, found),
            "list_label": _("Back to the dead letters") if self._kind == "dead" else _("Back to the messages"),
        }
        if found is None:
            return {"job": None, "summary": _("There is no job."), **frame}
        runs, can_see_data = found.state == "running", page.can(SEE_DATA)
        return {
            "job": found,
            "job_runs": runs,
            "job_is_idle": runs and not view.alive,
            "job_filter": text.visible(job_text.filter_text(found, can_see_data=can_see_data), limit=1000),
            "job_facts": [(label, value) for label, value in _facts(found) if value],
            # Numbers for attributes, without separators.
            "job_value": str(found.total if found.state == "finished" else min(found.looked, found.total)),
            "job_max": str(max(1, found.total)),
            "summary": f"{job_text.progress(found)} {job_text.pace(found)}".strip(),
            "cancel_url": page.url(f"{self._route}_cancel", name),
            **frame,
        }


def _facts(found: BackgroundJob) -> list[tuple[str, Any]]:
    return [
        (_("To queue"), text.visible(found.target, limit=160) if found.target else ""),
        (_("Started by"), text.visible(found.who, limit=100)),
        (_("Started"), text.moment(found.since_ms)),
        (_("Last step") if found.state == "running" else _("Ended"), text.moment(found.changed_ms)),
        (_("Rate limit"), _("%(count)s/s") % {"count": text.number(found.rate)} if found.rate else ""),
        (_("Worker"), text.visible(found.worker, limit=100) if found.worker else ""),
        (_("Scanned"), job_text.scanned(found)),
        (_("No longer existed"), text.number(found.missing) if found.missing else ""),
        (
            _("Refused") if found.target else _("Not valid messages"),
            text.number(found.refused) if found.refused else "",
        ),
    ]
