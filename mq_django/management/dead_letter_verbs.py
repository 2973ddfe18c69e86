"""The verbs of the command `mq` for dead letters: `errors`, `redrive` and `resubmit`."""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.core.management.base import CommandError

from mq_django.core.filters import NOTHING
from mq_django.core.texts import escape
from mq_django.errors import DecodeError
from mq_django.inspector import dead_letters, moves
from mq_django.inspector.dead_letters import resubmit_message
from mq_django.inspector.message_views import moment_text
from mq_django.management.job_verbs import add_job_options, preview, result_of, run_job
from mq_django.management.listing import add_filter, filter_of, given
from mq_django.management.terminal import Options, Terminal, Verb, VerbResult, table

#: What `errors` shows in place of a name for the dead letters of all further groups.
OTHERS = "(others)"


def errors(options: Options, _: Terminal) -> VerbResult:
    """Show the counts of dead letters by name and error."""
    rows = [
        {
            "count": found.count,
            "name": found.group.name if found.group else None,
            "error": found.group.error if found.group else None,
            "last": moment_text(found.buried_ms),
        }
        for found in dead_letters.groups(options["queue"])
    ]
    shown = [{**row, "name": OTHERS} if row["name"] is None else row for row in rows]
    return VerbResult(rows, table(shown) or ["No dead letters."])


def add_redrive(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `redrive`."""
    parser.add_argument("ids", nargs="*", metavar="id", help="The id of a message.")
    parser.add_argument("--all", action="store_true", help="Redrive all current dead letters.")
    add_filter(parser, when="With --all")
    add_job_options(parser, when="With --all")


def redrive(options: Options, terminal: Terminal) -> VerbResult:
    """Put dead letters back into their queue: some by their ids, or all that match."""
    ids = options["ids"]
    if bool(ids) == options["all"]:
        raise CommandError("Give the ids of messages, or --all.", returncode=2)
    if options["all"]:
        if options["dry_run"]:
            return preview(options, terminal, "redriven")
        return run_job(options, terminal, "redrive", "redriven")
    if given(options) or options["rate"] or options["background"] or options["dry_run"]:
        raise CommandError("A filter, --rate, --background and --dry-run need --all.", returncode=2)
    return result_of(dead_letters.redrive_messages(options["queue"], ids), "redriven", ids=len(ids))


def add_resubmit(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `resubmit`."""
    parser.add_argument("id", help="The id of the message.")
    parser.add_argument(
        "data", help='The new data: JSON, or - to read it from stdin. "[redacted]" keeps the secret in its place.'
    )


def resubmit(options: Options, _: Terminal) -> VerbResult:
    """Put a dead letter back into its queue with other data, as a new message."""
    queue, message_id, written = options["queue"], options["id"], options["data"]
    try:
        made = resubmit_message(queue, message_id, sys.stdin.read() if written == "-" else written)
    except DecodeError as error:
        raise CommandError(f"The data is {error}", returncode=2) from error
    if made is None:
        raise CommandError(f"Queue {escape(queue)} has no dead letter {escape(message_id)} that can be resubmitted.")
    return VerbResult({"id": made}, [made])


# The verb `move` of the command `mq`: dead letters into another queue.

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


VERBS = (
    Verb("errors", "Show the counts of dead letters by name and error.", errors, has_queue=True),
    Verb("redrive", "Put dead letters back into their queue.", redrive, add_redrive, has_queue=True),
    Verb("resubmit", "Put a dead letter back with other data.", resubmit, add_resubmit, has_queue=True),
    Verb("move", "Move dead letters to another queue.", move, add_options, has_queue=True),
)
