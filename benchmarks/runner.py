"""Run the workloads, contender after contender in turns, so that a noisy machine is fair to all."""

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks import growth, waiting, workloads
from benchmarks.contenders import Contender
from benchmarks.trial import Failed, median
from benchmarks.workloads import Workload


@dataclass(frozen=True, slots=True)
class Step:
    """A workload with how often it is run; its median counts."""

    #: Without commas: on the command line they separate names.
    name: str
    run: Workload
    rounds: int = 1
    #: Too long for the short form, or of interest for mq_django alone.
    ours_only: bool = False


STEPS = (
    Step("publish", workloads.one_by_one, 3),
    Step("bulk", workloads.bulk, 3),
    Step("handle", workloads.one_process, 3),
    Step("two processes", workloads.two_processes, 3),
    Step("at rest", workloads.at_rest, 3),
    Step("delays", workloads.delays, 2),
    Step("memory", workloads.memory),
    Step("idle", workloads.idle),
    Step("share", workloads.share, ours_only=True),
    Step("slow", workloads.slow, 2, ours_only=True),
    Step("delays among 100k", growth.delays_among(100_000), ours_only=True),
    Step("delays among 1M", growth.delays_among(1_000_000), ours_only=True),
    Step("1000 due a second", waiting.steady, ours_only=True),
    Step("burst", waiting.burst, 3, ours_only=True),
    Step("waiting", waiting.beside_a_crowd, ours_only=True),
    Step("growth", growth.messages),
    Step("threads", growth.threads, ours_only=True),
    Step("queues", growth.queues, ours_only=True),
    Step("memory over 1M", growth.consumer_memory, ours_only=True),
    Step("kill", workloads.kill),
)


@dataclass
class Results:
    """Figures by contender and name, a value a round, and what went wrong."""

    values: dict[str, dict[str, list[float]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    failures: list[str] = field(default_factory=list)

    def medians(self) -> Mapping[str, Mapping[str, float]]:
        """Return the median of every figure, by contender."""
        return {who: {name: median(values) for name, values in found.items()} for who, found in self.values.items()}


def run(
    contenders: Sequence[Contender],
    steps: Sequence[Step],
    *,
    say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True),
) -> Results:
    """Run every step for every contender."""
    results = Results()
    for step in steps:
        able = [one for one in contenders if step.name not in one.skips and (one.is_ours or not step.ours_only)]
        for turn in range(step.rounds):
            # Nobody always comes first, when the machine is still quiet from the step before.
            for contender in able[turn % len(able) :] + able[: turn % len(able)]:
                _run_one(results, step, contender, say)
    return results


def _run_one(results: Results, step: Step, contender: Contender, say: Callable[[str], None]) -> None:
    began = time.monotonic()
    try:
        figures = step.run(contender)
    except (Failed, OSError, ValueError) as error:
        results.failures.append(f"{contender.name}, {step.name}: {error}")
        say(f"{contender.name:>20}  {step.name}: {error}")
        return
    for name, value in figures.items():
        results.values[contender.name][name].append(value)
    told = ", ".join(f"{name} {value:,.4g}" for name, value in figures.items())
    say(f"{contender.name:>20}  {told}  ({time.monotonic() - began:.0f} s)")
