"""Renew what the documentation shows of a run: a block of each page, between two comments, and the drawing."""

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from benchmarks import chart, report
from benchmarks.contenders import HANDLERS, RAW, Contender
from benchmarks.record import Record
from benchmarks.trees import ROOT

PAGE, README, DRAWING = Path("docs/benchmarks.md"), Path("README.md"), Path("docs/img/benchmarks.svg")
TESTING, TRANSACTIONS, COMPARISON = (Path(f"docs/{page}.md") for page in ("testing", "transactions", "comparison"))
#: The pages that show one step alone, by its name.
OF_STEPS = {"testing": TESTING, "outbox": TRANSACTIONS, "transactions": COMPARISON}
#: Line after line of a run is between these; what stands around them is written by hand.
BEGIN, END = "<!-- measured: renewed by make bench -->", "<!-- /measured -->"
BLOCK = re.compile(f"({re.escape(BEGIN)}\n).*?({re.escape(END)})", re.DOTALL)


class NoBlock(ValueError):
    """A page has no place for the figures; the message names it."""


def replaced(page: str, text: str) -> str:
    """Return a page with another text in its block.

    Raises NoBlock.
    """
    if not BLOCK.search(page):
        raise NoBlock(f"there is no block between {BEGIN!r} and {END!r}")
    return BLOCK.sub(lambda found: f"{found[1]}\n{text.strip()}\n\n{found[2]}", page, count=1)


def short(record: Record, contenders: Sequence[Contender]) -> str:
    """Return the README's sentences: those whose figures were measured."""
    figures = record.medians()
    ours = figures.get(HANDLERS.name, {})
    sentences = {
        "handle /s": f"One process handles {{:,.0f}} messages a second{_beside(figures, contenders, 'handle /s')}.",
        "delay p50": "A delayed message starts {:.1f} ms after it is due (p50).",
        "kill missing": "Of 2,000 messages, {:.0f} were lost when the consumer was killed three times.",
    }
    said = [sentence.format(ours[name]) for name, sentence in sentences.items() if name in ours]
    return " ".join([*said, _measured(record)])


def _beside(figures: report.Figures, contenders: Sequence[Contender], name: str) -> str:
    """Return what a rate of ours is beside the raw limit and the fastest peer."""
    ours, raw = (figures.get(one.name, {}).get(name) for one in (HANDLERS, RAW))
    peers = {one.name: figures.get(one.name, {}).get(name, 0.0) for one in contenders if one.is_peer}
    best = max(peers, key=lambda who: peers[who], default="")
    ratios = [f"{ours / raw:.2f} of the rate of bare redis-py"] if ours and raw else []
    ratios += (
        [f"{ours / peers[best]:.3g} times that of {best}, the fastest of the others"]
        if ours and peers.get(best)
        else []
    )
    return f": {', and '.join(ratios)}" if ratios else ""


def costs_of_tests(record: Record) -> str:
    """Return the table of docs/testing.md; nothing when that was not measured."""
    told = report.tests(record.medians())
    return told and f"{told}\n\n{_measured(record)}"


def costs_of_transactions(record: Record) -> str:
    """Return the table of docs/transactions.md; nothing when that was not measured."""
    told = report.outbox(record.medians())
    return told and f"{told}\n\n{_measured(record)}"


def comparison_of_transactions(record: Record, contenders: Sequence[Contender]) -> str:
    """Return the table of docs/comparison.md; nothing when that was not measured."""
    told = report.transactions(record.medians(), contenders)
    return told and f"{told}\n\n{_measured(record)}"


def _measured(record: Record) -> str:
    """Return when and where a run was."""
    day = record.machine["date"].split()[0]
    where = f"cores: {record.machine['cores']}, load before: {record.machine.get('load before', 'unknown')}"
    return f"Measured on {day}; {where}."


def write(record: Record, contenders: Sequence[Contender], root: Path = ROOT, *, steps: Collection[str] = ()) -> None:
    """Renew all pages and the drawing; if only some steps were run, the pages that show one of these alone."""
    pages = {
        PAGE: report.markdown(record, contenders, level=3, further=False),
        README: short(record, contenders),
        TESTING: costs_of_tests(record),
        TRANSACTIONS: costs_of_transactions(record),
        COMPARISON: comparison_of_transactions(record, contenders),
    }
    for path in [OF_STEPS[step] for step in steps] or pages:
        if pages[path]:
            page = (root / path).read_text(encoding="utf-8")
            (root / path).write_text(replaced(page, pages[path]), encoding="utf-8")
    if steps:
        return
    (root / DRAWING).write_text(chart.svg(record.medians()), encoding="utf-8")
