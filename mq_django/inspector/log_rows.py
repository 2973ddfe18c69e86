"""Rows of the log of a topic. Those of a topic with partitions are merged by their time.

Entries of a topic with partitions are named with the number of their partition: `1700000000000-0.3`. The cursor behind
an entry is its name.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from mq_django.conf import TopicConfig
from mq_django.core import offsets
from mq_django.core.filters import NOTHING
from mq_django.core.offsets import Offset, parse
from mq_django.core.partitions import SEPARATOR, number_in
from mq_django.inspector.message_views import EntryView, Matcher, Rows, view_of_entry
from mq_django.inspector.room_reader import MAX_LISTED
from mq_django.transport import scripts
from mq_django.transport.fan_out import fan_out
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Wire, reply_or_raise

#: The fewest entries of a partition that are read at a time.
LEAST = 10

Row = tuple[str, EntryView | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    """A part of a log between two offsets, both included."""

    since: Offset
    until: Offset
    newest_first: bool = False
    where: Matcher = NOTHING
    #: The most bytes of data of a message that are read.
    max_bytes: int = MAX_LISTED


def log_rows(config: TopicConfig, wire: Wire, chosen: LogRange, *, after: str = "", limit: int) -> Rows[EntryView]:
    """Yield up to `limit` entries of a topic's log that follow a cursor, each with the cursor behind it.

    Raises:
        InvalidOffset: an offset or the cursor is invalid.
        StoreError: cannot reach Redis.
    """
    if not config.parts:
        yield from _Part(config, wire, chosen, limit, "").rows(after)
        return
    size = max(LEAST, 2 * limit // len(config.parts))
    parts = [_Part(part, wire, chosen, size, f"{SEPARATOR}{part.number}") for part in config.parts]
    cursors = [_cursor(part, chosen, after) for part in config.parts]
    commands = [[part.command(*cursor)] for part, cursor in zip(parts, cursors, strict=True)]
    replies = fan_out([wire] * len(parts), commands)
    each = [part.from_first(reply) for part, (reply,) in zip(parts, replies, strict=True)]
    yield from islice(heapq.merge(*each, key=_order, reverse=chosen.newest_first), limit)


def _order(row: Row) -> tuple[tuple[int, int], int]:
    return parse(row[0].partition(SEPARATOR)[0]), number_in(row[0]) or 0


def _cursor(part: TopicConfig, chosen: LogRange, after: str) -> tuple[str, bool]:
    """Return the entry after which a partition goes on, and whether that entry itself follows the cursor."""
    at = number_in(after) or 0
    return after.partition(SEPARATOR)[0], (part.number < at if chosen.newest_first else part.number > at)


class _Part:
    """A log, or the log of a partition, read `size` entries at a time."""

    def __init__(self, config: TopicConfig, wire: Wire, chosen: LogRange, size: int, suffix: str) -> None:
        self._config = config
        self._wire = wire
        self._chosen = chosen
        self._size = size
        self._suffix = suffix

    def command(self, after: str, is_included: bool = False) -> Command:
        chosen = self._chosen
        begins, ends = offsets.first(chosen.since), offsets.last(chosen.until)
        if after:
            parse(after)
            edge = after if is_included else f"({after}"
            begins, ends = (begins, edge) if chosen.newest_first else (edge, ends)
        order = "xrevrange" if chosen.newest_first else "xrange"
        args: list[Argument] = [begins, ends, order, self._size, chosen.max_bytes]
        return scripts.command("topic_page", keys=[self._config.keys.log], args=args)

    def rows(self, after: str) -> Iterator[Row]:
        """Yield the next entries after one, or from the beginning."""
        return self._decoded(reply_or_raise(self._wire.trip([self.command(after)])[0]))

    def from_first(self, reply: Any) -> Iterator[Row]:
        """Yield the entries in a first reply, and all that follow."""
        found = list(self._decoded(reply_or_raise(reply)))
        while found:
            yield from found
            last = found[-1][0].partition(SEPARATOR)[0]
            found = list(self.rows(last)) if len(found) == self._size else []

    def _decoded(self, flat: Sequence[Any]) -> Iterator[Row]:
        for entry, fields in zip(flat[::2], flat[1::2], strict=True):
            name = f"{entry.decode()}{self._suffix}"
            view = view_of_entry(self._config.name, "log", entry, fields, self._chosen.where)
            yield name, None if view is None else replace(view, entry=name.encode())
