"""The verb `status` of the command `mq`."""

import argparse
from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from typing import Any

from django.core.management.base import CommandError

from mq_django import inspector
from mq_django.conf import get_config
from mq_django.core.thresholds import Thresholds
from mq_django.core.visible import escape
from mq_django.errors import StoreError
from mq_django.inspector.found_problems import KINDS, problems
from mq_django.inspector.outbox_views import OutboxView, outboxes_of
from mq_django.inspector.queue_view import QueueView
from mq_django.management.argument_types import count, period
from mq_django.management.as_dict import as_dict
from mq_django.management.tables import away_text, busy_with, table
from mq_django.management.terminal import Terminal
from mq_django.management.verb import Options, Verb, VerbResult

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
    return VerbResult(found, lines, away_text(away))


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
    left_out = ("queue", "paused", "consume", "busy_with", "fetched")
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
        "handled by others": not view.consume and not view.error,
    }
    return ", ".join(state for state, applies in states.items() if applies)


VERBS = (Verb("status", "Show the number of messages by queue.", status, add_options),)
