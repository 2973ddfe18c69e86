"""What it costs to keep what became of messages: handling with HISTORY beside handling without, in turns."""

from dataclasses import replace
from statistics import median

from benchmarks import workloads
from benchmarks.contenders import Contender
from benchmarks.workloads import Figures

WITHOUT, WITH = "without HISTORY /s", "with HISTORY /s"
#: Measurements of each.
ROUNDS = 3


def costs(contender: Contender) -> Figures:
    """Handle no-op messages with and without a history."""
    keeping = replace(contender, variables={**contender.variables, "BENCH_HISTORY": "3600"})
    rates: dict[str, list[float]] = {WITHOUT: [], WITH: []}
    for _ in range(ROUNDS):
        rates[WITHOUT].append(workloads.handle(contender).rate)
        rates[WITH].append(workloads.handle(keeping).rate)
    return {name: median(found) for name, found in rates.items()}
