"""The verb `rates` of the command `mq`: how many messages are published and handled, and how fast."""

import argparse
from math import isinf
from typing import Any

from django.core.management.base import CommandError

from mq_django import inspector
from mq_django.inspector.activity import Activity, NameActivity, Spread
from mq_django.inspector.queue_view import RECENT, QueueView
from mq_django.management.argument_types import whole
from mq_django.management.as_dict import moment_text
from mq_django.management.tables import away_text, table
from mq_django.management.terminal import Terminal
from mq_django.management.verb import Options, Verb, VerbResult

WHAT = ("published", "handled", "retried", "buried")

#: What the table shows as the name of the total of a queue.
TOTAL = "(all)"

#: The most hours: the counters are kept for a week.
MAX_HOURS = 168


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("queues", nargs="*", help="Count these by name. Default: all queues, not by name.")
    counted = "this hour and those before, up to 168 in all. Default, and 1: the last 60 minutes."
    parser.add_argument("--hours", type=whole, help=f"With queues: the counts of {counted}")


def rates(options: Options, _: Terminal) -> VerbResult:
    """Show the counts per minute of all queues, or the counts and times of some by name."""
    hours = options["hours"]
    if hours and (not options["queues"] or hours > MAX_HOURS):
        raise CommandError("--hours needs a queue." if hours <= MAX_HOURS else "--hours: at most 168.", returncode=2)
    if not options["queues"]:
        return _all()
    rows, since = list[dict[str, Any]](), None
    for name in options["queues"]:
        # The counters of one hour are by the minute.
        found = inspector.activity(name, hours=hours) if hours and hours > 1 else inspector.queue(name).activity
        rows += [_total(name, found), *(_of_name(name, each) for each in found.names)]
        since = moment_text(found.since_ms)
    lines = table([{**row, "name": row["name"] or TOTAL} for row in rows])
    return VerbResult([{**row, "since": since} for row in rows], [*lines, f"Since {since}."])


def _all() -> VerbResult:
    views = inspector.overview()
    rows: list[dict[str, Any]] = [_per_minute(view) for view in views if not view.error]
    lines = table(rows) or ["No queue is configured."]
    away = {name: error for view in views for name, error in view.errors.items()}
    rows += ({"queue": name, "error": error} for name, error in away.items())
    return VerbResult(rows, lines, away_text(away))


def _per_minute(view: QueueView) -> dict[str, Any]:
    share = view.error_share
    recent = {f"{what}_{RECENT}min": sum(getattr(view.activity, what)[-RECENT:]) for what in WHAT}
    return {
        "queue": view.name,
        **{f"{what}_min": round(view.activity.per_minute(what), 1) for what in ("published", "handled")},
        **recent,
        "failed_share": None if share is None else round(share, 3),
    }


def _total(queue: str, found: Activity) -> dict[str, Any]:
    counts = {what: sum(getattr(found, what)) for what in WHAT}
    return {"queue": queue, "name": None, **counts, **_times(found.took, found.waited)}


def _of_name(queue: str, found: NameActivity) -> dict[str, Any]:
    counts = {what: getattr(found, what) for what in WHAT}
    return {"queue": queue, "name": found.name, **counts, **_times(found.took, found.waited)}


def _times(took: Spread, waited: Spread) -> dict[str, float | None]:
    """Return percentiles of handling times, and of latencies from ready to the handler's start, in seconds."""
    found = {"took_p50": took.p50, "took_p95": took.p95, "waited_p50": waited.p50, "waited_p95": waited.p95}
    # JSON has no infinity: the time is in the last bucket, which has no upper bound.
    return {name: None if at is None or isinf(at) else round(at, 5) for name, at in found.items()}


VERBS = (Verb("rates", "Show how many messages are published and handled, and how fast.", rates, add_options),)
