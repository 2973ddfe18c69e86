"""The verbs of the command `mq` for topics and their groups."""

import argparse
import re
from datetime import datetime
from functools import partial
from typing import Any

from django.core.management.base import CommandError
from django.utils.module_loading import import_string

from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.core.offsets import Offset
from mq_django.core.texts import escape
from mq_django.inspector import message_lists
from mq_django.inspector import topics as inspected
from mq_django.management.argument_types import cursor, page_size
from mq_django.management.as_dict import as_dict
from mq_django.management.listing import filter_of, first
from mq_django.management.terminal import Options, Terminal, Verb, VerbResult, away_text, table
from mq_django.producers import topics

#: How dates begin, and years and months alone, which are no times. Entry ids begin with more digits.
_DATE = re.compile(r"\d{4}-\d\d-|\d{4}(-\d\d)?$|[^-]*T", re.ASCII)

PLACE = (
    "beginning, end, a time such as 2026-11-01T06:00Z (without Z or an offset: in the project's time zone), "
    "or the id of an entry."
)
REPEAT = "Let the effects of subscribers with @exactly_once happen again, once."


def add_log(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `log`."""
    parser.add_argument("topic", help="A topic.")
    _add_range(parser)
    parser.add_argument("--name", help="Only messages whose name contains this text.")
    parser.add_argument("--key", help="Only messages with this key.")
    parser.add_argument("--newest-first", action="store_true", help="The newest message first.")
    parser.add_argument("--after", type=cursor, help="Continue after the last message of a list.")
    parser.add_argument("--limit", type=page_size, default=10, help="Default: 10. At most 500.")


def add_seek(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `seek`."""
    _add_group(parser)
    parser.add_argument("place", help=PLACE)
    parser.add_argument(
        "--dry", action="store_true", help="Only show how many messages would be delivered again or skipped."
    )
    parser.add_argument("--repeat", action="store_true", help=REPEAT)


def add_unsubscribe(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `unsubscribe`."""
    _add_group(parser)
    parser.add_argument("--yes", action="store_true", help="Confirm without prompting.")


def add_replay(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `replay`."""
    _add_group(parser)
    _add_range(parser)
    parser.add_argument("--handler", help="Dotted path of a function; by default the group's subscriber.")
    parser.add_argument("--dry", action="store_true", help="Only show what would be run.")
    parser.add_argument("--repeat", action="store_true", help=REPEAT)


def _add_group(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", metavar="topic:group", help="A group of a topic.")


def _add_range(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--since", default="beginning", help=PLACE)
    parser.add_argument("--until", default="end", help=PLACE)


def show_topics(_options: Options, _: Terminal) -> VerbResult:
    """Show the offset and lag of every group."""
    found: list[dict[str, Any]] = []
    for view in inspected.topics():
        if view.error:
            found.append({"topic": view.name, "error": view.error})
        found += [as_dict(group) for group in view.groups if group.subscribed]
    away = away_text({row["topic"]: row["error"] for row in found if "error" in row})
    return VerbResult(found, table(found) or ["No group has subscribed."], away)


def log(options: Options, _: Terminal) -> VerbResult:
    """Show the first messages of a range of a log that match."""
    since, until = place(options["since"]), place(options["until"])
    read = partial(
        message_lists.in_log,
        options["topic"],
        filter_of(options, ("name", "key")),
        since=since,
        until=until,
        newest_first=options["newest_first"],
    )
    page = first(read, after=options["after"] or "", limit=options["limit"])
    found = list(map(as_dict, page.rows))
    note = f"There are more: --after {page.after}" if page.after and found else ""
    return VerbResult(found, table(found) or ["No messages."], note=note)


def seek(options: Options, _: Terminal) -> VerbResult:
    """Move a group, or preview the move."""
    topic, group = _topic_and_group(options)
    where = place(options["place"])
    preview = inspected.preview(topic, group, where)
    if not options["dry"]:
        inspected.seek(topic, group, where, repeat=options["repeat"])
    output = {"moved": not options["dry"], **preview._asdict()}
    more = " or more" if preview.more else ""
    what = f"{preview.replayed}{more} delivered again, {preview.skipped}{more} skipped, {preview.pending} pending"
    return VerbResult(output, [f"{'Would move' if options['dry'] else 'Moved'} {options['group']}: {what}"])


def unsubscribe(options: Options, _: Terminal) -> VerbResult:
    """Remove a group."""
    topic, group = _topic_and_group(options)
    if not options["yes"]:
        raise CommandError("This deletes the group's retries and dead letters. Confirm with --yes.", returncode=2)
    if not inspected.unsubscribe(topic, group):
        raise CommandError(f"Topic {topic} has no group {escape(group)}.")
    return VerbResult({"removed": True}, ["removed"])


def replay(options: Options, _: Terminal) -> VerbResult:
    """Run a range of a log through a handler."""
    topic, group = _topic_and_group(options)
    since, until = place(options["since"]), place(options["until"])
    handler = None
    if options["handler"]:
        try:
            handler = import_string(options["handler"])
        except ImportError as error:
            raise CommandError(str(error)) from error
    of_group, dry, repeat = topics[topic].group(group), options["dry"], options["repeat"]
    done = of_group.replay(handler, since=since, until=until, dry=dry, repeat=repeat)
    failed = [{"id": message.id, "error": error} for message, error in done.failed]
    failed += [{"id": entry, "error": reason} for entry, reason in done.undecodable]
    output = {"dry": options["dry"], "handled": [message.id for message in done.handled], "failed": failed}
    lines = [f"{len(done.handled)} {'would be handled' if options['dry'] else 'handled'}, {len(failed)} failed"]
    return VerbResult(output, [*lines, *table(failed)])


def place(text: str) -> Offset:
    """Parse a position in a log: a date or a time, or else a word or an entry id."""
    if not _DATE.match(text):
        return text
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise CommandError(f"Not a valid time: {text!r}. Write it as 2026-11-01T06:00Z.", returncode=2) from error


def _topic_and_group(options: Options) -> tuple[str, str]:
    topic, separator, group = options["group"].partition(GROUP_SEPARATOR)
    if not separator:
        raise CommandError(f"Name the group as topic:group, not {topic!r}.", returncode=2)
    return topic, group


VERBS = (
    Verb("topics", "Show the lag of the groups of topics.", show_topics),
    Verb("log", "Show messages of a topic's log, with secrets replaced.", log, add_log),
    Verb("seek", "Move a group of a topic to another position, while consumers run.", seek, add_seek),
    Verb("unsubscribe", "Remove a group of a topic with its retries and dead letters.", unsubscribe, add_unsubscribe),
    Verb(
        "replay", "Run a part of a log through a handler in this process, without moving the group.", replay, add_replay
    ),
)
