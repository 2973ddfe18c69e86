"""The verbs `cancel`, `purge` and `delete` of the command `mq`."""

import argparse

from django.core.management.base import CommandError

from mq_django.core.visible import escape
from mq_django.inspector import actions, dead_letters
from mq_django.inspector.queues import quick_stats
from mq_django.management.filter_options import add_filter, filter_of, filter_text, given
from mq_django.management.job_runs import add_job_options, preview, result_of, run_job
from mq_django.management.terminal import Terminal
from mq_django.management.verb import Options, Verb, VerbResult

PLACES = ("ready", "delayed", "unhandled", "parked", "dead")


def add_cancel(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `cancel`."""
    parser.add_argument("ids", nargs="*", metavar="id", help="A message id, or u: and a unique key.")
    parser.add_argument(
        "--place", choices=("delayed", "unhandled", "parked"), help="Instead of ids: all messages of this place."
    )
    parser.add_argument(
        "--running",
        action="store_true",
        help="With ids: also messages that are ready or being handled. Consumers do not start them, or interrupt them.",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="With --running: replace the process of a handler that does not end within a second.",
    )
    add_filter(parser, when="With --place", dead=False)
    add_job_options(parser, when="With --place")
    parser.add_argument("--yes", action="store_true", help="With --place: confirm without prompting.")


def cancel(options: Options, terminal: Terminal) -> VerbResult:
    """Cancel messages: some by their ids, or all of a place that match."""
    ids = options["ids"]
    if bool(ids) == bool(options["place"]):
        raise CommandError("Give the ids of messages, or --place.", returncode=2)
    if options["place"] and options["running"]:
        raise CommandError("--running needs the ids of messages.", returncode=2)
    if options["force"] and not options["running"]:
        raise CommandError("--force needs --running.", returncode=2)
    if options["place"]:
        return _remove(options, terminal, "cancelled")
    if given(options) or options["rate"] or options["background"] or options["dry_run"]:
        raise CommandError("A filter, --rate, --background and --dry-run need --place.", returncode=2)
    members = [name.encode(errors="surrogateescape") for name in ids]
    if not options["running"]:
        return result_of(actions.cancel(options["queue"], members), "cancelled", ids=len(ids))
    outcome = actions.cancel(options["queue"], members, running=True, force=options["force"])
    result = result_of(outcome, "cancelled", ids=len(ids))
    lines = [f"{line}, {outcome.asked} asked to stop" for line in result.lines]
    return VerbResult({**result.found, "asked": outcome.asked}, lines, result.error)


def add_purge(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `purge`."""
    parser.add_argument("place", choices=PLACES, help="Which messages.")
    add_filter(parser)
    add_job_options(parser)
    parser.add_argument("--yes", action="store_true", help="Confirm without prompting.")


def purge(options: Options, terminal: Terminal) -> VerbResult:
    """Delete the messages of a place that match."""
    return _remove(options, terminal, "deleted")


def _remove(options: Options, terminal: Terminal, done: str) -> VerbResult:
    queue, place, criteria = options["queue"], options["place"], filter_of(options)
    if options["dry_run"]:
        return preview(options, terminal, done)
    count = quick_stats(queue).own(place)
    if not options["yes"]:
        terms = filter_text(options)
        which = f"those of the {count} {place} messages that match {terms}" if terms else f"{count} messages"
        verb = "deletes" if done == "deleted" else "cancels"
        raise CommandError(f"This {verb} {escape(which)}. Confirm with --yes.", returncode=2)
    if place == "dead" or criteria or options["rate"] or options["background"]:
        return run_job(options, terminal, "delete", done)
    return result_of(actions.purge(queue, place, at_most=count, seconds=float("inf")), done)


def add_delete(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `delete`."""
    parser.add_argument("ids", nargs="+", metavar="id", help="The id of a message.")
    parser.add_argument("--yes", action="store_true", help="Confirm without prompting.")


def delete(options: Options, _: Terminal) -> VerbResult:
    """Delete dead letters by the ids of their messages."""
    ids = options["ids"]
    if not options["yes"]:
        raise CommandError(f"This deletes {len(ids)} dead letters. Confirm with --yes.", returncode=2)
    return result_of(dead_letters.delete_messages(options["queue"], ids), "deleted", ids=len(ids))


VERBS = (
    Verb("cancel", "Cancel waiting messages, or with --running also others.", cancel, add_cancel, has_queue=True),
    Verb("purge", "Delete the messages of a place.", purge, add_purge, has_queue=True),
    Verb("delete", "Delete dead letters by their ids.", delete, add_delete, has_queue=True),
)
