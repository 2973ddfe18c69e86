"""See that the speed holds: `make guard`.

Two kinds of figures, for one machine is noisy and the next is faster:

- The instructions of Python that a message takes, counted by its interpreter. They are the same in each run on each
  machine, so that the smallest change counts. Each version of Python has its own.
- Ratios to the raw limit, measured in turns with it. A ratio is measured again until its interval is on one side of its
  floor, or the time is over. Only what is surely too slow fails: a busy machine makes intervals wide.
"""

import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from benchmarks import pieces, workloads
from benchmarks.batches import BATCH
from benchmarks.contenders import HANDLERS, RAW, TASKS, Contender
from benchmarks.workloads import Workload

#: Seconds after which no new round begins.
SECONDS = float(os.environ.get("GUARD_SECONDS", "150"))
#: Rounds before anything is sure.
ROUNDS = 3
#: Two-sided 98 % of Student's t, by degrees of freedom.
STUDENT = (math.inf, 31.82, 6.97, 4.54, 3.75, 3.37, 3.14, 3.00, 2.90, 2.82, 2.76)

#: Instructions a message, by Python and kind, as they were when they were last written down.
INSTRUCTIONS: Mapping[str, Mapping[str, float]] = {
    "3.11": {"handler": 706, "task": 962},
}
#: How much more fails.
MORE = 0.05
#: Commands a second of a consumer at rest, however many queues it has.
AT_REST = 3.0

BATCHES = replace(HANDLERS, name="batches", variables={"BENCH_BATCH": str(BATCH)})


@dataclass
class Ratio:
    """A figure of ours by the same of the raw limit, a value a round."""

    what: str
    run: Workload
    who: Contender
    name: str
    floor: float
    values: list[float] = field(default_factory=list)

    def interval(self) -> tuple[float, float]:
        """Return the bounds that hold the true ratio but for one time in fifty."""
        if len(self.values) < ROUNDS:
            return 0.0, math.inf
        logs = [math.log(value) for value in self.values]
        times = STUDENT[min(len(logs), len(STUDENT)) - 1]
        half = times * statistics.stdev(logs) / math.sqrt(len(logs))
        middle = statistics.mean(logs)
        return math.exp(middle - half), math.exp(middle + half)

    @property
    def is_too_low(self) -> bool:
        """Tell whether it is surely below its floor."""
        return self.interval()[1] < self.floor

    @property
    def is_open(self) -> bool:
        """Tell whether its floor is within its interval."""
        low, high = self.interval()
        return low < self.floor <= high


def ratios() -> list[Ratio]:
    """Return what is measured. A floor is what holds today; what it shall become is in benchmarks.targets."""
    handle, publish, bulk = workloads.one_process, workloads.one_by_one, workloads.bulk
    return [
        Ratio("handle, one process", handle, HANDLERS, "handle /s", 0.50),
        Ratio("handle a task", handle, TASKS, "handle /s", 0.30),
        Ratio(f"handle in batches of {BATCH}", handle, BATCHES, "handle /s", 0.70),
        Ratio("publish in bulk", bulk, HANDLERS, "bulk /s", 1.05),
        Ratio("publish one by one", publish, HANDLERS, "publish /s", 0.70),
        Ratio("enqueue a task", publish, TASKS, "publish /s", 0.45),
    ]


def measure(rows: Sequence[Ratio], *, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
    """Measure round after round what is not sure yet, until everything is, or the time is over."""
    began = clock()
    while (left := [row for row in rows if row.is_open]) and clock() - began < seconds:
        for run in dict.fromkeys(row.run for row in left):
            of_run = [row for row in left if row.run is run]
            # Nobody always comes first.
            order = [RAW, *(row.who for row in of_run)]
            at = len(of_run[0].values) % len(order)
            figures = {who.name: run(who) for who in order[at:] + order[:at]}
            for row in of_run:
                row.values.append(figures[row.who.name][row.name] / figures[RAW.name][row.name])
            _say(f"{clock() - began:4.0f} s  " + ", ".join(f"{row.what} {row.values[-1]:.2f}" for row in of_run))


def too_slow(rows: Sequence[Ratio]) -> list[str]:
    """Print the interval of each ratio beside its floor, and return those that are surely too low."""
    for row in rows:
        low, high = row.interval()
        middle = statistics.median(row.values)
        verdict = "SLOW" if row.is_too_low else "ok  "
        _say(f"{verdict} {row.what}: {middle:.2f} ({low:.2f} to {high:.2f}) of the raw limit, floor {row.floor:.2f}")
    return [row.what for row in rows if row.is_too_low]


def too_many(counted: Mapping[str, float], noted: Mapping[str, float]) -> list[str]:
    """Print the instructions a message beside those noted, and return the kinds that take surely more."""
    found = []
    for kind, count in counted.items():
        most = noted[kind] * (1 + MORE)
        found += [kind] if count > most else []
        verdict = "SLOW" if count > most else "ok  "
        _say(f"{verdict} {kind}: {count:.0f} instructions of Python a message, {noted[kind]:.0f} noted")
    return found


def too_busy() -> list[str]:
    """Print how many commands a consumer of 50 queues sends at rest, and return what it is if these are too many."""
    sent = workloads.idle(HANDLERS, queues=50, seconds=20.0)["idle commands/s"]
    verdict = "MANY" if sent > AT_REST else "ok  "
    _say(f"{verdict} at rest on 50 queues: {sent:.1f} commands a second, at most {AT_REST:.0f}")
    return ["at rest"] if sent > AT_REST else []


def main() -> int:
    """Return 1 when something is surely slower than it was."""
    version = "{}.{}".format(*sys.version_info)
    counted = {kind: sum(pieces.instructions(kind).values()) for kind in pieces.KINDS}
    if version in INSTRUCTIONS:
        found = too_many(counted, INSTRUCTIONS[version])
    else:
        found = []
        _say(f"instructions of Python {version} are not noted: {counted}")
    rows = ratios()
    measure(rows)
    return 1 if found + too_slow(rows) + too_busy() else 0


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
