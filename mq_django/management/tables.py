"""Tables in a terminal, for the command `mq`."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mq_django.core.visible import escape, truncate
from mq_django.inspector.queue_view import QueueView
from mq_django.management.terminal import Heading

#: Characters of a cell with data.
MAX_DATA = 200

#: What a cell without a value shows.
EMPTY = "-"


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line of headings and a line for each row, none without rows. The columns are the keys of all rows.

    An empty cell is "-", so that each line has as many words as columns as long as no value has a space.
    """
    if not rows:
        return []
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [columns, *([_cell(key, row.get(key)) for key in columns] for row in rows)]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    are_numbers = [all(isinstance(row.get(key), int | float | None) for row in rows) for key in columns]
    headings, *cells = ["  ".join(map(_padded, line, widths, are_numbers)).rstrip() for line in lines]
    return [Heading(headings), *cells]


def away_text(errors: Mapping[str, str]) -> str:
    """Return which queues and topics cannot be read, and why, as a sentence for each error; "" if all can."""
    named = {error: ", ".join(name for name in errors if errors[name] == error) for error in errors.values()}
    return " ".join(f"Cannot read {escape(names)}: {error}" for error, names in named.items())


def busy_with(view: QueueView) -> str:
    """Return which handler holds all lanes of a queue's consumers, as a line; "" if none does."""
    found = view.blocker
    if found is None:
        return ""
    lanes = f"all {found.threads} threads" if found.threads else "all coroutines"
    runs = f"{escape(found.name)} of queue {escape(found.queue)} for {found.ms // 1000} s"
    return f"{view.name} makes no progress: {lanes} of its consumers are busy with {runs}"


def _cell(key: str, value: Any) -> str:
    if value is None:
        return EMPTY
    if key == "data":
        return truncate(escape(json.dumps(value, ensure_ascii=False)), MAX_DATA)
    return (",".join(map(escape, value)) if isinstance(value, list) else escape(str(value))) or EMPTY


def _padded(cell: str, width: int, is_number: bool) -> str:
    return cell.rjust(width) if is_number else cell.ljust(width)
