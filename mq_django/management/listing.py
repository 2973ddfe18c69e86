"""Read the messages of a place that match a filter, for the verbs of the command `mq`.

The inspector scans a bounded number of messages in a call, because a page waits for it. A terminal can wait: these
functions call it again until there are enough messages.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, get_args

from mq_django.conf import QueueConfig, get_config
from mq_django.core.filters import Filter
from mq_django.inspector import dead_letters, entries
from mq_django.inspector.dead_letters import DeadLetterView
from mq_django.inspector.handled_messages import HandledView, look_among_handled
from mq_django.inspector.message_views import EntryView, Room, WaitingView
from mq_django.inspector.messages import find_waiting, look_among_waiting
from mq_django.inspector.scan import Scanned

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
        return entries.ready(queue, where, after=after, limit=limit, with_log=with_log)
    if place == "pending":
        return entries.pending(queue, where, after=after, limit=limit)
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
        return entries.get(queue, view.source, view.entry) or view
    if isinstance(view, WaitingView):
        return find_waiting(queue, view.member) or view
    return view
