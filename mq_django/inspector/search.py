"""Look among waiting messages and dead letters for those that fit a filter."""

from collections.abc import Sequence

from mq_django.inspector import dead_letters, messages
from mq_django.inspector.dead_letters import DeadLetterView
from mq_django.inspector.messages import Room, WaitingView
from mq_django.inspector.scan import Filter, Scanned, scan


def waiting(name: str, room: Room, wanted: Filter, *, after: str = "", limit: int) -> Scanned[WaitingView]:
    """Return the messages in a room that are wanted, as `messages.waiting` orders them.

    Raises:
        UnknownQueue: it is not configured.
        StoreError: Redis is away.
    """

    def read(cursor: str, count: int) -> Sequence[tuple[str, WaitingView]]:
        start = int(cursor) if cursor.isdecimal() and len(cursor) < 16 else 0
        found = messages.waiting(name, room, start=start, limit=count).waiting
        return [(str(start + place + 1), view) for place, view in enumerate(found)]

    return scan(read, lambda view: wanted.takes(view.message), after=after, limit=limit)


def dead(name: str, wanted: Filter, *, after: str = "", limit: int) -> Scanned[DeadLetterView]:
    """Return the dead letters that are wanted, newest first."""

    def read(cursor: str, count: int) -> Sequence[tuple[str, DeadLetterView]]:
        return [(view.entry, view) for view in dead_letters.page(name, limit=count, before=cursor).letters]

    return scan(read, lambda view: wanted.takes(view.message, view.error), after=after, limit=limit)
