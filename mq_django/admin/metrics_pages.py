"""The page of metrics: figures over time of all queues or of one, by queue, handler, host and version."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import inf
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpResponse, StreamingHttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from mq_django.admin.ui import charts, text
from mq_django.admin.ui.charts import Mark
from mq_django.admin.ui.filter_form import moment
from mq_django.admin.ui.page import VIEW, Page, attachment, needs, sections, state_labels
from mq_django.core import clock
from mq_django.core.jsontext import LAST_MS, whole
from mq_django.core.texts import escape
from mq_django.errors import InvalidFilter
from mq_django.inspector import metrics
from mq_django.inspector.metrics import Metrics, PausedTime
from mq_django.inspector.queue_view import HAPPENED, Activity, NameActivity, Period, Spread

#: The spans that can be chosen, and their minutes.
SPANS = {
    "hour": (gettext_lazy("Last hour"), 60),
    "day": (gettext_lazy("Last day"), 1440),
    "week": (gettext_lazy("Last week"), 10_080),
    "month": (gettext_lazy("Last 30 days"), 43_200),
}
#: The times with which a period is compared, and how many days before it they are.
COMPARED = {"day": (gettext_lazy("the day before"), 1), "week": (gettext_lazy("the week before"), 7)}
#: The rows of the table: by queue, or by handler of a queue; by host; by version.
BY = ("name", "host", "version")
#: The most rows of the table, marks of each kind of a chart, and queues that a mark names.
MAX_ROWS, MAX_MARKS, MAX_NAMED = 100, 20, 5


class Shown(NamedTuple):
    """The parameters of a page of metrics."""

    #: "" for all queues.
    queue: str
    #: Of a queue: messages with this name, "" for all.
    of: str
    by: str
    #: "" if `since_ms` and `until_ms` say it.
    span: str
    since_ms: int
    until_ms: int
    #: A key of COMPARED, or "".
    compared: str

    def fields(self) -> dict[str, str]:
        """Return the parameters of the page."""
        found = {"queue": self.queue, "of": self.of, "span": self.span, "compare": self.compared}
        if self.by != BY[0]:
            found["by"] = self.by
        if not self.span:
            found |= {"from": str(self.since_ms), "to": str(self.until_ms)}
        return {name: value for name, value in found.items() if value}

    def query(self, **changes: Any) -> str:
        """Return the query of a page that differs in some fields."""
        return "?" + urlencode(self._replace(**changes).fields())


def _asked(page: Page) -> Shown:
    given, now_ms = page.request.GET, clock.now_ms()
    span, since, until = (given.get(name, "") for name in ("span", "from", "to"))
    # The form always has a span and times. Those that somebody typed are not those that it was shown with.
    is_typed = given.get("shown", f"{since} {until}") != f"{since} {until}"
    if (since or until) and (is_typed or span not in SPANS):
        span, until_ms = "", _ms(until, now_ms)
        since_ms = _ms(since, until_ms - 3_600_000)
        if since_ms >= until_ms:
            raise InvalidFilter(_("The start must be before the end."))
    else:
        span = span if span in SPANS else "hour"
        since_ms, until_ms = now_ms - (SPANS[span][1] - 1) * 60_000, now_ms
    queue = given.get("queue", "")
    if queue and queue not in metrics.measured():
        raise InvalidFilter(_("There is no queue “%(name)s” in the settings.") % {"name": escape(queue)[:160]})
    by, compared = given.get("by", ""), given.get("compare", "")
    return Shown(
        queue,
        given.get("of", "")[:400] if queue else "",
        by if by in BY else BY[0],
        span,
        since_ms,
        until_ms,
        compared if compared in COMPARED else "",
    )


def _ms(value: str, otherwise: int) -> int:
    if not value:
        return otherwise
    found = whole(value, LAST_MS)
    return round(moment(value).timestamp() * 1000) if found is None else found


class _Found(NamedTuple):
    """The figures that a page shows."""

    metrics: Metrics
    before: Activity | None
    rows: Sequence[NameActivity]
    #: There are too many of them to read.
    rows_left_out: bool
    #: When versions of the project began, and which.
    deploys: Sequence[tuple[int, str]]
    pauses: Sequence[PausedTime]

    def marks(self, *, one: bool) -> list[Mark]:
        """Return what is marked in the charts of one queue, or of all."""
        began = _("Version %(version)s began.")
        versions = [Mark(ms, began % {"version": escape(version)[:80]}) for ms, version in self.deploys[-MAX_MARKS:]]
        return [*versions, *(_paused(each, one=one) for each in self.pauses[-MAX_MARKS:])]


def _paused(found: PausedTime, *, one: bool) -> Mark:
    """Return the mark of a time in which queues were paused."""
    who, more = found.action.who or _("unknown"), len(found.queues) - MAX_NAMED + found.action.more
    names = ", ".join(found.queues[:MAX_NAMED]) + (f" +{text.number(more)}" if more > 0 else "")
    if found.until_ms is None:
        until_ms, said = clock.now_ms(), _("Still paused, by %(who)s.") % {"who": who}
    else:
        until_ms, time = found.until_ms, text.duration(found.until_ms - found.action.ms)
        said = _("Paused for %(time)s, by %(who)s.") % {"time": time, "who": who}
    return Mark(found.action.ms, f"{said if one else f'{names}: {said}'} {found.action.reason}".strip(), until_ms)


def _read(asked: Shown) -> _Found:
    period = metrics.period(asked.since_ms, asked.until_ms)
    found = _of(asked, period)
    before = None
    if asked.compared and not _is_too_long_ago(asked, period):
        before = _of(asked, period.before(COMPARED[asked.compared][1])).activity
    activity, rows = found.activity, found.rows
    if asked.by != BY[0]:
        activity = metrics.host_metrics(period)
        rows = _summed(activity.names, asked.by)
    left_out = activity.names_left_out
    return _Found(found, before, rows, left_out, metrics.deploys(period), metrics.paused_times(period, asked.queue))


def _of(asked: Shown, period: Period) -> Metrics:
    if asked.queue:
        return metrics.queue_metrics(asked.queue, period, of=asked.of)
    return metrics.all_metrics(period)


def _is_too_long_ago(asked: Shown, period: Period) -> bool:
    """Return whether the time with which it is compared has no minutes any more."""
    return period.slot == 1 and period.before(COMPARED[asked.compared][1]).since_ms < clock.now_ms() - 93_600_000


def _summed(hosts: Sequence[NameActivity], by: str) -> list[NameActivity]:
    sums: dict[str, NameActivity] = {}
    for row in hosts:
        host, _separator, version = row.name.partition("|")
        name = host if by == "host" else version
        known = sums.get(name)
        counts = {what: getattr(row, what) + (getattr(known, what) if known else 0) for what in HAPPENED}
        spent = row.spent + (known.spent if known else 0.0)
        sums[name] = NameActivity(name=name, **counts, took=row.took, waited=row.waited, spent=spent)
    return sorted(sums.values(), key=lambda row: (-row.handled - row.retried, row.name))


@needs(VIEW)
def show(page: Page) -> HttpResponse:
    """Show the charts and the table of all queues or of one."""
    asked = _asked(page)
    found = _read(asked)
    activity, title = found.metrics.activity, _title(asked)
    label, marks = f"{title}: {charts.summary(activity)}", found.marks(one=bool(asked.queue))
    context = charts.queue_charts(activity, title)
    if asked.compared and found.before is None:
        page.say(messages.INFO, _("Minutes are kept for a day: to compare, select a longer time."))
    return page.render(
        "metrics",
        _("Metrics"),
        **{**context, "throughput": charts.columns(activity, label=label, before=found.before, marks=marks)},
        tabs=sections(page, "metrics"),
        asked=asked,
        heading=title,
        depth=charts.depths(activity, label=_("Messages by state")) if activity.depth and not asked.of else None,
        states=[(state, state_labels()[state]) for state in activity.depth],
        compared=COMPARED[asked.compared][0] if found.before else "",
        before_summary=charts.summary(found.before) if found.before else "",
        marks=[(text.moment(mark.ms, exact=True), mark.sentence) for mark in sorted(marks, key=lambda mark: mark.ms)],
        menus=_menus(asked),
        rows=[_row(asked, row) for row in found.rows[:MAX_ROWS]],
        unlisted=text.beyond(len(found.rows), MAX_ROWS),
        rows_left_out=found.rows_left_out,
        row_head=_by(asked)[asked.by],
        has_times=asked.by == BY[0],
        errors=[f"{name}: {error}" for name, error in found.metrics.errors.items()][:MAX_ROWS],
        of_all_url=asked.query(of="") if asked.of else "",
        zoom_url=asked.query(span="", since_ms=0, until_ms=0),
        figures_url=page.url("metrics_figures") + asked.query(),
        csv_url=page.url("metrics_csv_export") + asked.query(),
        rows_csv_url=page.url("metrics_rows_export") + asked.query(),
        json_url=page.url("metrics_json_export") + asked.query(),
        starts=text.form_time(asked.since_ms),
        ends=text.form_time(asked.until_ms),
    )


@needs(VIEW)
def figures(page: Page) -> HttpResponse:
    """Show the charts as a table."""
    asked = _asked(page)
    found = _read(asked)
    activity, marks = found.metrics.activity, found.marks(one=bool(asked.queue))
    return page.render(
        "figures",
        _("Figures"),
        tabs=sections(page, "metrics"),
        figures=charts.figures(activity, marks),
        has_marks=bool(marks),
        said=f"{_title(asked)}: {charts.summary(activity)}",
        states=[state_labels()[state] for state in activity.depth],
    )


def _title(asked: Shown) -> str:
    where = asked.queue or _("All queues")
    return f"{where} · {asked.of}" if asked.of else where


def _by(asked: Shown) -> dict[str, str]:
    return {"name": _("Handler") if asked.queue else _("Queue"), "host": _("Host"), "version": _("Version")}


def _menus(asked: Shown) -> list[tuple[str, Any, list[tuple[str, Any, bool]]]]:
    """Return the menus of the form: field, label, and for each choice its value, text, and whether it is chosen."""
    queues = {"": _("All queues"), **{name: name for name in metrics.measured()}}
    compared = {"": _("nothing"), **{key: words[0] for key, words in COMPARED.items()}}
    menus: list[tuple[str, Any, Mapping[str, Any], str]] = [
        ("queue", _("Queue"), queues, asked.queue),
        ("span", _("Time"), {**{key: words[0] for key, words in SPANS.items()}, "": _("from … to …")}, asked.span),
        ("compare", _("Compare with"), compared, asked.compared),
        ("by", _("Rows by"), _by(asked), asked.by),
    ]
    return [
        (field, label, [(value, text, value == current) for value, text in choices.items()])
        for field, label, choices, current in menus
    ]


def _mean(row: NameActivity) -> float | None:
    """Return the mean of the handling times of a host or version, if any are known."""
    return row.spent / count if row.spent and (count := row.handled + row.retried) else None


def _row(asked: Shown, row: NameActivity) -> dict[str, Any]:
    url = ""
    if asked.by == BY[0]:
        url = asked.query(of=row.name) if asked.queue else asked.query(queue=row.name)
    return {
        **charts.name_cells(row),
        "mean": text.seconds(_mean(row)),
        "url": url,
        "is_chosen": bool(asked.of) and row.name == asked.of,
    }


# The same as CSV and JSON. Numbers have no separators, and times are in UTC.

_TIMES = ("took_p50", "took_p95", "waited_p50", "waited_p95")
#: Of hosts and versions.
MEAN = "took_mean"


def _steps(activity: Activity) -> Iterator[dict[str, Any]]:
    for step in range(len(activity.published)):
        times = (*_pair(activity.took_each, step), *_pair(activity.waited_each, step))
        yield {
            "start": _iso(activity.since_ms + step * activity.minutes * 60_000),
            **{what: getattr(activity, what)[step] for what in HAPPENED},
            **dict(zip(_TIMES, times, strict=True)),
            **{state: each[step] for state, each in activity.depth.items()},
        }


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat()


def _pair(spreads: Sequence[Spread], step: int) -> tuple[float | None, float | None]:
    spread = spreads[step] if spreads else Spread()
    return _finite(spread.p50), _finite(spread.p95)


def _finite(seconds: float | None) -> float | None:
    return None if seconds is None or seconds == inf else round(seconds, 6)


def _named(row: NameActivity) -> dict[str, Any]:
    times = (row.took.p50, row.took.p95, row.waited.p50, row.waited.p95)
    counts = {what: getattr(row, what) for what in HAPPENED}
    return {
        "name": row.name,
        **counts,
        **dict(zip(_TIMES, map(_finite, times), strict=True)),
        MEAN: _finite(_mean(row)),
    }


@needs(VIEW)
def as_json(page: Page) -> HttpResponse:
    """Return the charts and the table as JSON."""
    asked = _asked(page)
    found = _read(asked)
    activity = found.metrics.activity
    content = json.dumps(
        {
            "queue": asked.queue,
            "name": asked.of,
            "minutes": activity.minutes,
            "steps": list(_steps(activity)),
            "before": list(_steps(found.before)) if found.before else None,
            "by": asked.by if asked.by != BY[0] else "handler" if asked.queue else "queue",
            "rows": [_named(row) for row in found.rows],
            "rows_left_out": found.rows_left_out,
            "deploys": [{"at": _iso(ms), "version": version} for ms, version in found.deploys],
            "pauses": [*map(_paused_values, found.pauses)],
            "errors": found.metrics.errors,
        }
    )
    return _file("metrics.json", content, "application/json")


def _paused_values(found: PausedTime) -> dict[str, Any]:
    until = None if found.until_ms is None else _iso(found.until_ms)
    action = found.action
    who = {"who": action.who, "reason": action.reason, "queues": found.queues, "more": action.more}
    return {"at": _iso(action.ms), "until": until, **who}


@needs(VIEW)
def as_csv(page: Page) -> HttpResponse:
    """Return the charts as CSV, a row for each step."""
    steps = list(_steps(_read(_asked(page)).metrics.activity))
    return _csv("metrics", list(steps[0]), steps)


@needs(VIEW)
def rows_as_csv(page: Page) -> HttpResponse:
    """Return the table as CSV."""
    asked = _asked(page)
    return _csv(
        f"metrics-by-{asked.by}", ("name", *HAPPENED, *_TIMES, MEAN), [_named(row) for row in _read(asked).rows]
    )


def _csv(name: str, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> HttpResponse:
    lines = text.csv_lines([columns, *(row.values() for row in rows)])
    return _file(f"{name}.csv", "".join(lines), "text/csv; charset=utf-8")


def _file(name: str, content: str, kind: str) -> HttpResponse:
    """Return a file to download."""
    found: Any = StreamingHttpResponse([content.encode()], content_type=kind, headers=attachment(name))
    answer: HttpResponse = found
    return answer
