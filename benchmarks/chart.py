"""The rates of all contenders as a drawing for the README, legible in light and dark."""

from collections.abc import Mapping, Sequence
from html import escape

from benchmarks.contenders import HANDLERS, RAW, TASKS

Figures = Mapping[str, Mapping[str, float]]

#: Figure, heading, and whether the smaller is the better.
PANELS = (
    ("handle /s", "handled by one process, messages/s", False),
    ("bulk /s", "published in bulk, messages/s", False),
    ("publish /s", "published one by one, messages/s", False),
    ("at rest p99 ms", "from publish to handler at rest, p99 in ms (less is better)", True),
)
COLUMNS = 2
PANEL, LABEL, FIGURE, BAR, GAP = 430, 138, 62, 15, 6
HEAD = 26
#: Who stands for the raw limit and for us; the variants of them would tell nothing more.
OURS, LIMITS = (HANDLERS.name, TASKS.name), (RAW.name,)

STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1f2328 } .h { font-weight: 600 } .ours-name { font-weight: 600 }
.back { fill: #ffffff } .peer { fill: #9aa5b1 } .ours { fill: #1f6feb } .raw { fill: none; stroke: #6e7781 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .back { fill: #0d1117 } .peer { fill: #6e7681 } .ours { fill: #58a6ff }
  .raw { stroke: #8b949e }
}
"""


def _kind(who: str) -> str:
    return "ours" if who in OURS else "raw" if who in LIMITS else "peer"


def shown(figures: Figures, name: str, *, less: bool) -> list[tuple[str, float]]:
    """Return who has a figure, the best first; without the variants of peers and of the raw limit."""
    rows = [(who, row[name]) for who, row in figures.items() if name in row and "," not in who]
    return sorted(rows, key=lambda row: row[1] if less else -row[1])


def _panel(rows: Sequence[tuple[str, float]], heading: str, left: int, top: int) -> list[str]:
    longest = max(value for _, value in rows)
    lines = [f'<text class="h" x="{left}" y="{top + 14}">{escape(heading)}</text>']
    for place, (who, value) in enumerate(rows):
        y = top + HEAD + place * (BAR + GAP)
        width = max(1.0, (PANEL - LABEL - FIGURE) * value / longest)
        number = f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
        name = ' class="ours-name"' if who in OURS else ""
        lines += [
            f'<text{name} x="{left + LABEL - 8}" y="{y + 12}" text-anchor="end">{escape(who)}</text>',
            f'<rect class="{_kind(who)}" x="{left + LABEL}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2"/>',
            f'<text x="{left + LABEL + width + 6:.1f}" y="{y + 12}">{number}</text>',
        ]
    return lines


def _description(panels: Sequence[tuple[str, Sequence[tuple[str, float]]]]) -> str:
    told = [f"{heading}: " + ", ".join(f"{who} {value:,.0f}" for who, value in rows) for heading, rows in panels]
    return "; ".join(told)


def svg(figures: Figures) -> str:
    """Return a panel a workload, a bar a contender, the best first."""
    panels = [(heading, shown(figures, name, less=less)) for name, heading, less in PANELS]
    panels = [panel for panel in panels if panel[1]]
    lines: list[str] = []
    top = 12
    for start in range(0, len(panels), COLUMNS):
        abreast = panels[start : start + COLUMNS]
        for column, (heading, rows) in enumerate(abreast):
            lines += _panel(rows, heading, 12 + column * (PANEL + 20), top)
        top += HEAD + max(len(rows) for _, rows in abreast) * (BAR + GAP) + 18
    width = COLUMNS * (PANEL + 20) + 4
    box = f'viewBox="0 0 {width} {top}" role="img" aria-labelledby="title desc"'
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box}>',
        '<title id="title">mq_django, the raw limit of Redis, and other queues</title>',
        f'<desc id="desc">{escape(_description(panels))}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect class="back" width="{width}" height="{top}" rx="6"/>',
    ]
    return "\n".join([*head, *lines, "</svg>"]) + "\n"
