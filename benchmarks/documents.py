"""Renew what the documentation shows of a run: a block of each page, between two comments, and the drawing."""

import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks import chart, report
from benchmarks.contenders import Contender
from benchmarks.record import Record
from benchmarks.report import Column
from benchmarks.trees import ROOT

PAGE, README, DRAWING = Path("docs/benchmarks.md"), Path("README.md"), Path("docs/img/benchmarks.svg")
TESTING = Path("docs/testing.md")
#: Line after line of a run is between these; what stands around them is written by hand.
BEGIN, END = "<!-- measured: renewed by make bench -->", "<!-- /measured -->"
BLOCK = re.compile(f"({re.escape(BEGIN)}\n).*?({re.escape(END)})", re.DOTALL)

SHORT = (
    Column("handle, 1 process /s", ["handle /s"], by_raw=True),
    Column("publish one by one /s", ["publish /s"]),
    Column("in bulk /s", ["bulk /s"]),
    Column("at rest p50 / p99 ms", ["at rest p50 ms", "at rest p99 ms"], "{:,.1f}"),
    Column("delay late p50 / p99 ms", ["delay p50", "delay p99"], "{:,.1f}"),
    Column("lost of 2,000 when killed 3 times", ["kill missing"]),
)


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
    """Return the README's table."""
    quick = [one for one in contenders if one.name != "bare redis-py, no JSON"]
    told = report.compared(record.medians(), quick, SHORT)
    return f"{told}\n\n{_measured(record)} In brackets: by the raw limit."


def costs_of_tests(record: Record) -> str:
    """Return the table of docs/testing.md; nothing when that was not measured."""
    told = report.tests(record.medians())
    return told and f"{told}\n\n{_measured(record)}"


def _measured(record: Record) -> str:
    """Return when and where a run was."""
    day = record.machine["date"].split()[0]
    where = f"cores: {record.machine['cores']}, load before: {record.machine.get('load before', 'unknown')}"
    return f"Measured on {day}; {where}."


def write(record: Record, contenders: Sequence[Contender], root: Path = ROOT) -> None:
    """Renew all pages and the drawing."""
    for path, text in (
        (PAGE, report.markdown(record, contenders, level=3)),
        (README, short(record, contenders)),
        (TESTING, costs_of_tests(record)),
    ):
        if not text:
            continue
        page = (root / path).read_text(encoding="utf-8")
        (root / path).write_text(replaced(page, text), encoding="utf-8")
    (root / DRAWING).write_text(chart.svg(record.medians()), encoding="utf-8")
