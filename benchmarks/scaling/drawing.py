"""The rate of a queue by the number of nodes, as a drawing that is legible in light and dark."""

from collections.abc import Sequence
from html import escape
from math import log10

from benchmarks.scaling.inputs import Inputs
from benchmarks.scaling.model import Keys, partitions_for, rate
from benchmarks.scaling.node_costs import ORDERED_AOF, PLAIN_AOF
from benchmarks.scaling.tables import NODES, USE

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 330, 84, 40, 250, 44
#: The height of a name.
NAME = 16
#: The rates at the bottom and the top.
LOWEST, HIGHEST = 1e3, 1e7
Points = Sequence[float]

STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1f2328 } .h { font-weight: 600 } .back { fill: #ffffff }
.grid { stroke: #d0d7de } polyline { fill: none; stroke-width: 2.5 }
.s0 { stroke: #1f6feb } .s1 { stroke: #1a7f37 } .s2 { stroke: #9a6700 } .s3 { stroke: #cf222e }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .back { fill: #0d1117 } .grid { stroke: #30363d }
  .s0 { stroke: #58a6ff } .s1 { stroke: #3fb950 } .s2 { stroke: #d29922 } .s3 { stroke: #f85149 }
}
"""


def series(inputs: Inputs) -> dict[str, Points]:
    """Return the rates by the number of nodes, for several queues."""
    ordered = inputs.costs(ORDERED_AOF, slow=True, handler=0.01)
    cases = {
        "no order, in bulk, fast": (inputs.costs(PLAIN_AOF, bulk=True), Keys()),
        "no order, one by one, slow": (inputs.costs(PLAIN_AOF, slow=True), Keys()),
        "order, 100,000 equal keys": (ordered, Keys(100_000)),
        "order, the hottest key has 8 %": (ordered, Keys(100_000, 1.0)),
    }
    return {
        name: [rate(costs, keys, partitions=partitions_for(n), nodes=n, use=USE).value for n in NODES]
        for name, (costs, keys) in cases.items()
    }


def _x(place: int) -> float:
    return LEFT + place * (WIDTH - LEFT - RIGHT) / (len(NODES) - 1)


def _y(value: float) -> float:
    share = (log10(value) - log10(LOWEST)) / (log10(HIGHEST) - log10(LOWEST))
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _places(ends: Sequence[float]) -> list[float]:
    """Return where the names of lines are, from the top down: at their ends, but never one on another."""
    places: list[float] = []
    for end in ends:
        places.append(max(end, places[-1] + NAME) if places else end)
    return places


def _grid() -> list[str]:
    lines = []
    for power in range(round(log10(LOWEST)), round(log10(HIGHEST)) + 1):
        y = _y(10**power)
        lines += [
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>',
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{10**power:,}</text>',
        ]
    for place, number in enumerate(NODES):
        lines.append(f'<text x="{_x(place):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{number}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    lines.append(f'<text x="{middle:.1f}" y="{HEIGHT - 8}" text-anchor="middle">nodes of the cluster</text>')
    return lines


def svg(inputs: Inputs) -> str:
    """Return the drawing."""
    found = series(inputs)
    title = "What a queue does, messages a second"
    described = "; ".join(
        f"{name}: " + ", ".join(f"{value:,.0f} with {number}" for number, value in zip(NODES, values, strict=True))
        for name, values in found.items()
    )
    box = f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="title desc"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box}>',
        f'<title id="title">{title}, by nodes</title>',
        f'<desc id="desc">{escape(described)}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect class="back" width="{WIDTH}" height="{HEIGHT}" rx="6"/>',
        f'<text class="h" x="12" y="22">{title}</text>',
        *_grid(),
    ]
    places = _places([_y(values[-1]) for values in found.values()])
    for number, (name, values) in enumerate(found.items()):
        points = " ".join(f"{_x(place):.1f},{_y(value):.1f}" for place, value in enumerate(values))
        lines += [
            f'<polyline class="s{number}" points="{points}"/>',
            f'<text x="{WIDTH - RIGHT + 10}" y="{places[number] + 4:.1f}">{escape(name)}</text>',
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"
