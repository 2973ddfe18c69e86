"""Charts as inline SVG: attributes and classes only, so that a strict content security policy allows them."""

from collections.abc import Iterator, Sequence
from math import ceil, floor, log10
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.utils.formats import date_format, time_format
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext

from mq_django.admin.ui import text
from mq_django.admin.ui.page import Page, state_labels, waiting_url
from mq_django.admin.ui.text import duration, number, seconds
from mq_django.core import clock
from mq_django.inspector.problem_sentences import local
from mq_django.inspector.queue_view import HAPPENED, Activity, NameActivity, Period, QueueView, Spread

#: Minutes of a sparkline.
SHORT = 30

#: The parts of a column from the bottom up, and their CSS classes.
HANDLED = (("handled", "mq-handled"), ("retried", "mq-failed"), ("buried", "mq-dead"))
PUBLISHED = (("published", "mq-handled"),)

_HEIGHT = 100

#: Seconds to draw for times in the last bucket.
_ENDLESS = 1000.0


class Chart(NamedTuple):
    """A chart, the labels of its scale from the top down, and the times of its clock."""

    svg: SafeString
    scale: Sequence[str]
    clock: Sequence[str]


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
        return pgettext("queue", "paused") if view.paused else ""
    return _("%(count)s of %(total)s paused") % {"count": number(view.paused_parts), "total": number(len(view.parts))}


class Mark(NamedTuple):
    """A time that is marked in a chart, and what happened then."""

    ms: int
    sentence: str
    #: The end of a span, which is shaded.
    until_ms: int | None = None

    def is_in(self, activity: Activity, step: int) -> bool:
        """Return whether it is in a step, or a part of it."""
        step_ms = activity.minutes * 60_000
        start = activity.since_ms + step * step_ms
        return self.ms < start + step_ms and start <= (self.ms if self.until_ms is None else self.until_ms)


def columns(
    activity: Activity,
    *,
    label: str,
    stacks: Sequence[tuple[str, str]] = HANDLED,
    before: Activity | None = None,
    marks: Sequence[Mark] = (),
) -> Chart:
    """Return a chart with a column per step, and a line of published messages if it shows handled ones.

    With the activity of a time `before` it also has a line of what was handled then.
    """
    steps = range(len(activity.published))
    counts = [[getattr(activity, what)[step] for what, _ in stacks] for step in steps]
    top = _top(max(*map(sum, counts), *activity.published, *(before.handled if before else ()), 2))
    bars = format_html_join(
        "",
        '<g><title>{}</title><rect class="mq-column" x="{}" y="0" width="10" height="100"/>{}</g>',
        (
            (_with_marks(column_title(activity, step), activity, step, marks), step * 10, stack)
            for step, stack in zip(steps, (_stack(step, counts[step], stacks, top) for step in steps), strict=True)
        ),
    )
    line = SafeString("")
    if stacks is HANDLED:
        line = _line(activity.published, top, "mq-published")
    if before is not None:
        line += _line(before.handled, top, "mq-before")
    line += _marked(activity, marks)
    per = _("%(count)s/min") if activity.minutes == 1 else _("%(count)s/h")
    scale = [per % {"count": number(top)}, number(top / 2), "0"]
    return Chart(_frame(activity, label, [50], _shaded(activity, marks) + bars + line), scale, clock_of(activity))


def _with_marks(title: str, activity: Activity, step: int, marks: Sequence[Mark]) -> str:
    return " · ".join([title, *(mark.sentence for mark in marks if mark.is_in(activity, step))])


def _shaded(activity: Activity, marks: Sequence[Mark]) -> SafeString:
    """Return the spans behind the columns, which have their sentences."""
    end = len(activity.published) * 10.0

    def at(ms: int) -> float:
        return min(end, max(0.0, (ms - activity.since_ms) / (activity.minutes * 6000)))

    spans = [(at(mark.ms), at(mark.until_ms)) for mark in marks if mark.until_ms is not None]
    parts = ((f"{start:.1f}", f"{max(0.5, until - start):.1f}") for start, until in spans)
    return format_html_join("", '<rect class="mq-shaded" x="{}" y="0" width="{}" height="100"/>', parts)


def _line(counts: Sequence[int | None], top: int, kind: str) -> SafeString:
    """Return lines through the counts that are known."""
    runs: list[list[str]] = [[]]
    for step, count in enumerate(counts):
        if count is None:
            runs.append([])
        else:
            runs[-1].append(f"{step * 10 + 5},{_HEIGHT - _HEIGHT * count / top:.1f}")
    # A single point is a short line.
    each = ((kind, " ".join(run if len(run) > 1 else [*run, *run])) for run in runs if run)
    return format_html_join("", '<polyline class="{}" points="{}"/>', each)


def _marked(activity: Activity, marks: Sequence[Mark]) -> SafeString:
    step_ms = activity.minutes * 60_000
    points = (mark for mark in marks if mark.until_ms is None)
    at = ((f"{(mark.ms - activity.since_ms) / step_ms * 10:.1f}", mark.sentence) for mark in points)
    return format_html_join(
        "", '<g class="mq-mark"><title>{1}</title><line x1="{0}" y1="0" x2="{0}" y2="100"/></g>', at
    )


def depths(activity: Activity, *, label: str) -> Chart:
    """Return a chart with a line for each state: the maximum of messages in it in each step."""
    steps = range(len(activity.published))
    top = _top(max(2, *(count or 0 for each in activity.depth.values() for count in each)))
    titles = ((depth_title(activity, step), step * 10) for step in steps)
    column = '<g><title>{}</title><rect class="mq-column" x="{}" y="0" width="10" height="100"/></g>'
    lines = [_line(counts, top, f"mq-depth mq-depth-{state}") for state, counts in activity.depth.items()]
    inside = format_html_join("", column, titles) + format_html_join("", "{}", ((each,) for each in lines))
    return Chart(_frame(activity, label, [50], inside), [number(top), number(top / 2), "0"], clock_of(activity))


def depth_title(activity: Activity, step: int) -> str:
    """Return the messages by state of a step as text."""
    names = state_labels()
    counts = {names[state]: each[step] for state, each in activity.depth.items()}
    said = ", ".join(f"{name} {number(count)}" for name, count in counts.items() if count is not None)
    return f"{when(activity, step)}: {said}" if said else _("%(time)s: unknown") % {"time": when(activity, step)}


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
    return Chart(_frame(activity, label, decades, format_html_join("", column, rows())), scale, clock_of(activity))


def _power(exponent: int) -> str:
    """Return a power of ten of seconds, as the label of a scale."""
    if exponent < 0:
        return _("%(count)s ms") % {"count": f"{10.0 ** (exponent + 3):g}"}
    return _("%(count)s s") % {"count": number(10**exponent)}


def _frame(activity: Activity, label: str, lines: Sequence[float], inside: SafeString) -> SafeString:
    width = len(activity.published) * 10
    grid = format_html_join(
        "", '<line x1="0" y1="{}" x2="{}" y2="{}"/>', ((f"{at:.1f}", width, f"{at:.1f}") for at in lines)
    )
    return format_html(
        '<svg class="mq-hour" viewBox="0 0 {} 100" preserveAspectRatio="none" role="img" aria-label="{}" '
        'data-mq-since="{}" data-mq-step="{}">{}{}</svg>',
        *(width, label, str(activity.since_ms), str(activity.minutes * 60_000), grid, inside),
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


#: The parts into which the times of an axis divide it.
PARTS = 6


def clock_of(activity: Activity) -> list[str]:
    """Return the times of the axis of a chart at equal distances, from its start to its end."""
    length_ms = len(activity.published) * activity.minutes * 60_000
    times = [_short(activity.since_ms + part * length_ms // PARTS, activity) for part in range(PARTS + 1)]
    return [*times[:-1], _("now") if activity.elapsed < 1.0 else times[-1]]


def _short(ms: int, activity: Activity) -> str:
    """Return a time of a chart: the date is left out where the chart covers a day, and the time where it has none."""
    when = local(ms)
    if when is None:
        return ""
    hours, has_time = time_format(when, "TIME_FORMAT"), activity.minutes < 1440
    if len(activity.published) * activity.minutes <= 1440:
        return hours
    return f"{date_format(when, 'MONTH_DAY_FORMAT')} {hours}" if has_time else date_format(when, "MONTH_DAY_FORMAT")


def when(activity: Activity, step: int) -> str:
    """Return when a step began."""
    return _short(activity.since_ms + step * activity.minutes * 60_000, activity)


def column_title(activity: Activity, step: int) -> str:
    """Return the activity of a step as text."""
    words = _("%(time)s: %(published)s published, %(handled)s handled, %(retried)s retried, %(buried)s buried")
    return words % {"time": when(activity, step), **{what: number(getattr(activity, what)[step]) for what in HAPPENED}}


def spread_title(activity: Activity, step: int, spread: Spread, endless: str) -> str:
    """Return the times of a step as text."""
    if spread.p50 is None:
        return _("%(time)s: nothing") % {"time": when(activity, step)}
    words = _("p50 %(half)s, p95 %(most)s")
    return f"{when(activity, step)}: {_with_times(words, spread, endless=endless)}"


# The charts of a page: their time span and message name.

#: The spans of charts, and their labels.
SPANS = {
    "hour": gettext_lazy("Last hour"),
    "day": gettext_lazy("Last day"),
    "week": gettext_lazy("Last week"),
}
HOURS = {"day": 24, "week": 168}


def period(span: str) -> Period:
    """Return the time that a span covers, up to now."""
    return Period.up_to(clock.now_ms(), slot=60, steps=HOURS[span])


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
    return {
        "spans": [{"label": label, "url": query(key, name), "is_current": key == span} for key, label in SPANS.items()],
        "span_label": SPANS[span],
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
    rows = [
        {**name_cells(found), "url": query(span, found.name), "is_chosen": found.name == chosen}
        for found in activity.names[:MAX_NAMES]
    ]
    return {
        "names": rows,
        "unlisted_names": text.beyond(len(activity.names), MAX_NAMES),
        "names_left_out": activity.names_left_out,
    }


def name_cells(found: NameActivity) -> dict[str, Any]:
    """Return what a table shows of a name: its counts and times."""
    return {
        "name": text.visible(found.name, limit=80),
        **{what: number(getattr(found, what)) for what in HAPPENED},
        "took": _times(found.took),
        "waited": _times(found.waited, endless_latency()),
    }


def figures(activity: Activity, marks: Sequence[Mark] = ()) -> list[dict[str, Any]]:
    """Return the charts as rows of a table, the newest first, without steps that have neither activity nor marks."""
    rows = []
    for index in reversed(range(len(activity.published))):
        counts = [getattr(activity, what)[index] for what in HAPPENED]
        depth = [each[index] for each in activity.depth.values()]
        marked = [mark.sentence for mark in marks if mark.is_in(activity, index)]
        if any(counts) or any(depth) or marked:
            took, waited = (each[index] if each else Spread() for each in (activity.took_each, activity.waited_each))
            times = _times(took) + _times(waited, endless_latency())
            rows.append(
                {
                    "start": when(activity, index),
                    "counts": [*map(text.number, counts)],
                    "times": times,
                    "depth": [*map(_known, depth)],
                    "marks": marked,
                }
            )
    return rows


def _known(count: int | None) -> str:
    return "" if count is None else text.number(count)


def _times(spread: Sequence[float | None], endless: str = "") -> list[str]:
    return [text.seconds(value, endless=endless) for value in spread]
