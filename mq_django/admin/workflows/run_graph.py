"""The steps of a run as a graph: inline SVG without styles, so that a strict content security policy allows it.

Colours are those of the style sheet, and each state is a word as well.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from mq_django.admin.ui import text
from mq_django.admin.workflows.graph_layout import GraphPlace, Layout, lay_out
from mq_django.core.visible import escape, truncate
from mq_django.inspector.run_steps import STEP_STATES, StepLine

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
        "held": _("held"),
        "started": _("started"),
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
        about=_("%(count)s steps, each to the right of those that it waits for. The table below has the same.")
        % {"count": text.number(count)},
        edges=format_html_join("", '<path class="mq-edge" d="{}"/>', ((path,) for path in _edges(known, layout))),
        nodes=format_html_join("", "{}", ((_node(step, layout.places[step.number], links),) for step in steps)),
    )


def _edges(known: Mapping[int, StepLine], layout: Layout) -> Iterator[str]:
    for step in known.values():
        to_x, to_y = _left(layout.places[step.number], step)
        for other in step.before:
            x, y = _right(layout.places[other], known[other])
            middle = (x + to_x) // 2
            yield f"M{x} {y}C{middle} {y} {middle} {to_y} {to_x} {to_y}"


def _corner(place: GraphPlace) -> tuple[int, int]:
    return MARGIN + place.column * (WIDTH + GAP_X), MARGIN + round(place.row * (HEIGHT + GAP_Y))


def _left(place: GraphPlace, step: StepLine) -> tuple[int, int]:
    x, y = _corner(place)
    return (x + WIDTH // 2 - DOT if step.is_join else x), y + HEIGHT // 2


def _right(place: GraphPlace, step: StepLine) -> tuple[int, int]:
    x, y = _corner(place)
    return (x + WIDTH // 2 + DOT if step.is_join else x + WIDTH), y + HEIGHT // 2


def _node(step: StepLine, place: GraphPlace, links: Mapping[int, NodeLink]) -> SafeString:
    x, y = _corner(place)
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
