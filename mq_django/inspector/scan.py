"""Scan many messages for those that match, a bounded number at a time."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from mq_django.core.filters import NOTHING, Filter
from mq_django.inspector.message_views import Rows

__all__ = ["NOTHING", "Filter", "Scanned", "scan"]

#: Messages that one scan reads.
MAX_SCANNED = 5000

#: Messages read at a time.
BATCH = 500

#: Seconds after which a scan ends early: a page should take less than 0.3.
SECONDS = 0.12

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scanned(Generic[T]):
    """The result of a scan."""

    rows: Sequence[T]
    #: The number of scanned messages.
    scanned: int
    #: The cursor to continue from; empty at the end.
    after: str


def scan(read: Callable[[str, int], Rows[T]], where: Filter, *, after: str, limit: int) -> Scanned[T]:
    """Return up to `limit` of the rows of `read` that match, and the cursor to continue from.

    `read` gets a cursor and the number of messages to scan. At most `MAX_SCANNED` are scanned.
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
