"""The verb `peek` of the command `mq`."""

import argparse
from typing import Any

from mq_django.inspector.message_views import EntryView
from mq_django.management.argument_types import cursor, page_size
from mq_django.management.as_dict import as_dict
from mq_django.management.filter_options import add_filter, filter_of
from mq_django.management.listing import PLACES, View, first
from mq_django.management.tables import table
from mq_django.management.terminal import Terminal
from mq_django.management.verb import Options, Verb, VerbResult


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("place", choices=PLACES, nargs="?", default="ready", help="Default: ready.")
    parser.add_argument("--limit", type=page_size, default=10, help="Default: 10. At most 500.")
    parser.add_argument("--after", type=cursor, help="Continue after the last message of a list.")
    add_filter(parser)


def peek(options: Options, _: Terminal) -> VerbResult:
    """Show the first messages of a place that match."""
    where = filter_of(options)
    page = first(options["queue"], options["place"], where, after=options["after"] or "", limit=options["limit"])
    rows = [_row(view) for view in page.rows]
    note = f"There are more: --after {page.after}" if page.after and rows else ""
    return VerbResult(rows, table(rows) or ["No messages."], note=note)


def _row(view: View) -> dict[str, Any]:
    if not isinstance(view, EntryView):
        return as_dict(view)
    held = {"consumer": view.consumer, "held_s": view.held_ms // 1000} if view.consumer else {}
    return {**as_dict(view.message), **held}


VERBS = (Verb("peek", "Show the first messages, with secrets replaced.", peek, add_options, has_queue=True),)
