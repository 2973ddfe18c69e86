"""The page of all queues."""

from typing import Any, get_args

from django.http import HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django import inspector
from mq_django.admin.topics import topic_pages
from mq_django.admin.ui import charts, text
from mq_django.admin.ui.labels import problem
from mq_django.admin.ui.page import VIEW, Page, needs
from mq_django.admin.ui.tabs import sections
from mq_django.inspector.queue_view import Problem, QueueView

PARTS = ("problems", "rows", "topics")

WORST_FIRST = get_args(Problem)


@needs(VIEW)
def overview(page: Page) -> HttpResponse:
    """Show all queues, problems first."""
    context = _context(page)
    return page.render("overview", _("Queues"), live_url=page.url("stats"), **context)


@needs(VIEW)
def stats(page: Page) -> HttpResponse:
    """Return the live parts of the page."""
    context = _context(page)
    return page.parts([part for part in PARTS if part != "topics" or context[part]], context)


def _context(page: Page) -> dict[str, Any]:
    views = inspector.overview()
    problems = [(what, view) for view in views for what in view.problems()]
    problems.sort(key=lambda found: WORST_FIRST.index(found[0]))
    rows, alarms = topic_pages.overview(page, views)
    troubled = len({*(alarm["queue"] for alarm in alarms), *(view.name for _what, view in problems)})
    return {
        "tabs": sections(page, "queues"),
        "rows": [_row(page, view) for view in views if not topic_pages.is_group(view)],
        "topics": rows,
        "problems": alarms
        + [
            {
                "queue": view.name,
                "url": page.queue_url(view.name),
                "sentence": problem(view, what),
                "what": what,
            }
            for what, view in problems
        ],
        "summary": ngettext("%(count)s queue needs attention.", "%(count)s queues need attention.", troubled)
        % {"count": troubled}
        if troubled
        else _("No problems found."),
    }


def waiting_url(page: Page, view: QueueView) -> str:
    """Return the URL of the first list of waiting messages that is not empty."""
    room = "unhandled" if view.unhandled else "parked" if view.parked else "delayed"
    return page.url("waiting", view.name, "delayed" if view.delayed else room)


def _row(page: Page, view: QueueView) -> dict[str, Any]:
    waiting = view.delayed + view.unhandled + view.parked
    return {
        "name": view.name,
        "url": page.queue_url(view.name),
        "error": view.error,
        "troubled": bool(view.problems()),
        "consume": view.consume,
        "ready": text.number(view.ready),
        "waiting": text.number(waiting),
        "waiting_url": waiting_url(page, view),
        "ready_url": page.url("ready", view.name),
        "pending_url": page.url("pending", view.name),
        "pending": text.number(view.pending),
        "dead": text.number(view.dead),
        "has_dead": view.dead > 0,
        "dead_url": page.url("dead", view.name),
        "alive": text.number(view.alive),
        "oldest": "" if view.oldest_ms is None else text.duration(view.oldest_ms),
        "published": text.rate(view.activity.per_minute("published")),
        "handled": text.rate(view.activity.per_minute("handled")),
        "errors": text.percent(view.error_share),
        "has_errors": view.fails_often,
        "chart": charts.sparkline(
            view.activity.handled,
            label=_("Handled in the last %(minutes)s minutes: %(count)s")
            % {"minutes": charts.SHORT, "count": text.number(sum(view.activity.handled[-charts.SHORT - 1 : -1]))},
        ),
    }
