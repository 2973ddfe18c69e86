"""The pages of ready and pending messages."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from mq_django.admin.messages.message_jobs import PAGES
from mq_django.admin.messages.message_rows import facts, listed
from mq_django.admin.messages.running_cancel import source_of
from mq_django.admin.ui import filter_form, text
from mq_django.admin.ui.message_search import found_at_once
from mq_django.admin.ui.page import SEE_DATA, VIEW, Page, needs
from mq_django.admin.ui.progress_bar import bar_of
from mq_django.admin.ui.tabs import tabs
from mq_django.inspector import actions, entries, explain
from mq_django.inspector.cause_sentences import why
from mq_django.inspector.message_views import EntryView
from mq_django.inspector.queues import queue as look_at
from mq_django.inspector.queues import quick_stats
from mq_django.inspector.run_times import RunTimes, run_time, run_times
from mq_django.inspector.scan import Scanned

#: Messages per page.
PER_PAGE = 50

TITLES = {"ready": gettext_lazy("Ready messages"), "pending": gettext_lazy("Pending messages")}


@needs(VIEW)
def ready(page: Page, name: str) -> HttpResponse:
    """Show a page of the ready messages, in the order of delivery."""
    return _listing(page, name, "ready", entries.ready)


@needs(VIEW)
def pending(page: Page, name: str) -> HttpResponse:
    """Show a page of the pending messages."""
    return _listing(page, name, "pending", entries.pending)


def _listing(page: Page, name: str, place: str, read: Callable[..., Scanned[EntryView]]) -> HttpResponse:
    message_id, after = page.request.GET.get("id", "").strip(), page.request.GET.get("after", "")
    if message_id and not after:
        url = found_at_once(page, name, message_id)
        if url:
            return HttpResponseRedirect(url)
    found = read(name, filter_form.criteria(page, message_id), after=after, limit=PER_PAGE)
    view = quick_stats(name)
    times = run_times(view) if place == "pending" else {}
    return page.render(
        "entries",
        str(TITLES[place]),
        queue=name,
        place=place,
        tabs=tabs(page, name, place, view),
        rows=[_row(page, name, row, times) for row in found.rows],
        purge_url="" if message_id else page.url("purge", name, "ready") + filter_form.query(page),
        **(PAGES.line(page, name, "ready") if place == "ready" else {}),
        **filter_form.shown(page, message_id=message_id),
        **filter_form.progress(page, found, message_id=message_id),
    )


@needs(VIEW)
def message(page: Page, name: str, source: str, entry: str) -> HttpResponse:
    """Show a ready or pending message, and why it is not running."""
    view = entries.get(name, source_of(source), text.from_url(entry))
    if view is None:
        page.say(messages.WARNING, _("The message is no longer here: it was handled, retried or deleted."))
        return HttpResponseRedirect(page.url("ready", name))
    place = "pending" if view.consumer else "ready"
    cause = explain.why_entry(view, look_at(name))
    runs = cause.kind == "running"
    return page.render(
        "message",
        _("Message"),
        queue=name,
        tabs=tabs(page, name, place),
        is_running=runs,
        cancel_url=page.url("cancel_running", name, source, entry) if actions.can_cancel_running(name) else "",
        progress=bar_of(name, view.message.id, can_see_data=page.can(SEE_DATA)),
        why=why(cause, name=view.message.name, can_see_data=page.can(SEE_DATA)),
        **facts(
            view.message,
            can_see_data=page.can(SEE_DATA),
            first=[
                (_("Attempt"), str(view.message.attempt)),
                (_("Consumer"), text.visible(view.consumer) if view.consumer else ""),
                (_("Running for"), text.duration(cause.ms) if runs else ""),
                (
                    _("Lease extended"),
                    _("%(time)s ago") % {"time": text.duration(view.held_ms)} if view.consumer else "",
                ),
            ],
            last=[(_("Ready since"), text.moment(view.ready_ms))],
        ),
    )


def _row(page: Page, name: str, view: EntryView, times: RunTimes) -> dict[str, Any]:
    ms = run_time(view, times)
    return {
        "url": page.url("entry", name, view.source, text.to_url(view.entry)),
        "since": text.moment(view.ready_ms),
        "priority": view.message.priority or "",
        "consumer": text.visible(view.consumer, limit=60),
        "running": "" if ms is None else text.duration(ms),
        **listed(view.message, can_see_data=page.can(SEE_DATA)),
    }
