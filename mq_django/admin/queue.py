"""The page of one queue."""

from datetime import timedelta
from typing import Any

from django.http import HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from mq_django import inspector
from mq_django.admin import charts, text
from mq_django.admin.page import VIEW, Page, needs
from mq_django.admin.tabs import tabs
from mq_django.admin.wording import problem
from mq_django.conf import QueueConfig, get_config
from mq_django.inspector.activity import NameActivity
from mq_django.inspector.consumers import ConsumerView
from mq_django.inspector.queues import QueueView

#: What the charts cover: its name, its beginning, its middle.
SPANS = {
    "hour": (gettext_lazy("Last hour"), gettext_lazy("an hour ago"), gettext_lazy("30 min")),
    "day": (gettext_lazy("Last day"), gettext_lazy("a day ago"), gettext_lazy("12 h")),
    "week": (gettext_lazy("Last week"), gettext_lazy("a week ago"), gettext_lazy("3½ days")),
}
HOURS = {"day": 24, "week": 168}

PARTS = ("tabs", "problems", "tiles", "hour", "names", "consumers")


@needs(VIEW)
def queue(page: Page, name: str) -> HttpResponse:
    """Show a queue: where its messages are, the last hour, its consumers, its settings."""
    context = _context(page, name)
    settings = _settings(get_config().queue(name))
    live_url = f"{page.url('queue_stats', name)}?span={_span(page)}"
    return page.render("queue", name, live_url=live_url, settings=settings, **context)


@needs(VIEW)
def stats(page: Page, name: str) -> HttpResponse:
    """Return the parts of the page that change by themselves."""
    return page.parts(PARTS, _context(page, name))


def _context(page: Page, name: str) -> dict[str, Any]:
    view = inspector.queue(name)
    span = _span(page)
    activity = inspector.activity(name, hours=HOURS[span]) if span in HOURS else view.activity
    label, ago, half = SPANS[span]
    return {
        "queue": name,
        "tabs": tabs(page, name, "queue", view),
        "problems": [{"queue": name, "sentence": problem(view, what), "what": what} for what in view.problems()],
        "summary": _("The queue needs attention.") if view.problems() else _("The queue is well."),
        "tiles": _tiles(page, view),
        "spans": [
            {"label": label, "url": f"?span={key}", "is_current": key == span} for key, (label, *_rest) in SPANS.items()
        ],
        "span_label": label,
        "span_ago": ago,
        "span_half": half,
        "hour": charts.columns(activity, label=f"{label}: {charts.summary(activity)}"),
        "hour_summary": charts.summary(activity),
        "hour_top": (_("%(count)s/min") if activity.minutes == 1 else _("%(count)s/h"))
        % {"count": text.number(charts.chart_top(activity))},
        "paused": view.paused,
        "switch_url": page.url("resume" if view.paused else "pause", name),
        "names": [_name(found) for found in activity.names],
        "consumers": [_consumer(view, found) for found in view.consumers],
    }


def _span(page: Page) -> str:
    asked = page.request.GET.get("span", "")
    return asked if asked in SPANS else "hour"


def _tiles(page: Page, view: QueueView) -> list[dict[str, Any]]:
    def tile(label: str, count: int, note: str = "", url: str = "", *, bad: bool = False) -> dict[str, Any]:
        return {
            "label": label,
            "count": text.number(count),
            "note": note,
            "url": url,
            "bad": bad and count > 0,
        }

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
            oldest or (rates["published"] and _("in: %s") % rates["published"]),
            page.url("ready", view.name),
        ),
        tile(
            _("Pending"),
            view.pending,
            rates["handled"] and _("handled: %s") % rates["handled"],
            page.url("pending", view.name),
        ),
        tile(_("Delayed"), view.delayed, due, page.url("waiting", view.name, "delayed")),
        tile(
            _("Unhandled"),
            view.unhandled,
            _("no consumer has their handler") if view.unhandled else "",
            page.url("waiting", view.name, "unhandled"),
            bad=True,
        ),
        tile(_("Dead letters"), view.dead, "", page.url("dead", view.name), bad=True),
        tile(_("Consumers alive"), view.alive),
    ]


def _name(found: NameActivity) -> dict[str, Any]:
    return {
        "name": text.visible(found.name, limit=80),
        "published": text.number(found.published),
        "handled": text.number(found.handled),
        "retried": text.number(found.retried),
        "buried": text.number(found.buried),
        "p50": text.seconds(found.p50),
        "p95": text.seconds(found.p95),
    }


def _consumer(view: QueueView, found: ConsumerView) -> dict[str, Any]:
    seen = found.seen_ms_ago
    return {
        "id": text.visible(found.id, limit=80),
        "host": text.visible(found.host, limit=80),
        "pid": "" if found.pid is None else str(found.pid),
        "version": text.visible(found.version, limit=40),
        "threads": "" if found.threads is None else text.number(found.threads),
        "since": text.moment(found.since_ms, now=view.now_ms),
        "seen": "" if seen is None else _("%(time)s ago") % {"time": text.duration(seen)},
        "alive": found.alive,
    }


def _settings(config: QueueConfig) -> list[tuple[str, str]]:
    def time(value: timedelta | None) -> str:
        return _("none") if value is None else text.duration(round(value.total_seconds() * 1000))

    retry = config.retry
    return [
        (_("Visibility timeout"), time(config.visibility_timeout)),
        (_("Attempts"), text.number(retry.max_attempts or config.max_attempts)),
        (
            _("Retries"),
            _("after %(first)s, then %(factor)s times longer, at most %(longest)s")
            % {"first": time(retry.delay), "factor": f"{retry.factor:g}", "longest": time(retry.max_delay)},
        ),
        (_("Handler timeout"), time(config.timeout)),
        (_("Largest data"), text.size(config.max_size)),
        (_("Most messages"), _("no limit") if config.max_depth is None else text.number(config.max_depth)),
        (_("Results are kept for"), time(config.result_ttl)),
    ]
