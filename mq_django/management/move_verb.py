"""The verb `move` of the command `mq`: dead letters into another queue."""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.core.management.base import CommandError

from mq_django.core.filters import NOTHING
from mq_django.core.visible import escape
from mq_django.inspector import dead_letters, moves
from mq_django.management.filter_options import add_filter, filter_of, given
from mq_django.management.job_runs import add_job_options, preview, result_of, run_job
from mq_django.management.terminal import Terminal
from mq_django.management.verb import Options, Verb, VerbResult

#: Names without a handler that a preview shows.
MAX_NAMES = 5


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("target", help="The queue that gets them, or the group of a topic as topic:group.")
    parser.add_argument("ids", nargs="*", metavar="id", help="The id of a message.")
    parser.add_argument("--all", action="store_true", help="Move all current dead letters.")
    add_filter(parser, when="With --all")
    add_job_options(parser, when="With --all")


def move(options: Options, terminal: Terminal) -> VerbResult:
    """Move dead letters to another queue: some by their ids, or all that match."""
    queue, target, ids = options["queue"], options["target"], options["ids"]
    moves.check_target(queue, target)
    if bool(ids) == options["all"]:
        raise CommandError("Give the ids of messages, or --all.", returncode=2)
    if options["all"]:
        if options["dry_run"]:
            return _preview(options, terminal)
        return run_job(options, terminal, "move", "moved")
    if given(options) or options["rate"] or options["background"] or options["dry_run"]:
        raise CommandError("A filter, --rate, --background and --dry-run need --all.", returncode=2)
    return result_of(moves.move_messages(queue, target, ids), "moved", ids=len(ids))


def _preview(options: Options, terminal: Terminal) -> VerbResult:
    """Return the preview, with a note about messages for which the target has no handler."""
    queue, target = options["queue"], options["target"]
    names = set[str]()
    shown = preview(options, terminal, f"moved to {escape(target)}", names=names)
    if filter_of(options) == NOTHING:
        # Without a filter, only the first messages were read.
        names |= {found.group.name for found in dead_letters.groups(queue) if found.group}
    unhandled = moves.without_handler(target, names - {""})
    found: Mapping[str, Any] = {**shown.found, "without_handler": unhandled}
    listed = ", ".join(map(escape, unhandled[:MAX_NAMES])) + (", …" if len(unhandled) > MAX_NAMES else "")
    note = f"Queue {escape(target)} has no handler for {listed}: such messages wait until it has one."
    return replace(shown, found=found, note=note if unhandled else "")


VERBS = (Verb("move", "Move dead letters to another queue.", move, add_options, has_queue=True),)
