"""The verb `find` of the command `mq`."""

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from django.core.management.base import CommandError

from mq_django.core.filters import Filter
from mq_django.core.keys import UNIQUE_PREFIX
from mq_django.core.visible import escape
from mq_django.core.wire import moment
from mq_django.inspector import dead_letters, entries
from mq_django.inspector.message_ids import expired_ms
from mq_django.inspector.message_views import EntryView
from mq_django.inspector.messages import search_waiting
from mq_django.inspector.scan import Scanned
from mq_django.management.as_dict import as_dict
from mq_django.management.tables import table
from mq_django.management.terminal import Terminal
from mq_django.management.verb import Options, Verb, VerbResult


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("id", help="A message id, or u: and the unique key of a waiting message.")


def find(options: Options, _: Terminal) -> VerbResult:
    """Return where a message is, or what became of it.

    Raises:
        CommandError: nothing is known of it.
    """
    queue, message_id = options["queue"], options["id"]
    found = _found(queue, message_id)
    if found is None:
        if message_id.startswith(UNIQUE_PREFIX):
            what = f"no waiting message with the unique key {escape(message_id.removeprefix(UNIQUE_PREFIX))}"
            raise CommandError(f"Queue {escape(queue)} has {what}. Others are found by their ids.")
        what = f"Queue {escape(queue)} has no message {escape(message_id)}"
        raise CommandError(f"{what}: it was handled, cancelled or purged, or it never existed.")
    return VerbResult(found, table([found]))


def _found(queue: str, message_id: str) -> Mapping[str, Any] | None:
    waiting = search_waiting(queue, message_id)
    if waiting is not None:
        return {"place": waiting.room, **as_dict(waiting)}
    for place, read in (("ready", entries.ready), ("pending", entries.pending)):
        view = _scanned(read, queue, Filter(id=message_id))
        if view is not None:
            return {"place": place, **as_dict(view)}
    dead = dead_letters.find(queue, message_id)
    letter = None if dead is None else dead_letters.get(queue, dead)
    if letter is not None:
        return {"place": "dead", **as_dict(letter)}
    expired = expired_ms(queue, message_id)
    return None if expired is None else {"place": "expired", "id": message_id, "at": moment(expired)}


def _scanned(read: Callable[..., Scanned[EntryView]], queue: str, where: Filter) -> EntryView | None:
    """Return the first message that matches, after as many scans as that takes."""
    after = ""
    while True:
        found = read(queue, where, after=after, limit=1)
        if found.rows or not found.after:
            return found.rows[0] if found.rows else None
        after = found.after


VERBS = (Verb("find", "Tell where a message is, or what became of it.", find, add_options, has_queue=True),)
