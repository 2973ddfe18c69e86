"""The steps of a run as a graph and as a time line: inline SVG.

It has no styles, so that a strict content security policy allows it.
Colours come from the style sheet, and each state is a word as well.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext

from mq_django.admin.ui import text
from mq_django.core.texts import escape, truncate
from mq_django.inspector.open_steps import StepTimes
from mq_django.inspector.workflow_runs import STEP_STATES, RunView, StepLine

# The places of steps in a graph: columns by the longest path to a step.

#: How often the order of each column is improved.
SWEEPS = 4


class Cell(NamedTuple):
    """The place of a step: its column, and its row, which may be between two."""

    column: int
    row: float


class Layout(NamedTuple):
    """The places of all steps."""

    cells: Mapping[int, Cell]
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
    cells = {number: Cell(column, rows[number]) for column, group in enumerate(ordered) for number in group}
    return Layout(cells, len(ordered), max(map(len, ordered), default=0))


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


#: Pixels of a step and of the gaps between steps; of the margin, which has the outline of a focused step.
WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 190, 42, 56, 14, 6
#: Half the size of a join.
DOT = 5
#: Characters of a task's name in the graph.
MAX_NAME = 24


class NodeLink(NamedTuple):
    """Where a step leads to."""

    url: str
    #: What is there, for screen readers.
    what: str


def step_word(state: str) -> str:
    """Return the state of a step as a word for people."""
    words = {
        "building": _("being added"),
        "waiting": _("waiting"),
        "held": pgettext("step", "held"),
        "started": pgettext("step", "started"),
        "done": _("done"),
        "failed": _("failed"),
        "skipped": _("skipped"),
        "passed": _("passed"),
    }
    return words.get(state) or escape(state)[:20]


def step_kind(state: str) -> str:
    """Return the state of a step as part of a CSS class."""
    return state if state in STEP_STATES.values() else "other"


def graph(steps: Sequence[StepLine], links: Mapping[int, NodeLink]) -> SafeString:
    """Return the graph of steps, with links to their messages."""
    known = {step.number: step for step in steps}
    layout = lay_out({step.number: step.before for step in steps})
    count = sum(not step.is_join for step in steps)
    width = 2 * MARGIN + layout.columns * (WIDTH + GAP_X) - GAP_X
    height = 2 * MARGIN + layout.rows * (HEIGHT + GAP_Y) - GAP_Y
    return format_html(
        '<svg class="mq-graph" role="group" aria-labelledby="mq-graph-title mq-graph-about" width="{w}" height="{h}" '
        'viewBox="0 0 {w} {h}"><title id="mq-graph-title">{title}</title><desc id="mq-graph-about">{about}</desc>'
        "{edges}{nodes}</svg>",
        w=width,
        h=height,
        title=_("Graph of the steps"),
        about=ngettext(
            "%(count)s step. The table below has the same.",
            "%(count)s steps, each to the right of those that it waits for. The table below has the same.",
            count,
        )
        % {"count": text.number(count)},
        edges=format_html_join("", '<path class="mq-edge" d="{}"/>', ((path,) for path in _edges(known, layout))),
        nodes=format_html_join("", "{}", ((_node(step, layout.cells[step.number], links),) for step in steps)),
    )


def _edges(known: Mapping[int, StepLine], layout: Layout) -> Iterator[str]:
    for step in known.values():
        to_x, to_y = _left(layout.cells[step.number], step)
        for other in step.before:
            x, y = _right(layout.cells[other], known[other])
            middle = (x + to_x) // 2
            yield f"M{x} {y}C{middle} {y} {middle} {to_y} {to_x} {to_y}"


def _corner(cell: Cell) -> tuple[int, int]:
    return MARGIN + cell.column * (WIDTH + GAP_X), MARGIN + round(cell.row * (HEIGHT + GAP_Y))


def _left(cell: Cell, step: StepLine) -> tuple[int, int]:
    x, y = _corner(cell)
    return (x + WIDTH // 2 - DOT if step.is_join else x), y + HEIGHT // 2


def _right(cell: Cell, step: StepLine) -> tuple[int, int]:
    x, y = _corner(cell)
    return (x + WIDTH // 2 + DOT if step.is_join else x + WIDTH), y + HEIGHT // 2


def _node(step: StepLine, cell: Cell, links: Mapping[int, NodeLink]) -> SafeString:
    x, y = _corner(cell)
    if step.is_join:
        return format_html('<circle class="mq-join" cx="{}" cy="{}" r="{}"/>', x + WIDTH // 2, y + HEIGHT // 2, DOT)
    state, task = step_word(step.state), escape(step.task) or "?"
    took = text.seconds(step.took)
    inside = format_html(
        '<title>{}</title><rect x="{}" y="{}" width="{}" height="{}" rx="4"/>'
        '<text class="mq-step-name" x="{}" y="{}">{}</text><text class="mq-step-state" x="{}" y="{}">{}</text>',
        f"{step.number} {task}",
        *(x, y, WIDTH, HEIGHT),
        *(x + 10, y + 18, truncate(task.rpartition(".")[2], MAX_NAME)),
        *(x + 10, y + 34, f"{step.number} · {state} · {took}" if took else f"{step.number} · {state}"),
    )
    link, kind = links.get(step.number), step_kind(step.state)
    if link is None:
        return format_html('<g class="mq-step mq-step-{}">{}</g>', kind, inside)
    label = _("Step %(number)s, %(task)s: %(state)s") % {"number": step.number, "task": task, "state": state}
    return format_html(
        '<a class="mq-step mq-step-{}" href="{}" aria-label="{}">{}</a>',
        kind,
        link.url,
        f"{label}. {link.what}",
        inside,
    )


# The time line of a run: a row for each step that was started, with one bar for its queue and one for its handler.

#: Pixels of the names of steps, of the whole time, of a row and of its bar, and of the axis.
NAMES, SPAN, ROW, BAR, AXIS = 190, 640, 20, 10, 24
#: Marks of the axis, without that of the start.
MARKS = 4


class StepParts(NamedTuple):
    """The seconds for which a step waited in its queue, and for which its handler ran; None: unknown, or not yet."""

    waited: float | None
    ran: float | None


def parts_of(step: StepLine, times: StepTimes | None) -> StepParts:
    """Return how the time of a step is divided. Clocks of consumers may be behind that of the run."""
    if times is None or times.ran_ms is None or not step.began_ms:
        return StepParts(None, None)
    ended = step.ended_ms or times.ended_ms
    ran = None if ended is None or step.state == "started" else max(0, ended - times.ran_ms) / 1000
    return StepParts(max(0, times.ran_ms - step.began_ms) / 1000, ran)


def time_line(steps: Sequence[StepLine], times: Mapping[int, StepTimes], view: RunView, *, now_ms: int) -> SafeString:
    """Return when steps waited in their queues and ran, as a picture; "" before one was started."""
    rows = sorted((step for step in steps if step.began_ms and not step.is_join), key=_by_start)
    if not rows:
        return SafeString("")
    begin = min([step.began_ms or 0 for step in rows] + [view.started_ms or now_ms])
    end = max([_end(step, now_ms) for step in rows] + [begin + 1])
    height = len(rows) * ROW + AXIS
    about = _("A row for each step that was started. The table below has the same.")
    return format_html(
        '<svg class="mq-time-line" role="img" aria-labelledby="mq-time-title mq-time-about" width="{w}" height="{h}" '
        'viewBox="0 0 {w} {h}"><title id="mq-time-title">{title}</title><desc id="mq-time-about">{about}</desc>'
        "{axis}{rows}</svg>",
        w=NAMES + SPAN + 2 * MARGIN,
        h=height,
        title=_("Time line"),
        about=about,
        axis=format_html_join("", "{}", ((mark,) for mark in _axis(end - begin, height))),
        rows=format_html_join(
            "", "{}", ((_bars(at, step, times.get(step.number), (begin, end), now_ms),) for at, step in enumerate(rows))
        ),
    )


def _by_start(step: StepLine) -> tuple[int, int]:
    return step.began_ms or 0, step.number


def _end(step: StepLine, now_ms: int) -> int:
    return step.ended_ms or (now_ms if step.state == "started" else step.began_ms or now_ms)


def _axis(ms: int, height: int) -> Iterator[SafeString]:
    for mark in range(MARKS + 1):
        x = NAMES + MARGIN + SPAN * mark // MARKS
        anchor = "start" if mark == 0 else "end" if mark == MARKS else "middle"
        yield format_html(
            '<path class="mq-time-mark" d="M{} {}V{}"/><text x="{}" y="{}" text-anchor="{}">{}</text>',
            *(x, AXIS - 6, height, x, AXIS - 10, anchor),
            text.seconds(ms * mark / MARKS / 1000) if mark else "0",
        )


def _bars(at: int, step: StepLine, times: StepTimes | None, whole: tuple[int, int], now_ms: int) -> SafeString:
    """Return the row of a step: its name, and its bars; one of both if it is not known when its handler started."""
    begin, end = whole
    y, last, began = AXIS + at * ROW, _end(step, now_ms), step.began_ms or begin
    ran = min(max(times.ran_ms, began), last) if times is not None and times.ran_ms is not None else None
    # Without the result of a task that has ended nobody knows when it started. Of others none is known to run.
    kind = "queued" if step.state == "started" else "either"
    spans = (
        [(kind, began, last)]
        if ran is None
        else [("queued", began, ran), (f"ran mq-ran-{step_kind(step.state)}", ran, last)]
    )
    label = truncate(f"{step.number} {step.task.rpartition('.')[2]}", 2 * MAX_NAME - 20)
    bars = [
        format_html('<rect class="mq-{}" x="{}" y="{}" width="{}" height="{}"/>', name, x, y + 5, width, BAR)
        for name, first, until in spans
        for x, width in [_bar_at(first - begin, until - begin, end - begin)]
    ]
    parts = parts_of(step, times)
    said = ", ".join(
        words % {"time": text.seconds(value)}
        for words, value in (
            (_("waited %(time)s"), parts.waited),
            (_("ran %(time)s"), parts.ran),
            (_("took %(time)s"), step.took),
        )
        if value is not None
    )
    return format_html(
        '<g><title>{}</title><text x="{}" y="{}">{}</text>{}</g>',
        f"{step.number} {escape(step.task)}: {said or step_word(step.state)}",
        *(MARGIN, y + 14, escape(label)),
        format_html_join("", "{}", ((bar,) for bar in bars)),
    )


def _bar_at(first: int, until: int, whole: int) -> tuple[int, int]:
    """Return where a bar begins, and its width, of which something can always be seen."""
    x = NAMES + MARGIN + round(SPAN * first / whole)
    return x, max(1, round(SPAN * (until - first) / whole))
