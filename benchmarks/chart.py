"""The throughput of all contenders as a drawing for the README."""

from collections.abc import Mapping, Sequence
from html import escape

from benchmarks.contenders import BYTES, HANDLERS, RAW, TASKS

Figures = Mapping[str, Mapping[str, float]]

PANELS = (
    ("publish /s", "published one by one /s"),
    ("bulk /s", "published in bulk /s"),
    ("handle /s", "handled by one process /s"),
)
WIDTH, LABEL, BAR, GAP = 760, 190, 16, 6

STYLE = """
text { font: 12px system-ui, sans-serif; fill: #222 } .h { font-weight: 600 }
.bar { fill: #9aa5b1 } .ours { fill: #1f6feb } .raw { fill: #d0d7de }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .bar { fill: #6e7681 } .raw { fill: #30363d } .ours { fill: #58a6ff }
}
"""


def _kind(who: str) -> str:
    return "ours" if who in (HANDLERS.name, TASKS.name) else "raw" if who in (RAW.name, BYTES.name) else "bar"


def _panel(rows: Sequence[tuple[str, float]], heading: str, top: int) -> list[str]:
    longest = max(value for _, value in rows)
    lines = [f'<text class="h" x="0" y="{top}">{escape(heading)}</text>']
    for place, (who, value) in enumerate(rows):
        y = top + 10 + place * (BAR + GAP)
        width = max(1.0, (WIDTH - LABEL - 80) * value / longest)
        lines += [
            f'<text x="{LABEL - 8}" y="{y + 12}" text-anchor="end">{escape(who)}</text>',
            f'<rect class="{_kind(who)}" x="{LABEL}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2"/>',
            f'<text x="{LABEL + width + 6:.1f}" y="{y + 12}">{value:,.0f}</text>',
        ]
    return lines


def svg(figures: Figures) -> str:
    """Return a panel a workload, a bar a contender, longest first."""
    lines, top = [], 16
    for name, heading in PANELS:
        rows = sorted(((who, row[name]) for who, row in figures.items() if name in row), key=lambda row: -row[1])
        if rows:
            lines += _panel(rows, heading, top)
            top += 34 + len(rows) * (BAR + GAP)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" role="img">'
    return "\n".join([head, f"<style>{STYLE}</style>", *lines, "</svg>"]) + "\n"
