"""The verb `redrive` of the command `mq`."""

import argparse
from typing import Any

from django.core.management.base import CommandError

from mq_django.core.filters import Filter
from mq_django.inspector import dead_letters
from mq_django.management.argument_types import whole
from mq_django.management.job_runs import given, result_of, run_job
from mq_django.management.terminal import Terminal
from mq_django.management.verb import Options, Verb, VerbResult


def add_redrive(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `redrive`."""
    parser.add_argument("ids", nargs="*", metavar="id")
    parser.add_argument("--all", action="store_true", help="Redrive all current dead letters.")
    parser.add_argument("--name", help="With --all: only those whose name contains this text.")
    parser.add_argument("--error", help="With --all: only those whose error contains this text.")
    parser.add_argument("--key", help="With --all: only those with this key.")
    parser.add_argument("--rate", type=whole, help="With --all: limit in messages per second.")
    parser.add_argument(
        "--background", action="store_true", help="With --all: run as a background job of the consumers."
    )


def redrive(options: Options, terminal: Terminal) -> VerbResult:
    """Put dead letters back into their queue: some by their ids, or all that match."""
    ids = options["ids"]
    if bool(ids) == options["all"]:
        raise CommandError("Give the ids of messages, or --all.", returncode=2)
    selected: dict[str, Any] = given(options)
    if (selected or options["background"]) and not options["all"]:
        raise CommandError("--name, --error, --key, --rate and --background need --all.", returncode=2)
    if options["all"]:
        rate = selected.pop("rate", 0)
        criteria = Filter(**selected)
        return run_job(options, terminal, "redrive", criteria, rate=rate, background=options["background"])
    return result_of(dead_letters.redrive_messages(options["queue"], ids), "redriven", ids=len(ids))


VERBS = (Verb("redrive", "Put dead letters back into their queue.", redrive, add_redrive, has_queue=True),)
