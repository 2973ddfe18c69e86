"""The verbs `cancel`, `purge` and `delete` of the command `mq`."""

import argparse
import json
from collections.abc import Iterator
from functools import partial

from django.core.management.base import CommandError

from mq_django.conf import get_config
from mq_django.core.filters import Filter
from mq_django.core.jsontext import loads
from mq_django.core.texts import escape
from mq_django.errors import DecodeError
from mq_django.inspector import actions, dead_letters
from mq_django.inspector.message_lists import get_message
from mq_django.inspector.message_lists import messages as list_messages
from mq_django.inspector.message_views import MessageState, MessageView, exported
from mq_django.inspector.queues import quick_stats
from mq_django.management.argument_types import cursor, page_size
from mq_django.management.as_dict import as_dict
from mq_django.management.job_verbs import add_job_options, preview, result_of, run_job
from mq_django.management.listing import PLACES, add_filter, filter_of, filter_text, first, given, scans
from mq_django.management.terminal import Options, Terminal, Verb, VerbResult, table
from mq_django.producers import queues

REMOVABLE = ("ready", "delayed", "unhandled", "parked", "dead")


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
    if not options["running"]:
        return result_of(actions.cancel(options["queue"], ids), "cancelled", ids=len(ids))
    outcome = actions.cancel(options["queue"], ids, running=True, force=options["force"])
    result = result_of(outcome, "cancelled", ids=len(ids))
    lines = [f"{line}, {outcome.asked} asked to stop" for line in result.lines]
    return VerbResult({**result.found, "asked": outcome.asked}, lines, result.error)


def add_purge(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `purge`."""
    parser.add_argument("place", choices=REMOVABLE, help="Which messages.")
    add_filter(parser)
    add_job_options(parser)
    parser.add_argument("--yes", action="store_true", help="Confirm without prompting.")


def purge(options: Options, terminal: Terminal) -> VerbResult:
    """Delete the messages of a place that match."""
    return _remove(options, terminal, "deleted")


def _remove(options: Options, terminal: Terminal, done: str) -> VerbResult:
    place = options["place"]
    if options["dry_run"]:
        return preview(options, terminal, done)
    count = quick_stats(options["queue"]).own(place)
    if not options["yes"]:
        terms = filter_text(options)
        which = f"those of the {count} {place} messages that match {terms}" if terms else f"{count} messages"
        verb = "deletes" if done == "deleted" else "cancels"
        raise CommandError(f"This {verb} {escape(which)}. Confirm with --yes.", returncode=2)
    return run_job(options, terminal, "delete", done)


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


# The verb `peek` of the command `mq`.


def add_peek_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("place", choices=PLACES, nargs="?", default="ready", help="Default: ready.")
    parser.add_argument("--limit", type=page_size, default=10, help="Default: 10. At most 500.")
    parser.add_argument("--after", type=cursor, help="Continue after the last message of a list.")
    add_filter(parser)


def peek(options: Options, _: Terminal) -> VerbResult:
    """Show the first messages of a place that match."""
    read = partial(list_messages, options["queue"], options["place"], filter_of(options))
    page = first(read, after=options["after"] or "", limit=options["limit"])
    rows = list(map(as_dict, page.rows))
    note = f"There are more: --after {page.after}" if page.after and rows else ""
    return VerbResult(rows, table(rows) or ["No messages."], note=note)


# The verb `export` of the command `mq`: messages as JSON lines.


def add_export_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("place", choices=PLACES, nargs="?", default="dead", help="Default: dead.")
    add_filter(parser)


def export(options: Options, terminal: Terminal) -> None:
    """Print the messages that match, one JSON object a line, as they are read."""
    queue, place, where = options["queue"], options["place"], filter_of(options)
    found = dead_letters.every(queue, where) if place == "dead" else _messages(queue, place, where)
    for view in found:
        terminal.write(json.dumps(exported(view), ensure_ascii=True))


def _messages(queue: str, state: MessageState, where: Filter) -> Iterator[MessageView]:
    for part in get_config().queue(queue).each_part:
        for found in scans(part.name, state, where):
            for view in found.rows:
                yield view if view.has_data else get_message(part.name, state, view.ref) or view


# The verb `publish` of the command `mq`.


def add_publish_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("name", help="The name of the message.")
    parser.add_argument("data", nargs="?", default="null", help="JSON. Default: null.")
    parser.add_argument("--delay", type=float, help="Seconds.")
    parser.add_argument("--key", help="The key of the message.")
    parser.add_argument("--unique", help="With --delay: replace a waiting message with the same unique key.")


def publish(options: Options, _: Terminal) -> VerbResult:
    """Publish a message."""
    try:
        data = loads(options["data"].encode())
    except DecodeError as error:
        raise CommandError(f"The data is {error}", returncode=2) from error
    message_id = queues[options["queue"]].publish(
        options["name"], data, delay=options["delay"], key=options["key"], unique=options["unique"]
    )
    return VerbResult({"id": message_id}, [message_id])


VERBS = (
    Verb("cancel", "Cancel waiting messages, or with --running also others.", cancel, add_cancel, has_queue=True),
    Verb("purge", "Delete the messages of a place.", purge, add_purge, has_queue=True),
    Verb("delete", "Delete dead letters by their ids.", delete, add_delete, has_queue=True),
    Verb("peek", "Show the first messages, with secrets replaced.", peek, add_peek_options, has_queue=True),
    Verb("export", "Print messages as JSON lines, with secrets replaced.", export, add_export_options, has_queue=True),
    Verb("publish", "Publish a message.", publish, add_publish_options, has_queue=True),
)
