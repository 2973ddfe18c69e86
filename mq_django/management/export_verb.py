"""The verb `export` of the command `mq`: messages as JSON lines."""

import argparse
import json
from collections.abc import Iterator
from typing import Any

from mq_django.conf import get_config
from mq_django.core.filters import Filter
from mq_django.inspector.exports import exported, exported_dead_letters
from mq_django.inspector.handled_messages import HandledView
from mq_django.inspector.message_views import WaitingView
from mq_django.management.filter_options import add_filter, filter_of
from mq_django.management.listing import PLACES, View, scans, whole
from mq_django.management.terminal import Terminal
from mq_django.management.verb import Options, Verb


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("place", choices=PLACES, nargs="?", default="dead", help="Default: dead.")
    add_filter(parser)


def export(options: Options, terminal: Terminal) -> None:
    """Print the messages that match, one JSON object a line, as they are read."""
    queue, place, where = options["queue"], options["place"], filter_of(options)
    rows = exported_dead_letters(queue, where) if place == "dead" else _messages(queue, place, where)
    for row in rows:
        terminal.write(json.dumps(row, ensure_ascii=True))


def _messages(queue: str, place: str, where: Filter) -> Iterator[dict[str, Any]]:
    for part in get_config().queue(queue).each_part:
        for found in scans(part.name, place, where):
            for view in found.rows:
                yield _row(view if view.message.has_data else whole(part.name, view))


def _row(view: View) -> dict[str, Any]:
    message = view.message
    row = {
        **exported(message),
        "priority": message.priority,
        "unique": message.unique,
        "attempt": message.attempt,
        "published_ms": message.published_ms,
        "expires_ms": message.expires_ms,
    }
    if isinstance(view, WaitingView):
        row["due_ms"] = view.due_ms
    if isinstance(view, HandledView):
        ended = {"ending": view.ending, "started_ms": view.started_ms, "finished_ms": view.finished_ms}
        row |= {**ended, "consumer": view.consumer}
    if message.error:
        row["unreadable"] = message.error
    return row


VERBS = (Verb("export", "Print messages as JSON lines, with secrets replaced.", export, add_options, has_queue=True),)
