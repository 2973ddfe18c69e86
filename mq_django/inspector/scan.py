"""Look for messages among many, a bounded part at a time."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from mq_django.core.filters import NOTHING, Filter
from mq_django.inspector.message_views import Rows

__all__ = ["NOTHING", "Filter", "Scanned", "scan"]

#: Messages that one look goes through.
MAX_SCANNED = 5000

#: Messages asked for at a time.
BATCH = 500

#: Seconds after which a look ends early: a page is to be there in less than 0.3.
SECONDS = 0.12

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scanned(Generic[T]):
    """What a look found."""

    rows: Sequence[T]
    #: How many it went through.
    scanned: int
    #: From where to go on; empty at the end.
    after: str


def scan(read: Callable[[str, int], Rows[T]], where: Filter, *, after: str, limit: int) -> Scanned[T]:
    """Return up to `limit` of what `read` brings and is wanted, in its order, and from where to go on.

    `read` takes a cursor and how many to go through. At most `MAX_SCANNED` are looked at.
    """
    rows: list[T] = []
    scanned, deadline = 0, time.monotonic() + SECONDS
    batch = BATCH if where else limit + 1
    while True:
        before = scanned
        for cursor, row in read(after, batch):
            if len(rows) == limit or scanned == MAX_SCANNED:
                return Scanned(rows, scanned, after)
            scanned += 1
            after = cursor
            if row is not None:
                rows.append(row)
        if scanned - before < batch:
            return Scanned(rows, scanned, "")
        if time.monotonic() > deadline:
            return Scanned(rows, scanned, after)
