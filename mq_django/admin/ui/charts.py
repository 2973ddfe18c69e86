"""Charts as inline SVG: attributes and classes only, so that a strict content security policy allows them."""

from collections.abc import Iterator, Sequence
from math import ceil, floor, log10
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from mq_django.admin.ui import text
from mq_django.admin.ui.page import Page, waiting_url
from mq_django.admin.ui.text import duration, number, seconds
from mq_django.inspector.queue_view import HAPPENED, Activity, NameActivity, QueueView, Spread

#: Minutes of a sparkline.
SHORT = 30

#: The parts of a column from the bottom up, and their CSS classes.
HANDLED = (("handled", "mq-handled"), ("retried", "mq-failed"), ("buried", "mq-dead"))
PUBLISHED = (("published", "mq-handled"),)

_HEIGHT = 100

#: Seconds to draw for times in the last bucket.
_ENDLESS = 1000.0


class Chart(NamedTuple):
    """A chart, and the labels of its scale from the top down."""

    svg: SafeString
    scale: Sequence[str]


def sparkline(values: Sequence[int], *, label: str) -> SafeString:
    """Return a sparkline of counts per minute. Without the current minute, where the line would drop.

    `label` is a sentence with the number of minutes and the sum of the counts.
    """
    shown = values[-SHORT - 1 : -1]
    label = label % {"minutes": SHORT, "count": number(sum(shown))}
    top = max(*shown, 1)
    points = " ".join(f"{step * 4},{22 - 20 * value / top:.1f}" for step, value in enumerate(shown))
    return format_html(
        '<svg class="mq-spark" viewBox="0 0 {} 24" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<polygon points="0,24 {} {},24"/><polyline points="{}"/></svg>',
        (len(shown) - 1) * 4,
        label,
        points,
        (len(shown) - 1) * 4,
        points,
    )


def queue_cells(page: Page, view: QueueView, *, troubled: bool) -> dict[str, Any]:
    """Return what each table of queues, of partitions and of groups shows of one."""
    urls = {f"{state}_url": page.url("messages", view.name, state) for state in ("ready", "pending", "dead")}
    return {
        "name": view.name,
        "url": page.queue_url(view.name),
        "error": view.error,
        "troubled": troubled,
        "paused": _paused(view),
        "ready": number(view.ready),
        "pending": number(view.pending),
        "waiting": number(view.delayed + view.unhandled + view.parked),
        "waiting_url": waiting_url(page, view),
        "dead": number(view.dead),
        "has_dead": view.dead > 0,
        **urls,
        "alive": number(view.alive),
        "oldest": "" if view.waited_ms is None else duration(view.waited_ms),
        "handled": text.rate(view.activity.per_minute("handled")),
    }


def _paused(view: QueueView) -> str:
    """Return that a queue, or some of its partitions, is paused; "" if none is."""
    if view.paused or not view.paused_parts:
        return _("paused") if view.paused else ""
    return _("%(count)s of %(total)s paused") % {"count": number(view.paused_parts), "total": number(len(view.parts))}


def columns(activity: Activity, *, label: str, stacks: Sequence[tuple[str, str]] = HANDLED) -> Chart:
    """Return a chart with a column per step, and a line of published messages if it shows handled ones."""
    steps = range(len(activity.published))
    counts = [[getattr(activity, what)[step] for what, _ in stacks] for step in steps]
    top = _top(max(*map(sum, counts), *activity.published, 2))
    bars = format_html_join(
        "",
        '<g><title>{}</title><rect class="mq-column" x="{}" y="0" width="10" height="100"/>{}</g>',
        ((column_title(activity, step), step * 10, _stack(step, counts[step], stacks, top)) for step in steps),
    )
    line = SafeString("")
    if stacks is HANDLED:
        heights = (_HEIGHT - _HEIGHT * count / top for count in activity.published)
        points = " ".join(f"{step * 10 + 5},{height:.1f}" for step, height in enumerate(heights))
        line = format_html('<polyline class="mq-published" points="{}"/>', points)
    per = _("%(count)s/min") if activity.minutes == 1 else _("%(count)s/h")
    scale = [per % {"count": number(top)}, number(top / 2), "0"]
    return Chart(_frame(len(steps), label, [50], bars + line), scale)


def _stack(step: int, counts: Sequence[int], stacks: Sequence[tuple[str, str]], top: int) -> SafeString:
    def rows() -> Iterator[tuple[str, int, str, str]]:
        below = 0
        for (_what, kind), count in zip(stacks, counts, strict=True):
            below += count
            if count:
                yield kind, step * 10 + 1, f"{_HEIGHT - _HEIGHT * below / top:.1f}", f"{_HEIGHT * count / top:.1f}"

    return format_html_join("", '<rect class="{}" x="{}" y="{}" width="8" height="{}"/>', rows())


def spreads(steps: Sequence[Spread], activity: Activity, *, label: str, kind: str, endless: str = "") -> Chart:
    """Return a chart of times on a logarithmic scale: for each step a bar from p50 to p95, with p50 marked."""
    known = [min(value, _ENDLESS) for spread in steps for value in spread if value is not None]
    low, high = (floor(log10(max(min(known), 1e-5))), ceil(log10(max(known)))) if known else (-3, 0)
    high = max(high, low + 1)

    def height(value: float | None) -> float:
        exponent = log10(max(min(value or 0, _ENDLESS), 10**low))
        return _HEIGHT - _HEIGHT * (exponent - low) / (high - low)

    def rows() -> Iterator[tuple[str, int, SafeString]]:
        for step, spread in enumerate(steps):
            bar = SafeString("")
            if spread.p50 is not None:
                foot, head = height(spread.p50), height(spread.p95)
                bar = format_html(
                    '<rect class="{}" x="{}" y="{}" width="8" height="{}"/>'
                    '<rect class="mq-half" x="{}" y="{}" width="10" height="2"/>',
                    *(kind, step * 10 + 1, f"{head:.1f}", f"{max(foot - head, 1):.1f}"),
                    *(step * 10, f"{min(foot, _HEIGHT - 2):.1f}"),
                )
            yield spread_title(activity, step, spread, endless), step * 10, bar

    column = '<g><title>{}</title><rect class="mq-column" x="{}" y="0" width="10" height="100"/>{}</g>'
    decades = [_HEIGHT * decade / (high - low) for decade in range(1, high - low)]
    scale = [_power(exponent) for exponent in range(high, low - 1, -1)]
    return Chart(_frame(len(steps), label, decades, format_html_join("", column, rows())), scale)


def _power(exponent: int) -> str:
    """Return a power of ten of seconds, as the label of a scale."""
    if exponent < 0:
        return _("%(count)s ms") % {"count": f"{10.0 ** (exponent + 3):g}"}
    return _("%(count)s s") % {"count": number(10**exponent)}


def _frame(steps: int, label: str, lines: Sequence[float], inside: SafeString) -> SafeString:
    width = steps * 10
    grid = format_html_join(
        "", '<line x1="0" y1="{}" x2="{}" y2="{}"/>', ((f"{at:.1f}", width, f"{at:.1f}") for at in lines)
    )
    return format_html(
        '<svg class="mq-hour" viewBox="0 0 {} 100" preserveAspectRatio="none" role="img" aria-label="{}">{}{}</svg>',
        *(width, label, grid, inside),
    )


def meter(share: float, *, label: str, bad: bool) -> SafeString:
    """Return a bar that is filled by a share of at most 1."""
    return format_html(
        '<svg class="mq-meter{}" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<rect class="mq-meter-all" width="100" height="8"/><rect class="mq-meter-part" width="{}" height="8"/></svg>',
        *(" mq-meter-bad" if bad else "", label, f"{100 * min(1.0, max(0.0, share)):.1f}"),
    )


#: Even, because a chart also names the half.
_TOPS = (2, 4, 6, 8, 10, 12, 16, 20, 30, 40, 50, 60, 80, 100)


def _top(highest: int) -> int:
    """Return the count at the top of a chart: a round one, not much above the highest."""
    scale: int = 10 ** max(0, len(str(highest)) - 2)
    return next(top * scale for top in _TOPS if top * scale >= highest)


def summary(activity: Activity) -> str:
    """Return the text alternative of a chart."""
    said = _("%(published)s published, %(handled)s handled, %(retried)s failed and retried, %(buried)s buried.")
    said %= {what: number(sum(getattr(activity, what))) for what in HAPPENED}
    times = _("Handling time: p50 %(half)s, p95 %(most)s.")
    return f"{said} {_with_times(times, activity.took)}".strip()


def endless_latency() -> str:
    """Return the text for a latency in the last bucket."""
    return _("over 70 min")


def _with_times(sentence: str, spread: Spread, *, endless: str = "") -> str:
    if spread.p50 is None:
        return ""
    return sentence % {"half": seconds(spread.p50, endless=endless), "most": seconds(spread.p95, endless=endless)}


def ago(activity: Activity, step: int) -> str:
    """Return how long ago a step began."""
    return duration((len(activity.published) - 1 - step) * activity.minutes * 60_000)


def column_title(activity: Activity, step: int) -> str:
    """Return the activity of a step as text."""
    words = _("%(ago)s ago: %(published)s published, %(handled)s handled, %(retried)s retried, %(buried)s buried")
    return words % {"ago": ago(activity, step), **{what: number(getattr(activity, what)[step]) for what in HAPPENED}}


def spread_title(activity: Activity, step: int, spread: Spread, endless: str) -> str:
    """Return the times of a step as text."""
    if spread.p50 is None:
        return _("%(ago)s ago: nothing") % {"ago": ago(activity, step)}
    words = _("p50 %(half)s, p95 %(most)s")
    when = _("%(time)s ago") % {"time": ago(activity, step)}
    return f"{when}: {_with_times(words, spread, endless=endless)}"


# The charts of a page: their time span and message name.

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
    endless = endless_latency()
    took = _with_times(_("p50 %(half)s, p95 %(most)s."), activity.took)
    waited = _with_times(_("Latency: p50 %(half)s, p95 %(most)s."), activity.waited, endless=endless)
    times = [
        (_("Handling time"), activity.took_each, took, "mq-took", ""),
        (_("Latency"), activity.waited_each, waited, "mq-waited", endless),
    ]
    return {
        "throughput": columns(activity, label=f"{label}: {summary(activity)}"),
        "throughput_summary": summary(activity),
        "times": [
            {
                "title": title,
                "said": said or _("No messages were handled."),
                "chart": spreads(steps, activity, label=f"{title}, {label}: {said}", kind=kind, endless=most),
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
        **{what: number(getattr(found, what)) for what in HAPPENED},
        "took": _times(found.took),
        "waited": _times(found.waited, endless_latency()),
    }


def figures(activity: Activity) -> list[dict[str, Any]]:
    """Return the charts as rows of a table, the newest first, without steps that have no activity."""
    rows = []
    for index in reversed(range(len(activity.published))):
        counts = [getattr(activity, what)[index] for what in HAPPENED]
        if any(counts):
            times = _times(activity.took_each[index]) + _times(activity.waited_each[index], endless_latency())
            rows.append({"ago": ago(activity, index), "counts": [*map(text.number, counts)], "times": times})
    return rows


def _times(spread: Sequence[float | None], endless: str = "") -> list[str]:
    return [text.seconds(value, endless=endless) for value in spread]
