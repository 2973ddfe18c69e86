"""The places of steps in a graph: columns by the longest path to a step."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

#: How often the order of each column is improved.
SWEEPS = 4


class GraphPlace(NamedTuple):
    """The place of a step: its column, and its row, which may be between two."""

    column: int
    row: float


class Layout(NamedTuple):
    """The places of all steps."""

    places: Mapping[int, GraphPlace]
    columns: int
    rows: int


def lay_out(before: Mapping[int, Sequence[int]]) -> Layout:
    """Return the places of steps.

    A step is in the column behind the last of those that it waits for. In a column steps stand near those that they
    wait for. Steps that wait for each other, which another program may have written, are in the last column.
    """
    columns = _columns(before)
    members: dict[int, list[int]] = defaultdict(list)
    for number in sorted(before):
        members[columns[number]].append(number)
    ordered = [members[column] for column in sorted(members)]
    after = _reversed(before)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        neighbours = before if down else after
        for column in ordered[1:] if down else ordered[-2::-1]:
            rows = _rows(ordered)
            column.sort(key=lambda number, rows=rows: (_mean(rows, neighbours.get(number, ()), number), number))  # type: ignore[misc]
    rows = _rows(ordered)
    places = {number: GraphPlace(column, rows[number]) for column, group in enumerate(ordered) for number in group}
    return Layout(places, len(ordered), max(map(len, ordered), default=0))


def _columns(before: Mapping[int, Sequence[int]]) -> dict[int, int]:
    left = {number: len({*others} & before.keys()) for number, others in before.items()}
    after, found = _reversed(before), dict[int, int]()
    free = sorted(number for number, count in left.items() if not count)
    for number in free:
        found[number] = 1 + max((found[other] for other in before[number] if other in found), default=-1)
        for other in after[number]:
            left[other] -= 1
            if not left[other]:
                # Is looked at later.
                free.append(other)
    last = 1 + max(found.values(), default=-1)
    return {number: found.get(number, last) for number in before}


def _reversed(before: Mapping[int, Sequence[int]]) -> Mapping[int, Sequence[int]]:
    after: dict[int, list[int]] = defaultdict(list)
    for number, others in before.items():
        for other in {*others}:
            if other in before:
                after[other].append(number)
    return after


def _rows(ordered: Iterable[Sequence[int]]) -> dict[int, float]:
    """Return the row of each step, with each column in the middle."""
    columns = list(ordered)
    tallest = max(map(len, columns), default=0)
    return {number: row + (tallest - len(column)) / 2 for column in columns for row, number in enumerate(column)}


def _mean(rows: Mapping[int, float], others: Iterable[int], number: int) -> float:
    known = [rows[other] for other in others if other in rows]
    return sum(known) / len(known) if known else rows[number]
