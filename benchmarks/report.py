"""The figures as tables in Markdown."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from benchmarks.contenders import BYTES, HANDLERS, RAW, Contender
from benchmarks.messages import SIZE
from benchmarks.outbox_rows import NAMES, OUTBOX
from benchmarks.pages import PAGE
from benchmarks.record import Record
from benchmarks.targets import BEST, BEST_PYTHON, TARGETS, Target
from benchmarks.testing import ROWS, TEST
from benchmarks.transactions import ALONE, BY_ALONE, HANDLED, IN_DJANGO, P50, P99, PUBLISHED

Row = Mapping[str, float]
Figures = Mapping[str, Row]


class Column(NamedTuple):
    """A column of a table: the figures in it, and how they are written."""

    heading: str
    names: Sequence[str]
    form: str = "{:,.0f}"
    #: Whether the ratio to the raw limit stands behind it.
    by_raw: bool = False


RATES = (
    Column("publish one by one /s", ["publish /s"], by_raw=True),
    Column("in bulk /s", ["bulk /s"], by_raw=True),
    Column("handle, 1 process /s", ["handle /s"], by_raw=True),
    Column("2 processes /s", ["2 processes /s"], by_raw=True),
)
LATENCIES = (
    Column("at rest p50 / p99 ms", ["at rest p50 ms", "at rest p99 ms"], "{:,.1f}"),
    Column("delay late p50 / p99 ms", ["delay p50", "delay p99"], "{:,.1f}"),
    Column("early of 200", ["delay early"]),
)
COSTS = (
    Column("bytes in Redis, ready / delayed", ["bytes ready", "bytes delayed"]),
    Column("µs of a core a message: consumer / Redis", ["handle cpu us", "handle Redis's cpu us"], "{:,.1f}"),
    Column("2 processes: % of Redis's core", ["2 processes: Redis's core %"]),
    Column("idle: commands/s / % of a core", ["idle commands/s", "idle cpu %"], "{:,.1f}"),
    Column("largest process at rest, MB", ["rest MB"]),
)
KILLS = (
    Column("missing", ["kill missing"]),
    Column("doubled", ["kill doubled"]),
    Column("last one handled, s after the last restart", ["kill done s"], "{:,.1f}"),
    Column("longest pause, s", ["kill pause s"], "{:,.1f}"),
    Column("handle, 1 process /s", ["handle /s"]),
)
TRANSACTIONS = (
    Column("transaction ms: a row / and a publish", [ALONE, PUBLISHED], "{:,.2f}"),
    Column("by a row alone", [BY_ALONE], "{:.2f}"),
    Column("commit to handler p50 / p99 ms", [P50, P99], "{:,.1f}"),
    Column("a backlog handled /s", [HANDLED]),
)
#: Figures of which the smaller is the better.
LESS = re.compile(r" ms|bytes|delay|idle|MB|missing|doubled|done s|pause s|us$")


def with_best(figures: Figures, contenders: Sequence[Contender]) -> dict[str, Row]:
    """Return the figures with two more rows: the best of all peers, and of those in Python, figure by figure."""
    peers = [one for one in contenders if one.is_peer and not one.is_safest]
    python = [one for one in peers if one.is_python]
    return {**figures, BEST: _best(figures, peers), BEST_PYTHON: _best(figures, python)}


def _best(figures: Figures, peers: Sequence[Contender]) -> Row:
    rows = [figures.get(peer.name, {}) for peer in peers]
    names = {name for row in rows for name in row}
    return {name: (min if LESS.search(name) else max)(row[name] for row in rows if name in row) for name in names}


def table(heading: str, columns: Sequence[Column], rows: Mapping[str, Sequence[str]]) -> str:
    """Return a table in Markdown; nothing when it has no rows."""
    if not rows:
        return ""
    lines = [f"| {heading} | " + " | ".join(column.heading for column in columns) + " |", "|-|" + "-|" * len(columns)]
    lines += [f"| {who} | " + " | ".join(cells) + " |" for who, cells in rows.items()]
    return "\n".join(lines)


def _cell(row: Row, column: Column, raw: Row) -> str:
    told = " / ".join(column.form.format(row[name]) for name in column.names if name in row)
    base = raw.get(column.names[0])
    return f"{told} ({row[column.names[0]] / base:.2f})" if told and base and column.by_raw and row is not raw else told


def _rows(figures: Figures, columns: Sequence[Column], who: Sequence[str]) -> dict[str, list[str]]:
    """Return the cells of those who have any."""
    raw = figures.get(RAW.name, {})
    made = {name: [_cell(figures.get(name, {}), column, raw) for column in columns] for name in who}
    return {name: cells for name, cells in made.items() if any(cells)}


def _against_best(figures: Figures, columns: Sequence[Column], peers: Sequence[Contender]) -> list[str]:
    """Return how ours stands to the best peer, and who that is, column by column; of two figures, by the last."""
    cells = []
    for column in columns:
        name = column.names[-1]
        ours = figures.get(HANDLERS.name, {}).get(name)
        found = {peer.name: figures[peer.name][name] for peer in peers if name in figures.get(peer.name, {})}
        if not found or not ours:
            cells.append("")
            continue
        choose: Callable[..., str] = min if LESS.search(name) else max
        best = choose(found, key=lambda who, found=found: found[who])
        cells.append(f"{ours / found[best]:.3g} times {best}" if found[best] else f"0 of {best}")
    return cells


def _order(figures: Figures, contenders: Sequence[Contender]) -> list[str]:
    """Return the names: ours and the raw limit first, then the peers, the fastest first."""
    mine = [one.name for one in contenders if not one.is_peer]
    peers = [one.name for one in contenders if one.is_peer and not one.is_safest]
    return mine + sorted(peers, key=lambda name: -figures.get(name, {}).get("handle /s", 0.0))


def compared(figures: Figures, contenders: Sequence[Contender], columns: Sequence[Column]) -> str:
    """Return a table of all contenders with their fastest settings."""
    rows = _rows(figures, columns, _order(figures, contenders))
    peers = [one for one in contenders if one.is_peer and not one.is_safest]
    if peers:
        rows["**mq_django by the best peer**"] = _against_best(figures, columns, peers)
    return table("", columns, rows)


def kills(figures: Figures, contenders: Sequence[Contender]) -> str:
    """Return the table of what is lost and doubled, with the fastest and the safest settings."""
    rows: dict[str, list[str]] = {}
    for name in _order(figures, contenders):
        for who in (name, f"{name}, safest"):
            if "kill missing" in figures.get(who, {}):
                rows |= _rows(figures, KILLS, [who])
    return table("of 2,000 messages", KILLS, rows)


def targets(figures: Figures) -> str:
    """Return the table of targets."""
    lines = ["| | target | measured |", "|-|-|-|"]
    lines += [_target(target, figures) for target in TARGETS]
    return "\n".join(lines)


def _target(target: Target, figures: Figures) -> str:
    value = target.value(figures)
    if value is None:
        return f"| {target.what} | {target.told} | not measured |"
    name, unit = target.beside
    beside = f" ({figures[target.who][name]:.0f} {unit})" if name in figures[target.who] else ""
    missed = "" if target.is_only_told or target.met(value) else ", **missed**: [why](#where-the-time-goes)"
    return f"| {target.what} | {target.told} | {value:.2f}{beside}{missed} |"


def others(figures: Figures, contenders: Sequence[Contender]) -> str:
    """Return every other figure, a line each: of the raw limit, of ours, and of peers where they were asked for."""
    shown = {name for column in (*RATES, *LATENCIES, *COSTS, *KILLS) for name in column.names}
    names = {
        name: None
        for row in figures.values()
        for name in row
        if name not in shown and not name.startswith((PAGE, TEST, OUTBOX, IN_DJANGO))
    }
    who = [name for name in _order(figures, contenders) if name != BYTES.name and names.keys() & figures.get(name, {})]
    columns = [Column(name, []) for name in who]
    return table("", columns, {name: [_number(figures.get(one, {}).get(name)) for one in who] for name in names})


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.3g}"


def pages(figures: Figures) -> str:
    """Return the table of the admin's pages; nothing when they were not measured."""
    ours = figures.get(HANDLERS.name, {})
    measured = [name.removesuffix(" p50 ms") for name in ours if name.startswith(PAGE) and name.endswith(" p50 ms")]
    columns = [Column(what, []) for what in ("p50 ms", "p95 ms", "commands")]
    rows = {
        page.removeprefix(PAGE): [_number(ours.get(f"{page} {column.heading}")) for column in columns]
        for page in measured
    }
    return table("page", columns, rows)


def tests(figures: Figures) -> str:
    """Return the table of what tests cost; nothing when they were not measured."""
    ours = figures.get(HANDLERS.name, {})
    columns = [Column(what, []) for what in ("p50 ms", "p95 ms")]
    rows = {
        told: [_number(ours.get(f"{TEST}{name} {column.heading}")) for column in columns]
        for name, told in ROWS.items()
        if f"{TEST}{name} p50 ms" in ours
    }
    return table("", columns, rows)


def outbox(figures: Figures) -> str:
    """Return the table of the outbox, with a column for each database; nothing when it was not measured."""
    ours = figures.get(HANDLERS.name, {})
    found = {name: value for name, value in ours.items() if name.startswith(OUTBOX)}
    prefixes = {database: f"{OUTBOX}{database}: " for database in NAMES.values()}
    shown = [database for database, prefix in prefixes.items() if any(name.startswith(prefix) for name in found)]
    rows = dict.fromkeys(name.partition(": ")[2] for name in found)
    cells = {what: [_number(found.get(prefixes[database] + what)) for database in shown] for what in rows}
    return table("", [Column(database, []) for database in shown], cells)


def transactions(figures: Figures, contenders: Sequence[Contender]) -> str:
    """Return the table of those who publish in transactions; nothing when they were not measured."""
    return table("", TRANSACTIONS, _rows(figures, TRANSACTIONS, [one.name for one in contenders if one.in_django]))


def settings(contenders: Sequence[Contender]) -> str:
    """Return what everybody was set to, and which versions they had."""
    lines = []
    for one in contenders:
        packages = "" if one.is_safest or not one.packages else f" ({', '.join(one.packages)})"
        lines.append(f"- **{one.name}**{packages}: {one.settings}")
    return "\n".join(lines)


def where(record: Record) -> str:
    """Return when, where and with what was measured."""
    about = ", ".join(f"{name} {value}" for name, value in record.machine.items() if name != "date")
    return (
        f"{record.machine['date']}: {about}. Medians of interleaved rounds, {record.seconds / 60:.0f} minutes in all; "
        f"{SIZE} bytes of JSON a message; handlers that do nothing. In brackets: by the raw limit."
    )


def markdown(record: Record, contenders: Sequence[Contender], *, level: int = 2, further: bool = True) -> str:
    """Return the report; without the further figures, the part that docs/benchmarks.md shows."""
    figures = with_best(record.medians(), contenders)
    parts = {
        "Rates and latencies": compared(record.medians(), contenders, (*RATES, *LATENCIES)),
        "Costs": compared(record.medians(), contenders, COSTS),
        "Killed three times under load": kills(record.medians(), contenders),
        "Targets": targets(figures),
        "Pages of the admin": pages(figures),
        "Tests of a project": tests(figures),
        "Outbox": outbox(figures),
        "In transactions of Django on PostgreSQL": transactions(figures, contenders),
        "Growth and further figures": others(record.medians(), contenders),
        "Settings": settings(contenders),
        "Not measured": "\n".join(f"- {failure}" for failure in record.failures),
    }
    if not further:
        del parts["Pages of the admin"], parts["Growth and further figures"]
    sections = [f"{'#' * level} {heading}\n\n{text}" for heading, text in parts.items() if text]
    return "\n\n".join([where(record), *sections]) + "\n"
