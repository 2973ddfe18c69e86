"""Look for messages among many, a bounded part at a time."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from mq_django.inspector.messages import MessageView

#: Messages that one look goes through.
MAX_SCANNED = 5000

#: Messages asked for at a time.
BATCH = 500

#: Seconds after which a look ends early: a page is to be there in less than 0.3.
SECONDS = 0.12

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """What a message must be like to be shown; what is empty or None does not matter."""

    id: str = ""
    #: In its name, whatever the case.
    name: str = ""
    key: str = ""
    #: In what it failed with, whatever the case.
    error: str = ""
    #: Published at or after, and before: ms since 1970.
    since_ms: int | None = None
    until_ms: int | None = None

    def __bool__(self) -> bool:
        return self != NOTHING

    def takes(self, view: MessageView, error: str = "") -> bool:
        """Tell whether a message is meant."""
        at = view.published_ms
        return (
            (not self.id or self.id == view.id)
            and self.name.casefold() in view.name.casefold()
            and (not self.key or self.key == view.key)
            and self.error.casefold() in error.casefold()
            and (self.since_ms is None or (at is not None and at >= self.since_ms))
            and (self.until_ms is None or (at is not None and at < self.until_ms))
        )


NOTHING = Filter()


@dataclass(frozen=True, slots=True)
class Scanned(Generic[T]):
    """What a look found."""

    rows: Sequence[T]
    #: How many it went through.
    scanned: int
    #: From where to go on; empty at the end.
    after: str


def scan(
    read: Callable[[str, int], Sequence[tuple[str, T]]],
    takes: Callable[[T], bool] | None,
    *,
    after: str,
    limit: int,
) -> Scanned[T]:
    """Return up to `limit` of what `read` brings, in its order, and from where to go on.

    `read` takes a cursor and how many it may bring, and returns each with its own cursor. `takes` chooses; None takes
    all. At most `MAX_SCANNED` are looked at.
    """
    rows: list[T] = []
    scanned, deadline = 0, time.monotonic() + SECONDS
    batch = limit + 1 if takes is None else BATCH
    while True:
        found = read(after, batch)
        for cursor, row in found:
            if len(rows) == limit or scanned == MAX_SCANNED:
                return Scanned(rows, scanned, after)
            scanned += 1
            after = cursor
            if takes is None or takes(row):
                rows.append(row)
        if len(found) < batch:
            return Scanned(rows, scanned, "")
        if time.monotonic() > deadline:
            return Scanned(rows, scanned, after)
