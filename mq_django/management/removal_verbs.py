"""The verbs `cancel` and `purge` of the command `mq`."""

import argparse
from typing import Any

from django.core.management.base import CommandError

from mq_django import inspector
from mq_django.core.filters import Filter
from mq_django.core.visible import escape
from mq_django.inspector import actions
from mq_django.management.argument_types import whole
from mq_django.management.job_runs import given, result_of, run_job
from mq_django.management.terminal import Terminal
from mq_django.management.verb import Options, Verb, VerbResult

PLACES = ("ready", "delayed", "unhandled", "parked", "dead")


def add_cancel(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `cancel`."""
    parser.add_argument("ids", nargs="+", metavar="id", help="A message id, or u: and a unique key.")


def cancel(options: Options, _: Terminal) -> VerbResult:
    """Cancel waiting messages."""
    members = [name.encode(errors="surrogateescape") for name in options["ids"]]
    return result_of(actions.cancel(options["queue"], members), "cancelled", ids=len(members))


def add_purge(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `purge`."""
    parser.add_argument("place", choices=PLACES)
    parser.add_argument("--yes", action="store_true", help="Confirm without prompting.")
    parser.add_argument("--name", help="Only messages whose name contains this text.")
    parser.add_argument("--key", help="Only messages with this key.")
    parser.add_argument("--error", help="Only dead letters whose error contains this text.")
    parser.add_argument("--rate", type=whole, help="Limit in messages per second.")
    parser.add_argument("--background", action="store_true", help="Run as a background job of the consumers.")


def purge(options: Options, terminal: Terminal) -> VerbResult:
    """Delete the messages of a place that match."""
    queue, place = options["queue"], options["place"]
    count = inspector.queue(queue).own(place)
    selected: dict[str, Any] = given(options)
    if not options["yes"]:
        filters = " and ".join(f"--{name} {selected[name]}" for name in selected if name != "rate")
        which = f"those of the {count} {place} messages that match {filters}" if filters else f"{count} messages"
        raise CommandError(f"This deletes {escape(which)}. Confirm with --yes.", returncode=2)
    if place == "dead" or selected or options["background"]:
        rate = selected.pop("rate", 0)
        criteria = Filter(**selected)
        return run_job(options, terminal, "delete", criteria, rate=rate, background=options["background"])
    return result_of(actions.purge(queue, place, at_most=count, seconds=float("inf")), "deleted")


VERBS = (
    Verb("cancel", "Cancel waiting messages.", cancel, add_cancel, has_queue=True),
    Verb("purge", "Delete messages.", purge, add_purge, has_queue=True),
)
