"""The page of one queue."""

from typing import Any

from django.http import HttpResponse
from django.utils.translation import gettext as _

from mq_django import inspector
from mq_django.admin.queues import limits_section, schedules_page
from mq_django.admin.topics import group_section
from mq_django.admin.ui import charts, spans, text
from mq_django.admin.ui.job_pages import running_jobs
from mq_django.admin.ui.page import VIEW, Page, needs
from mq_django.admin.ui.settings_section import settings_of
from mq_django.admin.ui.tabs import tabs, waiting_url
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.inspector.activity import Activity
from mq_django.inspector.consumers import ConsumerView
from mq_django.inspector.problem_sentences import sentence
from mq_django.inspector.queue_view import RECENT, QueueView
from mq_django.inspector.queues import quick_stats

PARTS = (
    "tabs",
    "jobs",
    "problems",
    "tiles",
    "place",
    "partitions",
    "charts",
    "names",
    "limits",
    "keys",
    "schedules",
    "consumers",
)

#: Parts that only some queues have.
NOT_ALWAYS = ("place", "partitions", "limits", "keys", "schedules")


@needs(VIEW)
def queue(page: Page, name: str) -> HttpResponse:
    """Show a queue or a group of a topic: message counts, activity, limits, schedules and consumers."""
    live_url = page.url("queue_stats", name) + spans.query(spans.span_of(page), spans.name_of(page))
    return page.render("queue", name, live_url=live_url, settings=settings_of(name), **_context(page, name))


@needs(VIEW)
def stats(page: Page, name: str) -> HttpResponse:
    """Return the live parts of the page."""
    context = _context(page, name)
    return page.parts([part for part in PARTS if part not in NOT_ALWAYS or part in context], context)


@needs(VIEW)
def figures(page: Page, name: str) -> HttpResponse:
    """Show the charts of a queue as a table."""
    view, activity = _look(page, name)
    return page.render(
        "figures",
        _("Figures"),
        queue=name,
        tabs=tabs(page, name, "queue", view),
        figures=spans.figures(activity),
        said=charts.summary(activity),
        **spans.frame(page, ""),
    )


def _look(page: Page, name: str) -> tuple[QueueView, Activity]:
    span, of = spans.span_of(page), spans.name_of(page)
    if span not in spans.HOURS:
        # Problems and rates are those of all names.
        view = inspector.queue(name)
        return view, inspector.queue(name, of=of).activity if of else view.activity
    view = quick_stats(name, minutes=RECENT + 1)
    return view, view.activity if view.error else inspector.activity(name, hours=spans.HOURS[span], of=of)


def _context(page: Page, name: str) -> dict[str, Any]:
    view, activity = _look(page, name)
    problems = [{"queue": name, "sentence": sentence(view, what), "what": what} for what in view.problems()]
    context = {
        "queue": name,
        "tabs": tabs(page, name, "queue", view),
        "tiles": _tiles(page, view),
        "jobs": [job for part in view.each_part for job in running_jobs(page, part.name, part.jobs)],
        "paused": view.paused,
        "switch_url": page.url("resume" if view.paused else "pause", name),
        # Some of its partitions are paused, others are not.
        "resume_url": page.url("resume", name) if view.paused_parts and not view.paused else "",
        "purge_url": page.url("purge", name, "ready"),
        "consumers": [_consumer(view, found) for found in view.consumers],
        "consume": view.consume,
        "housekeepers": [text.visible(found.host or found.id, limit=80) for found in view.housekeepers],
        **spans.frame(page, page.url("figures", name)),
        **spans.queue_charts(activity, str(spans.SPANS[spans.span_of(page)][0])),
        **spans.names(page, activity),
    }
    if view.parts:
        context["partitions"] = [_partition(page, part) for part in view.parts]
    if not view.error:
        place = group_section.section(page, name) if GROUP_SEPARATOR in name else {}
        scheduled = schedules_page.section(page, name)
        problems = place.pop("alarms", []) + scheduled.pop("alarms", []) + problems
        context |= {**place, **limits_section.section(page, name), **scheduled}
    summary = _("The queue needs attention.") if problems else _("No problems found.")
    return {**context, "problems": problems, "summary": summary}


def _tiles(page: Page, view: QueueView) -> list[dict[str, Any]]:
    def tile(label: str, count: int, note: str = "", url: str = "", *, bad: bool = False) -> dict[str, Any]:
        return {
            "label": label,
            "count": text.number(count),
            "note": note,
            "url": url,
            "bad": bad and count > 0,
        }

    # Without limits of keys there are no parked messages.
    parked = []
    if view.parked:
        url = page.url("waiting", view.name, "parked")
        parked.append(tile(_("Parked"), view.parked, _("in the lines of their keys"), url))
    oldest = "" if view.oldest_ms is None else _("oldest: %(time)s") % {"time": text.duration(view.oldest_ms)}
    due = ""
    if view.next_due_ms is not None:
        in_time = _("next: in %(time)s") % {"time": text.duration(view.next_due_ms)}
        due = in_time if view.next_due_ms else _("next: now")
    rates = {what: text.rate(view.activity.per_minute(what)) for what in ("published", "handled")}
    return [
        tile(
            _("Ready"),
            view.ready,
            oldest or (rates["published"] and _("published: %s") % rates["published"]),
            page.url("ready", view.name),
        ),
        tile(
            _("Pending"),
            view.pending,
            _fetched(view) or (rates["handled"] and _("handled: %s") % rates["handled"]),
            page.url("pending", view.name),
        ),
        tile(_("Delayed"), view.delayed, due, page.url("waiting", view.name, "delayed")),
        tile(
            _("Unhandled"),
            view.unhandled,
            _("no consumer has a handler") if view.unhandled else "",
            page.url("waiting", view.name, "unhandled"),
            bad=True,
        ),
        *parked,
        tile(_("Dead letters"), view.dead, "", page.url("dead", view.name), bad=True),
        tile(_("Running consumers"), view.alive, _lanes(view)),
    ]


def _partition(page: Page, view: QueueView) -> dict[str, Any]:
    """Return a row of the table of a queue's partitions."""
    return {
        "name": view.name,
        "url": page.queue_url(view.name),
        "error": view.error,
        "troubled": bool(view.problems()),
        "paused": view.paused,
        "ready": text.number(view.ready),
        "ready_url": page.url("ready", view.name),
        "waiting": text.number(view.delayed + view.unhandled + view.parked),
        "waiting_url": waiting_url(page, view),
        "pending": text.number(view.pending),
        "pending_url": page.url("pending", view.name),
        "dead": text.number(view.dead),
        "has_dead": view.dead > 0,
        "dead_url": page.url("dead", view.name),
        "alive": text.number(view.alive),
        "oldest": "" if view.waited_ms is None else text.duration(view.waited_ms),
        "handled": text.rate(view.activity.per_minute("handled")),
    }


def _fetched(view: QueueView) -> str:
    """Return how many of the pending messages have not started, and for how long the oldest of them has waited."""
    if not view.fetched:
        return ""
    words = {"count": text.number(view.fetched)}
    if view.fetched_ms is None:
        return _("not started: %(count)s") % words
    return _("not started: %(count)s, oldest: %(time)s") % {**words, "time": text.duration(view.fetched_ms)}


def _lanes(view: QueueView) -> str:
    if not view.alive or view.threads is None:
        return ""
    return _("threads busy: %(lanes)s") % {"lanes": text.lanes(*view.threads)}


def _consumer(view: QueueView, found: ConsumerView) -> dict[str, Any]:
    seen = found.seen_ms_ago
    return {
        "id": text.visible(found.id, limit=80),
        "host": text.visible(found.host, limit=80),
        "pid": "" if found.pid is None else str(found.pid),
        "version": text.visible(found.version, limit=40),
        "threads": text.lanes(found.busy, found.threads),
        "since": text.moment(found.since_ms, now=view.now_ms),
        "seen": "" if seen is None else _("%(time)s ago") % {"time": text.duration(seen)},
        "alive": found.alive,
    }
