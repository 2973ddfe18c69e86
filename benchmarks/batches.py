"""How many messages a handler of batches handles, beside bare redis-py and a handler of single messages, in turns."""

from dataclasses import replace
from statistics import median

from benchmarks import workloads
from benchmarks.contenders import RAW, Contender
from benchmarks.workloads import Figures

#: The most messages of a call.
BATCH = 500
BARE, SINGLE, BATCHES = "bare redis-py beside batches /s", "single messages beside batches /s", f"batches of {BATCH} /s"
#: Measurements of each.
ROUNDS = 3


def costs(contender: Contender) -> Figures:
    """Handle no-op messages with bare redis-py, one by one, and in batches."""
    batches = replace(contender, variables={**contender.variables, "BENCH_BATCH": str(BATCH)})
    rates: dict[str, list[float]] = {BARE: [], SINGLE: [], BATCHES: []}
    for _ in range(ROUNDS):
        rates[BARE].append(workloads.handle(RAW).rate)
        rates[SINGLE].append(workloads.handle(contender).rate)
        rates[BATCHES].append(workloads.handle(batches).rate)
    return {name: median(found) for name, found in rates.items()}
