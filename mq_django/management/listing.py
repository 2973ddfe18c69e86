"""Read the messages of a place that match a filter, for the verbs of the command `mq`.

The inspector scans a bounded number of messages in a call, because a page waits for it. A terminal can wait: these
functions call it again until there are enough messages.
"""

import argparse
from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args

from django.core.management.base import CommandError

from mq_django.conf import QueueConfig, get_config
from mq_django.core.filters import FailureGroup, Filter
from mq_django.inspector import dead_letters, message_lists
from mq_django.inspector.dead_letters import DeadLetterView
from mq_django.inspector.message_lists import HandledView, find_waiting, look_among_handled, look_among_waiting
from mq_django.inspector.message_views import EntryView, Room, WaitingView
from mq_django.inspector.stream_reader import Scanned
from mq_django.management.argument_types import time_ms
from mq_django.management.terminal import Options

Place = Literal["ready", "pending", "delayed", "unhandled", "parked", "dead", "handled"]
View = EntryView | WaitingView | DeadLetterView | HandledView

PLACES: tuple[Place, ...] = get_args(Place)

#: The places of waiting messages.
ROOMS: dict[str, Room] = {"delayed": "delayed", "unhandled": "unhandled", "parked": "parked"}

#: Messages that one call returns at most.
BATCH = 500


def scans(queue: str, place: str, where: Filter, *, after: str = "", with_log: bool = True) -> Iterator[Scanned[View]]:
    """Yield the messages that match in parts, to the end of the place; dead letters newest first."""
    while True:
        found = _scan(queue, place, where, after=after, limit=BATCH, with_log=with_log)
        yield Scanned(found.rows, found.scanned, found.after)
        if not found.after:
            return
        after = found.after


def first(queue: str, place: str, where: Filter, *, after: str = "", limit: int) -> Scanned[View]:
    """Return the first messages that match, and the cursor to continue from; empty at the end."""
    rows: list[View] = []
    scanned = 0
    while True:
        found = _scan(queue, place, where, after=after, limit=limit - len(rows))
        rows += found.rows
        scanned, after = scanned + found.scanned, found.after
        if len(rows) == limit or not after:
            return Scanned(rows, scanned, after)


def _scan(
    queue: str, place: str, where: Filter, *, after: str, limit: int, with_log: bool = True
) -> Scanned[EntryView] | Scanned[WaitingView] | Scanned[DeadLetterView] | Scanned[HandledView] | Scanned[View]:
    if parts := get_config().queue(queue).parts:
        return _scan_parts(parts, place, where, after=after, limit=limit)
    if place == "handled":
        return look_among_handled(queue, where, after=after, limit=limit)
    if place == "dead":
        return dead_letters.look_among(queue, where, after=after, limit=limit)
    if place == "ready":
        return message_lists.ready(queue, where, after=after, limit=limit, with_log=with_log)
    if place == "pending":
        return message_lists.pending(queue, where, after=after, limit=limit)
    return look_among_waiting(queue, ROOMS[place], where, after=after, limit=limit)


def _scan_parts(parts: Sequence[QueueConfig], place: str, where: Filter, *, after: str, limit: int) -> Scanned[View]:
    """Scan one partition after another. A cursor has the number of the partition before a slash."""
    number, _, cursor = after.rpartition("/")
    at = min(int(number or 0), len(parts) - 1)
    found = _scan(parts[at].name, place, where, after=cursor, limit=limit)
    left = f"{at}/{found.after}" if found.after else f"{at + 1}/" if at + 1 < len(parts) else ""
    return Scanned(found.rows, found.scanned, left)


def whole(queue: str, view: View) -> View:
    """Return a message with its data also if that is too long for a list. It may have moved since it was read."""
    if isinstance(view, EntryView):
        return message_lists.get(queue, view.source, view.entry) or view
    if isinstance(view, WaitingView):
        return find_waiting(queue, view.member) or view
    return view


# The options of the command `mq` that select messages.
#
# A filter that cannot be applied is an error. It is never ignored, because without it an action would affect
# everything.

#: The options, by their names in Python.
NAMES = ("name", "key", "since", "until", "error", "group")

_TIME = "a time such as 2026-11-01T06:00Z, or how long ago, such as 2h"


def add_filter(parser: argparse.ArgumentParser, *, when: str = "", dead: bool = True) -> None:
    """Add the options. `when` says which other option they need; `dead`: whether to add those for dead letters."""
    start = f"{when}: only" if when else "Only"
    parser.add_argument("--name", help=f"{start} messages whose name contains this text.")
    parser.add_argument("--key", help=f"{start} messages with this key.")
    parser.add_argument("--since", type=time_ms, metavar="TIME", help=f"{start} messages published since {_TIME}.")
    parser.add_argument("--until", type=time_ms, metavar="TIME", help=f"{start} messages published before a time.")
    if dead:
        parser.add_argument("--error", help=f"{start} dead letters whose error contains this text.")
        parser.add_argument(
            "--group",
            nargs=2,
            metavar=("NAME", "ERROR"),
            help=f"{start} dead letters of this group of `mq errors`: the name of the message, and the class of its "
            "error. Either may be empty.",
        )


def given(options: Options, names: tuple[str, ...] = NAMES) -> list[str]:
    """Return the names of the options that were given."""
    return [name for name in names if options.get(name) is not None]


def filter_of(options: Options, names: tuple[str, ...] = NAMES) -> Filter:
    """Return the filter of the options. An empty text, as of an unset shell variable, would select everything."""
    found: dict[str, Any] = {name: options[name] for name in given(options, names)}
    for name in ("name", "key", "error"):
        if found.get(name) == "":
            raise CommandError(f"--{name} is '': omit it, or give it a value.", returncode=2)
    if "group" in found:
        found["group"] = FailureGroup(*found["group"])
    if options.get("place", "dead") != "dead" and found.keys() & {"error", "group"}:
        raise CommandError("Only dead letters have an error.", returncode=2)
    for name in ("since", "until"):
        if name in found:
            found[f"{name}_ms"] = found.pop(name).ms
    return Filter(**found)


def filter_text(options: Options) -> str:
    """Return the options of the filter as they were given; empty without a filter."""
    shown = []
    for name in given(options):
        value = options[name]
        shown.append(f"--{name} {' '.join(map(repr, value)) if name == 'group' else value}")
    return " and ".join(shown)
