"""The history of a run: what every actor did, and when, as lines that the checker reads.

Times `t` are seconds on the monotonic clock, which all processes of a machine share. The kinds:

published   ids, result (ok, failed, unknown), began, delay, expect (handled, dead), keys {id: [key, place]}
start       id, attempt, pid            a handler begins
effect      id, attempt, pid            what it does is done
settled     outcome, ids, pid           Redis has carried it out
refused     ids, pid                    Redis did not: the deliveries were no longer that consumer's
fault       fault, name, pids, allows, recovers, within
            pids: the processes it hits; allows: their deliveries under way may have their effect twice;
            recovers: from when (begin, end) these must go on within so many seconds, or none
healed      fault
clock       shift                       Redis's clock is from now on this many seconds off
left        place, ids                  what is in Redis at the end: ready, due, unhandled, dead
rest        pending, consumers, alive, strangers      what Redis holds besides, when nothing is under way
counters    published, handled, buried
reload      before, after               depths around a restart with a rewritten append-only file
drained     seconds, bound              from the last healing until nothing was under way
exited      pid, code                   a supervisor ended that nobody asked to
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.consumers.project.history import read

Line = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One running of a handler."""

    id: str
    attempt: int
    pid: int
    t: float


@dataclass
class Fault:
    """Something that was done to the system."""

    id: str
    name: str
    pids: frozenset[int]
    allows: bool
    begin: float
    end: float
    recovers: str
    within: float
    #: Deliveries that its processes had begun and not settled: they may have their effect twice.
    under_way: set[str] = field(default_factory=set)


class History:
    """The lines of a run, looked up in the ways the checker needs."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.lines = sorted(lines, key=lambda line: line["t"])
        self._by_kind: dict[str, list[Line]] = defaultdict(list)
        for line in self.lines:
            self._by_kind[line["kind"]].append(line)
        self.published = {id_: line for line in self.of("published") for id_ in line["ids"]}
        self.starts = self._runs("start")
        self.effects = self._runs("effect")
        #: id -> (moment, pid, outcome) of every settling.
        self.settled: dict[str, list[tuple[float, int, str]]] = defaultdict(list)
        for line in self.of("settled"):
            for id_ in line["ids"]:
                self.settled[id_].append((line["t"], line["pid"], line["outcome"]))
        self.faults = self._faults()

    @classmethod
    def of_file(cls, path: Path) -> "History":
        return cls(read(path))

    def of(self, kind: str) -> list[Line]:
        return self._by_kind.get(kind, [])

    def ids(self, *results: str) -> set[str]:
        """Return the ids whose publish came to one of these."""
        return {id_ for id_, line in self.published.items() if line["result"] in results}

    def left(self, *places: str) -> list[str]:
        """Return the ids in places, as often as they are there."""
        return [id_ for line in self.of("left") if line["place"] in places for id_ in line["ids"]]

    def server_clock(self, t: float) -> float:
        """Return what Redis's clock showed at a moment, up to a constant."""
        shifts = [line["shift"] for line in self.of("clock") if line["t"] <= t]
        return t + (shifts[-1] if shifts else 0.0)

    def _runs(self, kind: str) -> dict[str, list[Run]]:
        runs: dict[str, list[Run]] = defaultdict(list)
        for line in self.of(kind):
            runs[line["id"]].append(Run(line["id"], line["attempt"], line["pid"], line["t"]))
        return runs

    def _faults(self) -> list[Fault]:
        ends = {line["fault"]: line["t"] for line in self.of("healed")}
        faults = [
            Fault(
                id=line["fault"],
                name=line["name"],
                pids=frozenset(line["pids"]),
                allows=line["allows"],
                begin=line["t"],
                end=ends.get(line["fault"], line["t"]),
                recovers=line["recovers"],
                within=line["within"],
            )
            for line in self.of("fault")
        ]
        for run in itertools.chain(*self.starts.values()):
            over = min((t for t, pid, _ in self.settled[run.id] if pid == run.pid and t >= run.t), default=float("inf"))
            for fault in faults:
                if run.pid in fault.pids and run.t <= fault.end and over > fault.begin:
                    fault.under_way.add(run.id)
        return faults
