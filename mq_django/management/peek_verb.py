"""The verb `peek` of the command `mq`."""

import argparse
from collections.abc import Iterable
from typing import Any

from mq_django.core.filters import NOTHING
from mq_django.inspector import dead_letters, entries, messages
from mq_django.inspector.message_views import Room
from mq_django.management.argument_types import page_size
from mq_django.management.as_dict import as_dict
from mq_django.management.tables import table
from mq_django.management.terminal import Terminal
from mq_django.management.verb import Options, Verb, VerbResult

#: Places of waiting messages, by their names in `peek`.
ROOMS: dict[str, Room] = {"delayed": "delayed", "unhandled": "unhandled", "parked": "parked"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument(
        "place", choices=["ready", "delayed", "unhandled", "parked", "dead"], nargs="?", default="ready"
    )
    parser.add_argument("--limit", type=page_size, default=10, help="Default: 10. At most 500.")


def peek(options: Options, _: Terminal) -> VerbResult:
    """Show the first messages of a place."""
    found = list(map(as_dict, _peeked(options["queue"], options["place"], options["limit"])))
    return VerbResult(found, table(found) or ["No messages."])


def _peeked(queue: str, place: str, limit: int) -> Iterable[Any]:
    if place == "dead":
        return dead_letters.page(queue, limit=limit).letters
    if place == "ready":
        return [view.message for view in entries.ready(queue, NOTHING, limit=limit).rows]
    return messages.waiting(queue, ROOMS[place], start=0, limit=limit).waiting


VERBS = (Verb("peek", "Show the first messages, with secrets replaced.", peek, add_options, has_queue=True),)
