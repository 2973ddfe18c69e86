"""The figures as tables in Markdown, and as JSON."""

import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.contenders import BYTES, HANDLERS, RAW, TASKS, Contender
from benchmarks.messages import SIZE
from benchmarks.pages import PAGE
from benchmarks.runner import Results
from benchmarks.targets import BEST, TARGETS
from benchmarks.trial import redis_version

Figures = Mapping[str, Mapping[str, float]]

#: The columns of the table of all contenders: heading, figures, and how to write them.
COLUMNS: Sequence[tuple[str, Sequence[str], str]] = (
    ("publish one by one /s", ["publish /s"], "{:,.0f}"),
    ("in bulk /s", ["bulk /s"], "{:,.0f}"),
    ("handle, 1 process /s", ["handle /s"], "{:,.0f}"),
    ("2 processes /s", ["2 processes /s"], "{:,.0f}"),
    ("at rest p50 / p99 ms", ["at rest p50 ms", "at rest p99 ms"], "{:.1f}"),
    ("delay late p50 / p99 ms", ["delay p50", "delay p99"], "{:,.1f}"),
    ("bytes ready / delayed", ["bytes ready", "bytes delayed"], "{:,.0f}"),
    ("idle commands/s / % core", ["idle commands/s", "idle cpu %"], "{:.1f}"),
    ("consumer MB", ["rest MB"], "{:.0f}"),
    ("3 x kill -9: missing / doubled of 2,000", ["kill missing", "kill doubled"], "{:.0f}"),
    ("done s", ["kill done s"], "{:.1f}"),
)
PACKAGES = {"Django": "Django", "redis": "redis-py", "hiredis": "hiredis", "orjson": "orjson"}
#: Figures of which the smaller is the better.
LESS = re.compile(r" ms|bytes|delay|idle|MB|missing|doubled|done s|pause s|us$")


def with_best(figures: Figures, contenders: Sequence[Contender]) -> dict[str, Mapping[str, float]]:
    """Return the figures with two more rows: the best of all peers, and of those in Python, figure by figure."""
    mine = {RAW.name, BYTES.name, HANDLERS.name, TASKS.name}
    peers = [one for one in contenders if one.name not in mine]
    python = [one.name for one in peers if not one.module.endswith(".mjs")]
    return {
        **figures,
        BEST: _best([figures.get(one.name, {}) for one in peers]),
        "best Python peer": _best([figures.get(name, {}) for name in python]),
    }


def _best(rows: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    names = {name for row in rows for name in row}
    return {name: (min if LESS.search(name) else max)(row[name] for row in rows if name in row) for name in names}


def _cell(row: Mapping[str, float], names: Sequence[str], form: str) -> str:
    return " / ".join(form.format(row[name]) for name in names if name in row)


def table(figures: Figures) -> str:
    """Return the table of all contenders."""
    used = [column for column in COLUMNS if any(name in row for name in column[1] for row in figures.values())]
    lines = ["| | " + " | ".join(heading for heading, _, _ in used) + " |", "|-|" + "-|" * len(used)]
    lines += [
        f"| {who} | " + " | ".join(_cell(row, names, form) for _, names, form in used) + " |"
        for who, row in figures.items()
        if row
    ]
    return "\n".join(lines)


def targets(figures: Figures) -> str:
    """Return the table of targets."""
    lines = ["| | target | measured | |", "|-|-|-|-|"]
    for target in TARGETS:
        value = target.value(figures)
        sign = "≥" if target.is_ == "at least" else "≤"
        told = "not measured" if value is None else f"{value:.2f}"
        verdict = "" if value is None or target.is_only_told else "met" if target.met(value) else "missed"
        lines.append(f"| {target.what} | {f'{sign} {target.bound:g}' if verdict else ''} | {told} | {verdict} |")
    return "\n".join(lines)


def pages(figures: Figures) -> str:
    """Return the table of the admin's pages; nothing when they were not measured."""
    ours = figures.get(HANDLERS.name, {})
    lines = ["| page | p50 ms | p95 ms | commands |", "|-|-|-|-|"]
    for name in ours:
        if name.startswith(PAGE) and name.endswith(" p50 ms"):
            page = name.removesuffix(" p50 ms")
            cells = [f"{ours[f'{page} {what}']:,.0f}" for what in ("p50 ms", "p95 ms", "commands")]
            lines.append(f"| {page.removeprefix(PAGE)} | {' | '.join(cells)} |")
    return "\n".join(lines) if len(lines) > 2 else ""


def others(figures: Figures) -> str:
    """Return every other figure of ours, a line each."""
    shown = {name for _, names, _ in COLUMNS for name in names}
    lines = [f"| | {RAW.name} | {HANDLERS.name} |", "|-|-|-|"]
    for name in {**figures.get(HANDLERS.name, {}), **figures.get(RAW.name, {})}:
        if name not in shown and not name.startswith(PAGE):
            cells = [
                f"{figures[who][name]:,.4g}" if name in figures.get(who, {}) else ""
                for who in (RAW.name, HANDLERS.name)
            ]
            lines.append(f"| {name} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    """Return where and with what was measured."""
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace"))
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cpus": os.cpu_count(),
        "cpu": cpu[1] if cpu else platform.processor(),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "Redis": redis_version(),
        **{PACKAGES[name]: version(name) for name in PACKAGES if _is_there(name)},
    }


def _is_there(name: str) -> bool:
    try:
        version(name)
    except ImportError:
        return False
    return True


def markdown(results: Results, contenders: Sequence[Contender]) -> str:
    """Return the whole report."""
    figures = with_best(results.medians(), contenders)
    where = ", ".join(f"{name} {value}" for name, value in machine().items())
    parts = [
        f"Measured with: {where}. Medians of interleaved rounds; data of {SIZE} bytes of JSON; no-op handlers.",
        table(figures),
        "## Targets\n\n" + targets(figures),
        "## Further figures\n\n" + others(figures),
    ]
    if of_pages := pages(figures):
        parts.append("## Pages of the admin\n\n" + of_pages)
    if results.failures:
        parts.append("## Not measured\n\n" + "\n".join(f"- {failure}" for failure in results.failures))
    return "\n\n".join(parts) + "\n"


def save(results: Results, folder: Path, contenders: Sequence[Contender]) -> None:
    """Write `results.json` and `results.md` into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    told = {"machine": machine(), "size": SIZE, "values": results.values, "failures": results.failures}
    (folder / "results.json").write_text(json.dumps(told, indent=1), encoding="utf-8")
    (folder / "results.md").write_text(markdown(results, contenders), encoding="utf-8")
