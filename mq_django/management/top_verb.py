"""The verb `top` of the command `mq`: all queues, refreshed every few seconds."""

import argparse
import shutil
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from mq_django import inspector
from mq_django.core import clock
from mq_django.core.visible import escape, truncate
from mq_django.core.wire import moment
from mq_django.errors import StoreError
from mq_django.inspector.queue_view import Problem, QueueView
from mq_django.management.argument_types import whole
from mq_django.management.key_presses import END, KeyPresses
from mq_django.management.tables import away_text, table
from mq_django.management.terminal import Heading, Terminal
from mq_django.management.verb import Options, Verb, VerbResult

#: Sequences for the terminal: use another screen and hide the cursor; undo that; go to the top; clear to the end.
ENTER, LEAVE, HOME, CLEAR = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l", "\x1b[H", "\x1b[J"
#: Clears a line to its end.
CLEAR_RIGHT = "\x1b[K"

#: Keys that end it.
QUIT = ("q", "Q", END)

_PROBLEMS = get_args(Problem)
_RATES = ("published", "handled")
#: Columns of the table: not all counts, so that the problems fit on the terminal.
_SHOWN = ("queue", "ready", "pending", "delayed", "dead")
_COUNTS = ("ready", "pending", "delayed", "unhandled", "parked", "dead")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("queues", nargs="*", help="Default: all.")
    parser.add_argument("--once", action="store_true", help="Print it once, as if the output is no terminal.")
    parser.add_argument("--interval", type=whole, default=2, help="Seconds between two reads. Default: 2.")


def top(options: Options, terminal: Terminal) -> VerbResult | None:
    """Show all queues: once, or on a terminal until `q` or Ctrl-C is pressed."""
    names = options["queues"]
    if options["once"] or terminal.as_json or not terminal.is_terminal:
        views = _sorted(inspector.overview(names))
        away = {view.name: view.error for view in views if view.error}
        return VerbResult(list(map(_row, views)), list(_frame(views)), away_text(away))
    with KeyPresses() as keys:
        terminal.write(ENTER, ending="")
        try:
            _draw(names, terminal)
            while keys.wait(options["interval"]) not in QUIT:
                _draw(names, terminal)
        except KeyboardInterrupt:
            pass
        finally:
            terminal.write(LEAVE, ending="")
            terminal.flush()
    return None


def _draw(names: Sequence[str], terminal: Terminal) -> None:
    """Draw a frame over the last one, cut to the size of the terminal."""
    width, height = shutil.get_terminal_size()
    try:
        lines = list(_frame(_sorted(inspector.overview(names))))
    except StoreError as error:
        lines = [_now(), "", escape(str(error))]
    cut = [type(line)(truncate(line, width - 1)) for line in lines[: max(1, height - 1)]]
    if len(lines) > len(cut):
        cut[-1] = f"{len(lines) - len(cut) + 1} more queues"
    shown = [terminal.styled(line) + CLEAR_RIGHT for line in cut]
    terminal.write(HOME + "\n".join(shown) + CLEAR, ending="")
    terminal.flush()


def _sorted(views: Sequence[QueueView]) -> list[QueueView]:
    """Return queues: those with the worst problems first, then those with most ready messages."""

    def worst(view: QueueView) -> int:
        return min((_PROBLEMS.index(problem) for problem in view.problems()), default=len(_PROBLEMS))

    return sorted(views, key=lambda view: (worst(view), -view.ready, view.name))


def _frame(views: Sequence[QueueView]) -> Iterator[str]:
    """Yield the lines: a summary, and a table of the queues."""
    troubled = sum(bool(view.problems()) for view in views)
    sums = ", ".join(f"{sum(getattr(view, place) for view in views):,} {place}" for place in _COUNTS)
    rates = ", ".join(f"{sum(_per_second(view, what) for view in views):,.1f}/s {what}" for what in _RATES)
    yield Heading(f"{_now()}  {len(views)} queues, {troubled} with problems")
    yield f"{sums}; {rates}"
    yield ""
    yield from table([_cells(view) for view in views])


def _now() -> str:
    return Heading(moment(clock.now_ms())[:19].replace("T", " ") + " UTC")


def _per_second(view: QueueView, what: str) -> float:
    """Return the rate of the last minute."""
    return round(view.activity.per_minute(what) / 60, 1)


def _row(view: QueueView) -> dict[str, Any]:
    if view.error:
        return {"queue": view.name, "error": view.error}
    return {
        "queue": view.name,
        **{place: getattr(view, place) for place in _COUNTS},
        **{f"{what}_s": _per_second(view, what) for what in _RATES},
        "oldest_ms": view.waited_ms,
        "consumers": view.alive,
        "problems": list(view.problems()),
    }


def _cells(view: QueueView) -> dict[str, Any]:
    """Return the cells of a table row, with the wait of the oldest message in seconds."""
    row = _row(view)
    oldest_ms = row.get("oldest_ms")
    return {
        **{name: row.get(name) for name in _SHOWN},
        **{f"{what}/s": row.get(f"{what}_s") for what in _RATES},
        "oldest_s": None if oldest_ms is None else oldest_ms // 1000,
        "consumers": row.get("consumers"),
        "problems": list(view.problems()),
    }


VERBS = (Verb("top", "Show all queues, the worst first, refreshed every few seconds.", top, add_options),)
