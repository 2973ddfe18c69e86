"""The charts of a page: their time span and message name."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from mq_django.admin.ui import charts, text
from mq_django.admin.ui.page import Page
from mq_django.inspector.activity import Activity, NameActivity

#: The spans of charts: label, label of the start, label of the middle.
SPANS = {
    "hour": (gettext_lazy("Last hour"), gettext_lazy("an hour ago"), gettext_lazy("30 min")),
    "day": (gettext_lazy("Last day"), gettext_lazy("a day ago"), gettext_lazy("12 h")),
    "week": (gettext_lazy("Last week"), gettext_lazy("a week ago"), gettext_lazy("3½ days")),
}
HOURS = {"day": 24, "week": 168}

#: The most names that a page lists.
MAX_NAMES = 50


def span_of(page: Page) -> str:
    """Return the selected time span."""
    asked = page.request.GET.get("span", "")
    return asked if asked in SPANS else "hour"


def name_of(page: Page) -> str:
    """Return the selected message name; empty for all."""
    return page.request.GET.get("of", "")[:400]


def query(span: str, name: str) -> str:
    """Return the query string of a span and name."""
    return "?" + urlencode({"span": span, **({"of": name} if name else {})})


def frame(page: Page, figures_url: str) -> dict[str, Any]:
    """Return the links to other spans, and back to all messages."""
    span, name = span_of(page), name_of(page)
    label, ago, half = SPANS[span]
    return {
        "spans": [
            {"label": words[0], "url": query(key, name), "is_current": key == span} for key, words in SPANS.items()
        ],
        "span_label": label,
        "span_ago": ago,
        "span_half": half,
        "of": text.visible(name, limit=80) if name else "",
        "of_all_url": query(span, ""),
        "figures_url": figures_url + query(span, name),
    }


def queue_charts(activity: Activity, label: str) -> dict[str, Any]:
    """Return the charts of a queue: activity, handling times and latencies."""
    endless = charts.endless_latency()
    times = [
        (_("Handling time"), activity.took_each, charts.took_summary(activity), "mq-took", ""),
        (_("Latency"), activity.waited_each, charts.latency_summary(activity), "mq-waited", endless),
    ]
    return {
        "throughput": charts.columns(activity, label=f"{label}: {charts.summary(activity)}"),
        "throughput_summary": charts.summary(activity),
        "times": [
            {
                "title": title,
                "said": said or _("No messages were handled."),
                "chart": charts.spreads(steps, activity, label=f"{title}, {label}: {said}", kind=kind, endless=most),
            }
            for title, steps, said, kind, most in times
        ],
    }


def names(page: Page, activity: Activity) -> dict[str, Any]:
    """Return the table of activity by name, the busiest first."""
    span, chosen = span_of(page), name_of(page)
    rows = [_name(found, query(span, found.name), found.name == chosen) for found in activity.names[:MAX_NAMES]]
    unlisted = len(activity.names) - len(rows)
    return {"names": rows, "unlisted_names": text.number(unlisted) if unlisted else ""}


def _name(found: NameActivity, url: str, is_chosen: bool) -> dict[str, Any]:
    return {
        "name": text.visible(found.name, limit=80),
        "url": url,
        "is_chosen": is_chosen,
        "published": text.number(found.published),
        "handled": text.number(found.handled),
        "retried": text.number(found.retried),
        "buried": text.number(found.buried),
        "took": _times(found.took),
        "waited": _times(found.waited, charts.endless_latency()),
    }


def figures(activity: Activity) -> list[dict[str, Any]]:
    """Return the charts as rows of a table, the newest first, without steps that have no activity."""
    rows = []
    for place in reversed(range(len(activity.published))):
        counts = [getattr(activity, what)[place] for what in ("published", "handled", "retried", "buried")]
        if any(counts):
            times = _times(activity.took_each[place]) + _times(activity.waited_each[place], charts.endless_latency())
            rows.append({"ago": charts.ago(activity, place), "counts": [*map(text.number, counts)], "times": times})
    return rows


def _times(spread: Sequence[float | None], endless: str = "") -> list[str]:
    return [text.seconds(value, endless=endless) for value in spread]
