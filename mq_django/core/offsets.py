"""Positions in a topic's log."""

import re
from datetime import datetime

from mq_django.core.clock import check_aware
from mq_django.core.partitions import SEPARATOR, number_in
from mq_django.core.texts import repr_of
from mq_django.errors import InvalidOffset

#: Where a group can start, or be moved to: "beginning", "end", a time, or the id of an entry.
Offset = str | datetime

BEGINNING, END = "beginning", "end"

_ENTRY = re.compile(r"(\d{1,20})(?:-(\d{1,20}))?", re.ASCII)
_LAST = 2**64 - 1
_REFUSED = (
    'A position in a log is "beginning", "end", a datetime, or the id of an entry such as 1700000000000-0, not {}'
)


def milliseconds(moment: datetime) -> int:
    """Return a time as milliseconds since 1970.

    Raises:
        InvalidOffset: it has no time zone, in a project with `USE_TZ`.
    """
    try:
        return round(check_aware(moment).timestamp() * 1000)
    except TypeError as error:
        raise InvalidOffset(f"A position in a log must be {error}, not {repr_of(moment)}") from error


def parse(offset: str) -> tuple[int, int]:
    """Return the two numbers of an entry id.

    Raises:
        InvalidOffset: it is not an entry id.
    """
    found = _ENTRY.fullmatch(offset)
    numbers = [int(part or 0) for part in found.groups()] if found else [_LAST + 1, 0]
    if max(numbers) > _LAST:
        raise InvalidOffset(_REFUSED.format(repr_of(offset)))
    return numbers[0], numbers[1]


def _entry(position: object) -> tuple[int, int]:
    """Return the two numbers of an entry id that a user gave: a number alone is rather a mistyped time or count."""
    if not isinstance(position, str) or "-" not in position:
        raise InvalidOffset(_REFUSED.format(repr_of(position)))
    # Lists name the entries of a topic with partitions with the number of the partition.
    return parse(position if number_in(position) is None else position.partition(SEPARATOR)[0])


def before(position: Offset) -> str:
    """Return the id after which a group reads, so that the message at `position` is next: 0, $, or an entry id.

    Raises:
        InvalidOffset: it is not a position in a log.
    """
    if position == BEGINNING:
        return "0"
    if position == END:
        return "$"
    first, second = (max(0, milliseconds(position)), 0) if isinstance(position, datetime) else _entry(position)
    if second:
        return f"{first}-{second - 1}"
    return f"{first - 1}-{_LAST}" if first else "0"


def first(position: Offset) -> str:
    """Return the start of a range for XRANGE that begins with the message at `position`."""
    after = before(position)
    return {"0": "-", "$": "+"}.get(after, f"({after}")


def last(position: Offset) -> str:
    """Return the end of a range for XRANGE that ends with the message at `position`."""
    if position in (BEGINNING, END):
        return "-" if position == BEGINNING else "+"
    if isinstance(position, datetime):
        return f"{max(0, milliseconds(position))}-{_LAST}"
    return "{}-{}".format(*_entry(position))
