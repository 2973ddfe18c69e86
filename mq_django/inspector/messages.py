"""Waiting messages, for display."""

from collections.abc import Sequence
from dataclasses import dataclass

from mq_django.core.filters import Filter
from mq_django.core.keys import UNIQUE_PREFIX
from mq_django.inspector.message_views import Room, Rows, WaitingView
from mq_django.inspector.readers import open_reader
from mq_django.inspector.room_reader import place_in
from mq_django.inspector.scan import Scanned, scan


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingList:
    """A page of waiting messages, and their total number."""

    now_ms: int
    total: int
    waiting: Sequence[WaitingView]


def waiting(name: str, room: Room, *, start: int, limit: int) -> WaitingList:
    """Return a page of a queue's delayed messages, in the order of their due times, or of other waiting ones.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
    """
    now_ms, total, rows = open_reader(name).waiting(room, start=start, limit=limit)
    return WaitingList(now_ms=now_ms, total=total, waiting=[view for _, view in rows if view])


def look_among_waiting(name: str, room: Room, where: Filter, *, after: str = "", limit: int) -> Scanned[WaitingView]:
    """Return the waiting messages of one kind that match, in the order of `waiting`."""
    reader = open_reader(name)

    def read(cursor: str, count: int) -> Rows[WaitingView]:
        return reader.waiting(room, where, start=place_in(cursor), limit=count)[2]

    return scan(read, where, after=after, limit=limit)


def find_waiting(name: str, named: bytes) -> WaitingView | None:
    """Return a waiting message by its id, by `u:` + its unique key, or by its member; or None."""
    return open_reader(name).find_waiting(named)


def search_waiting(name: str, text: str, *, by_unique: bool = True) -> WaitingView | None:
    """Return a waiting message by its id, or by its unique key if `by_unique`; or None."""
    if not by_unique:
        return None if text.startswith(UNIQUE_PREFIX) else find_waiting(name, text.encode())
    return find_waiting(name, text.encode()) or find_waiting(name, (UNIQUE_PREFIX + text).encode())
