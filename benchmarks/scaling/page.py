"""Renew the tables and the drawing of docs/scaling.md.

python -m benchmarks.scaling.page                        # from the figures that are stored
python -m benchmarks.scaling.page --measured JSON        # store those of a run first: benchmarks/results/results.json
"""

import argparse
import re
from pathlib import Path

from benchmarks.record import Record
from benchmarks.scaling.drawing import svg
from benchmarks.scaling.inputs import Inputs
from benchmarks.scaling.tables import TABLES
from benchmarks.trees import ROOT

PAGE, DRAWING = ROOT / "docs" / "scaling.md", ROOT / "docs" / "img" / "scaling.svg"
_PLACE = re.compile(r"(<!-- scaling: ([\w ]+) -->\n).*?(<!-- /scaling -->)", re.DOTALL)


def renewed(text: str, inputs: Inputs) -> str:
    """Return the page with its tables as they are computed now."""
    return _PLACE.sub(lambda place: f"{place[1]}\n{_content(place[2], inputs)}\n\n{place[3]}", text)


def places(text: str) -> list[str]:
    """Return the names of the tables that a page has."""
    return [name for _, name, _ in _PLACE.findall(text)]


def _content(name: str, inputs: Inputs) -> str:
    return where(inputs) if name == "where" else TABLES[name](inputs)


def where(inputs: Inputs) -> str:
    """Return when and where was measured."""
    found = inputs.where
    return (
        f"Measured on {found['date'].split()[0]}: {found['cores']} cores, Redis {found['Redis']}, "
        f"Python {found['Python']}, load before: {found['load before']}."
    )


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", type=Path, metavar="JSON", help="the results of a run with the steps of nodes")
    options = parser.parse_args()
    if options.measured:
        Inputs.of(Record.load(options.measured)).save()
    inputs = Inputs.load()
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8"), inputs), encoding="utf-8")
    DRAWING.write_text(svg(inputs), encoding="utf-8")


if __name__ == "__main__":
    main()
