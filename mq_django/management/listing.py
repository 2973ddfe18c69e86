"""Read the messages of a place that match a filter, for the verbs of the command `mq`.

The inspector scans a bounded number of messages in a call, because a page waits for it. A terminal can wait: these
functions call it again until there are enough messages.
"""

import argparse
from collections.abc import Callable, Iterator
from typing import Any, get_args

from django.core.management.base import CommandError

from mq_django.core.filters import FailureGroup, Filter
from mq_django.inspector.message_lists import messages
from mq_django.inspector.message_views import MessageState, MessageView
from mq_django.inspector.stream_reader import Scanned
from mq_django.management.argument_types import time_ms
from mq_django.management.terminal import Options

#: The states of the messages of a queue.
PLACES: tuple[MessageState, ...] = tuple(state for state in get_args(MessageState) if state != "log")

#: Messages that one call returns at most.
BATCH = 500


def scans(
    queue: str, state: MessageState, where: Filter, *, after: str = "", with_log: bool = True
) -> Iterator[Scanned[MessageView]]:
    """Yield the messages that match in parts, to the end of the state; dead letters newest first."""
    while True:
        found = messages(queue, state, where, after=after, limit=BATCH, with_log=with_log)
        yield found
        if not found.after:
            return
        after = found.after


def first(read: Callable[..., Scanned[MessageView]], *, after: str, limit: int) -> Scanned[MessageView]:
    """Return the first messages that `read` finds, and the cursor to continue from; empty at the end."""
    rows: list[MessageView] = []
    scanned = 0
    while True:
        found = read(after=after, limit=limit - len(rows))
        rows += found.rows
        scanned, after = scanned + found.scanned, found.after
        if len(rows) == limit or not after:
            return Scanned(rows, scanned, after)


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
