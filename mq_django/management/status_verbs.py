"""The verb `status` of the command `mq`."""

import argparse
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, fields, replace
from math import isinf
from typing import Any, get_args

from django.core.management.base import CommandError
from django.utils.module_loading import import_string

from mq_django import inspector
from mq_django.conf import get_config
from mq_django.consumers.supervisor.health import Answer, serving
from mq_django.core import clock
from mq_django.core.texts import escape, truncate
from mq_django.core.thresholds import Thresholds
from mq_django.core.wire import moment
from mq_django.errors import StoreError
from mq_django.inspector.activity import Activity, NameActivity, Spread
from mq_django.inspector.found_problems import KINDS, problems
from mq_django.inspector.message_views import moment_text
from mq_django.inspector.outbox_views import OutboxView, outboxes_of
from mq_django.inspector.queue_view import RECENT, Problem, QueueView
from mq_django.inspector.queues import groups_left_out
from mq_django.management.argument_types import address, count, period, whole
from mq_django.management.as_dict import as_dict
from mq_django.management.ports import open_port
from mq_django.management.terminal import (
    Heading,
    Options,
    Terminal,
    Verb,
    VerbResult,
    away_text,
    busy_with,
    left_out_text,
    table,
)

#: The options that need --check, by their names in Python.
THRESHOLDS = tuple(field.name for field in fields(Thresholds))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("queues", nargs="*", help="Default: all.")
    parser.add_argument(
        "--check",
        action="store_true",
        help="Print the problems, a line each. Exit with 1 if there are any, and with 2 if an argument is wrong.",
    )
    what = {
        "max_age": "the oldest message that has not started has waited for longer, for example 90, 5m or 2h",
        "max_ready": "more messages have not started",
        "max_dead": "there are more dead letters",
        "max_buried": "more messages became dead letters in the last half hour",
        "max_unhandled": "more messages have no handler",
        "max_growth": "the queue has grown by more messages in ten minutes",
        "max_outbox_age": "the oldest message in an outbox has waited for longer, for example 90, 5m or 2h",
    }
    for name in THRESHOLDS:
        default = getattr(Thresholds(), name)
        usual = "no limit" if default is None else f"{default:g}"
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=period if name.endswith("_age") else count,
            help=f"With --check: it is a problem if {what[name]}. Default: as in THRESHOLDS, {usual}.",
        )
    parser.add_argument(
        "--ignore", action="append", choices=KINDS, help="With --check: leave out this problem. May be repeated."
    )


def status(options: Options, _: Terminal) -> VerbResult:
    """Show the messages of queues by place, or with `--check` their problems."""
    return _check(options) if options.get("check") else _status(options)


def _status(options: Options) -> VerbResult:
    given = [name for name in (*THRESHOLDS, "ignore") if options.get(name) is not None]
    if given:
        raise CommandError(f"--{given[0].replace('_', '-')} needs --check.", returncode=2)
    names = options.get("queues")
    views = [inspector.queue(name) for name in names] if names else inspector.overview()
    found: list[dict[str, Any]] = [
        {**as_dict(view), **({"partitions": list(map(as_dict, view.parts))} if names and view.parts else {})}
        for view in views
    ]
    # The partitions of queues that were named have rows of their own.
    rows = [_row(each) for view in views for each in (view, *(view.parts if names else ()))]
    lines = table(rows) or ["No queue is configured."]
    lines += [busy_with(view) for view in views if view.is_starved]
    found_outboxes = outboxes_of(names or ())
    are_several = len({each.database for each in found_outboxes}) > 1
    lines += [line for each in found_outboxes for line in _outbox_lines(each, is_named=are_several)]
    away = {name: error for view in views for name, error in view.errors.items()}
    return VerbResult(found, lines, away_text(away), note="" if names else left_out_text(groups_left_out()))


def _outbox_lines(view: OutboxView, *, is_named: bool) -> Iterator[str]:
    """Yield what the outbox of a queue or topic has; nothing while it is empty. `is_named`: with the database."""
    name = escape(view.destination or view.database)
    outbox = f"the outbox of database {escape(view.database)}" if is_named and view.destination else "the outbox"
    if why := view.error or view.stopped:
        yield f"{name}: {outbox} {'cannot be read' if view.error else 'is stopped'}: {escape(why)}"
    more = "+" if view.is_more else ""
    if view.waiting:
        waited = (view.waited_ms or 0) // 1000
        yield f"{name}: {view.waiting}{more} in {outbox}, the oldest for {waited} s"
    if view.set_aside:
        yield f"{name}: {view.set_aside}{more} in {outbox} cannot be published"


def _row(view: QueueView) -> dict[str, Any]:
    left_out = ("queue", "paused", "external", "busy_with", "fetched")
    found = as_dict(view)
    return {"queue": view.name, "state": _state(view), **{key: found[key] for key in found if key not in left_out}}


def _check(options: Options) -> VerbResult:
    """Return the problems of queues, and a line for each. Without a server that can be reached, that is the problem."""
    given = {name: options[name] for name in THRESHOLDS if options[name] is not None}
    thresholds = replace(get_config().thresholds, **given)
    try:
        found = problems(*options["queues"], thresholds=thresholds, ignore=options["ignore"] or ())
    except StoreError as error:
        unreachable = {"queue": None, "kind": "unreadable", "sentence": str(error), "figure": None, "threshold": None}
        return VerbResult([unreachable], [_line("unreadable", str(error))], code=1)
    lines = [_line(problem.kind, problem.sentence) for problem in found]
    return VerbResult(list(map(asdict, found)), lines or ["OK: no problems."], code=1 if found else 0)


def _line(kind: str, sentence: str) -> str:
    return f"[{kind}] {escape(sentence)}"


def _state(view: QueueView) -> str:
    states = {
        "paused": view.paused,
        f"{view.paused_parts} of {len(view.parts)} partitions paused": view.paused_parts and not view.paused,
        "starved": view.is_starved and not view.paused,
        "handled by others": view.external and not view.error,
    }
    return ", ".join(state for state, applies in states.items() if applies)


# The verb `metrics` of the command `mq`: the metrics of queues for Prometheus.

#: Loaded when it is needed: it needs the package prometheus-client.
METRICS = "mq_django.observability.prometheus.queue_metrics"
PATH = "/metrics"


def add_metrics_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument(
        "--port",
        type=address,
        metavar="[HOST:]PORT",
        help="Serve /metrics over HTTP until SIGTERM or Ctrl-C, without a host on all addresses. There is no password. "
        "Without this option the metrics are printed once.",
    )


def metrics(options: Options, terminal: Terminal) -> VerbResult | None:
    """Print the metrics, or serve them until a signal stops the program.

    Raises:
        MissingDependency: prometheus-client is not installed.
    """
    read: Callable[[], tuple[str, bytes]] = import_string(METRICS)
    if options["port"] is None:
        text = read()[1].decode()
        return VerbResult(text, text.splitlines())
    with serving(open_port("--port", options["port"]), {PATH: lambda: Answer(200, *read())}):
        terminal.report(f"Serving {PATH}. Stop with Ctrl-C.")
        _await_stop()
    return None


def _await_stop() -> None:
    if threading.current_thread() is threading.main_thread():
        # By default, a process with the id 1 ignores SIGTERM.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    never = threading.Event()
    try:
        while not never.wait(60):
            pass
    except KeyboardInterrupt:
        pass


# The verb `rates` of the command `mq`: how many messages are published and handled, and how fast.

WHAT = ("published", "handled", "retried", "buried")

#: What the table shows as the name of the total of a queue.
TOTAL = "(all)"

#: The most hours: the counters are kept for a week.
MAX_HOURS = 168


def add_rates_options(parser: argparse.ArgumentParser) -> None:
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


# The verb `top` of the command `mq`: all queues, refreshed every few seconds.

#: Sequences for the terminal: use another screen and hide the cursor; undo that; go to the top; clear to the end.
ENTER, LEAVE, HOME, CLEAR = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l", "\x1b[H", "\x1b[J"
#: Clears a line to its end.
CLEAR_RIGHT = "\x1b[K"

_PROBLEMS = get_args(Problem)
_RATES = ("published", "handled")
#: Columns of the table: not all counts, so that the problems fit on the terminal.
_SHOWN = ("queue", "ready", "pending", "delayed", "dead")
_COUNTS = ("ready", "pending", "delayed", "unhandled", "parked", "dead")


def add_top_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("queues", nargs="*", help="Default: all.")
    parser.add_argument("--once", action="store_true", help="Print it once, as if the output is no terminal.")
    parser.add_argument("--interval", type=whole, default=2, help="Seconds between two reads. Default: 2.")


def top(options: Options, terminal: Terminal) -> VerbResult | None:
    """Show all queues: once, or on a terminal until Ctrl-C is pressed."""
    names = options["queues"]
    if options["once"] or terminal.as_json or not terminal.is_terminal:
        views = _sorted(inspector.overview(names))
        away = {view.name: view.error for view in views if view.error}
        return VerbResult(list(map(_top_row, views)), list(_frame(views)), away_text(away))
    terminal.write(ENTER, ending="")
    try:
        while True:
            _draw(names, terminal)
            time.sleep(options["interval"])
    except KeyboardInterrupt:
        pass
    finally:
        terminal.write(LEAVE, ending="")
        terminal.flush()
    return None


def _draw(names: Sequence[str], terminal: Terminal) -> None:
    """Draw a frame over the last one, cut to the size of the terminal."""
    width, height = shutil.get_terminal_size()
    try:
        lines = list(_frame(_sorted(inspector.overview(names))))
    except StoreError as error:
        lines = [_now(), "", escape(str(error))]
    cut = [type(line)(truncate(line, width - 1)) for line in lines[: max(1, height - 1)]]
    if len(lines) > len(cut):
        cut[-1] = f"{len(lines) - len(cut) + 1} more queues"
    shown = [terminal.styled(line) + CLEAR_RIGHT for line in cut]
    terminal.write(HOME + "\n".join(shown) + CLEAR, ending="")
    terminal.flush()


def _sorted(views: Sequence[QueueView]) -> list[QueueView]:
    """Return queues: those with the worst problems first, then those with most ready messages."""

    def worst(view: QueueView) -> int:
        return min((_PROBLEMS.index(problem) for problem in view.problems()), default=len(_PROBLEMS))

    return sorted(views, key=lambda view: (worst(view), -view.ready, view.name))


def _frame(views: Sequence[QueueView]) -> Iterator[str]:
    """Yield the lines: a summary, and a table of the queues."""
    troubled = sum(bool(view.problems()) for view in views)
    sums = ", ".join(f"{sum(getattr(view, place) for view in views):,} {place}" for place in _COUNTS)
    rates = ", ".join(f"{sum(_per_second(view, what) for view in views):,.1f}/s {what}" for what in _RATES)
    yield Heading(f"{_now()}  {len(views)} queues, {troubled} with problems")
    yield f"{sums}; {rates}"
    yield ""
    yield from table([_cells(view) for view in views])


def _now() -> str:
    return Heading(moment(clock.now_ms())[:19].replace("T", " ") + " UTC")


def _per_second(view: QueueView, what: str) -> float:
    """Return the rate of the last minute."""
    return round(view.activity.per_minute(what) / 60, 1)


def _top_row(view: QueueView) -> dict[str, Any]:
    if view.error:
        return {"queue": view.name, "error": view.error}
    return {
        "queue": view.name,
        **{place: getattr(view, place) for place in _COUNTS},
        **{f"{what}_s": _per_second(view, what) for what in _RATES},
        "oldest_ms": view.waited_ms,
        "consumers": view.alive,
        "problems": list(view.problems()),
    }


def _cells(view: QueueView) -> dict[str, Any]:
    """Return the cells of a table row, with the wait of the oldest message in seconds."""
    row = _top_row(view)
    oldest_ms = row.get("oldest_ms")
    return {
        **{name: row.get(name) for name in _SHOWN},
        **{f"{what}/s": row.get(f"{what}_s") for what in _RATES},
        "oldest_s": None if oldest_ms is None else oldest_ms // 1000,
        "consumers": row.get("consumers"),
        "problems": list(view.problems()),
    }


VERBS = (
    Verb("status", "Show the number of messages by queue.", status, add_options),
    Verb("metrics", "Print the metrics of queues for Prometheus, or serve them.", metrics, add_metrics_options),
    Verb("rates", "Show how many messages are published and handled, and how fast.", rates, add_rates_options),
    Verb("top", "Show all queues, the worst first, refreshed every few seconds.", top, add_top_options),
)
