"""Look for messages among many, a bounded part at a time."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from mq_django.core.filters import NOTHING, Filter

__all__ = ["NOTHING", "Filter", "Scanned", "scan"]

#: Messages that one look goes through.
MAX_SCANNED = 5000

#: Messages asked for at a time.
BATCH = 500

#: Seconds after which a look ends early: a page is to be there in less than 0.3.
SECONDS = 0.12

T = TypeVar("T")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Scanned(Generic[T]):
    """What a look found."""

    rows: Sequence[T]
    #: How many it went through.
    scanned: int
    #: From where to go on; empty at the end.
    after: str

    def shown(self, view: "Callable[[T], V]") -> "Scanned[V]":
        """Return the same with each of its rows as people see it: only what was found is worth that work."""
        return Scanned([view(row) for row in self.rows], self.scanned, self.after)


def scan(
    read: Callable[[str, int], Sequence[tuple[str, T]]],
    matches: Callable[[T], bool] | None,
    *,
    after: str,
    limit: int,
) -> Scanned[T]:
    """Return up to `limit` of what `read` brings, in its order, and from where to go on.

    `read` takes a cursor and how many it may bring, and returns each with its own cursor. `matches` chooses; None takes
    all. At most `MAX_SCANNED` are looked at.
    """
    rows: list[T] = []
    scanned, deadline = 0, time.monotonic() + SECONDS
    batch = limit + 1 if matches is None else BATCH
    while True:
        found = read(after, batch)
        for cursor, row in found:
            if len(rows) == limit or scanned == MAX_SCANNED:
                return Scanned(rows, scanned, after)
            scanned += 1
            after = cursor
            if matches is None or matches(row):
                rows.append(row)
        if len(found) < batch:
            return Scanned(rows, scanned, "")
        if time.monotonic() > deadline:
            return Scanned(rows, scanned, after)
