"""Run the workloads, contender after contender in turns, so that a noisy machine is fair to all."""

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import redis

from benchmarks import (
    awaited_results,
    batches,
    growth,
    handled_history,
    keyed_queues,
    outbox_rows,
    pages,
    testing,
    transactions,
    waiting,
    workflow_runs,
    workloads,
)
from benchmarks.contenders import Contender
from benchmarks.record import Record, machine
from benchmarks.scaling import connections, node_costs, node_memory, partitions
from benchmarks.trial import Failed, redis_version
from benchmarks.workloads import Figures, Workload

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Step:
    """A workload with how often it is run; its median counts."""

    name: str
    run: Workload
    rounds: int = 1
    #: Rounds of peers, where each takes long.
    rounds_of_peers: int = 0
    #: Of interest for mq_django alone.
    ours_only: bool = False
    #: For those who publish in the transactions of a Django project, and for nobody else.
    in_django: bool = False
    #: Too long for all peers, unless everything is asked for.
    is_long: bool = False
    #: Run with the safest settings of peers, too, in the first round.
    safest: bool = False
    #: Only for those who can publish many messages with one call.
    needs_bulk: bool = False
    #: Mostly waiting: all peers at the same time.
    together: bool = False

    def rounds_for(self, contender: Contender) -> int:
        """Return how often it is run for a contender."""
        if contender.is_safest:
            return 1
        return self.rounds_of_peers or self.rounds if contender.is_peer else self.rounds

    def takes(self, contender: Contender, *, everything: bool = False) -> bool:
        """Tell whether it is run for a contender."""
        if self.in_django or contender.in_django:
            return self.in_django and contender.in_django
        if self.name in contender.skips or (contender.is_safest and not self.safest):
            return False
        if self.needs_bulk and not contender.bulk:
            return False
        if contender.is_peer and self.is_long:
            return everything
        return contender.is_ours or not self.ours_only


STEPS = (
    Step("publish", workloads.one_by_one, 3, rounds_of_peers=2),
    Step("bulk", workloads.bulk, 3, rounds_of_peers=2, needs_bulk=True),
    Step("handle", workloads.one_process, 3, rounds_of_peers=2, safest=True),
    Step("two processes", workloads.two_processes, 3, rounds_of_peers=1),
    Step("at rest", workloads.at_rest, 3, rounds_of_peers=1),
    Step("delays", workloads.delays, 2, rounds_of_peers=1),
    Step("memory", workloads.memory),
    Step("idle", workloads.idle, together=True),
    Step("batches", batches.costs, ours_only=True),
    Step("history", handled_history.costs, ours_only=True),
    Step("keys", keyed_queues.costs, ours_only=True),
    Step("node", node_costs.costs, ours_only=True),
    Step("memory of a node", node_memory.bytes_by_place, ours_only=True),
    Step("connections", connections.of_trees, ours_only=True),
    Step("partitions", partitions.costs, ours_only=True),
    Step("wait", awaited_results.latency, 3, ours_only=True),
    Step("outbox", outbox_rows.costs, ours_only=True),
    Step("transactions", transactions.costs, 3, in_django=True),
    Step("workflows", workflow_runs.costs, ours_only=True),
    Step("share", workloads.share, ours_only=True),
    Step("slow", workloads.slow, 2, ours_only=True),
    Step("delays among 100k", growth.delays_among(100_000), ours_only=True),
    Step("delays among 1M", growth.delays_among(1_000_000), ours_only=True),
    Step("1000 due a second", waiting.steady, ours_only=True),
    Step("burst", waiting.burst, 2, ours_only=True),
    Step("waiting", waiting.beside_a_crowd, ours_only=True),
    Step("growth", growth.messages, is_long=True),
    Step("threads", growth.threads, is_long=True),
    Step("queues", growth.queues, ours_only=True),
    Step("memory over 1M", growth.consumer_memory, ours_only=True),
    Step("admin", pages.every_page, ours_only=True),
    Step("testing", testing.costs, 3, ours_only=True),
    Step("kill", workloads.kill, safest=True, together=True),
)


def turns(step: Step, able: Sequence[Contender]) -> Iterator[list[Contender]]:
    """Yield the contenders whose turn it is, mostly one; several may go at the same time.

    Round after round, and nobody always comes first, when the machine is still quiet from the step before.
    """
    # Those of many processes take the longest, and begin.
    crowd = sorted((one for one in able if step.together and one.is_peer), key=lambda one: -one.processes_for_eight)
    for turn in range(max((step.rounds_for(one) for one in able), default=0)):
        alone = [one for one in able if one not in crowd and turn < step.rounds_for(one)]
        first = turn % max(1, len(alone))
        yield from ([one] for one in alone[first:] + alone[:first])
        if crowd and turn < step.rounds_for(crowd[0]):
            yield crowd


class Run:
    """One run of the suite, and how far it is."""

    def __init__(self, contenders: Sequence[Contender], steps: Sequence[Step], say: Say, *, everything: bool) -> None:
        self._contenders = contenders
        self._values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self._failures: list[str] = []
        self._say = say
        self._began = time.monotonic()
        self._plan = [
            (step, together)
            for step in steps
            for together in turns(step, [one for one in contenders if step.takes(one, everything=everything)])
        ]
        self._left = sum(len(together) for _, together in self._plan)

    def __call__(self) -> Record:
        """Run everything that is planned."""
        where = machine(redis_version())
        for step, together in self._plan:
            if len(together) == 1:
                self._run_one(step, together[0])
            else:
                with ThreadPoolExecutor(len(together)) as threads:
                    list(threads.map(self._run_one, [step] * len(together), together))
        return Record(
            machine=where,
            seconds=time.monotonic() - self._began,
            contenders=[one.name for one in self._contenders],
            values={who: dict(found) for who, found in self._values.items()},
            failures=self._failures,
        )

    def _run_one(self, step: Step, contender: Contender) -> None:
        began = time.monotonic()
        try:
            figures = step.run(contender)
        except (Failed, OSError, ValueError, redis.RedisError) as error:
            self._failures.append(f"{contender.name}, {step.name}: {error}")
            self._tell(contender, f"{step.name}: {error}", began)
        else:
            self._keep(contender, figures)
            told = ", ".join(f"{name} {value:,.4g}" for name, value in figures.items())
            self._tell(contender, told, began)

    def _keep(self, contender: Contender, figures: Figures) -> None:
        for name, value in figures.items():
            self._values[contender.name][name].append(value)

    def _tell(self, contender: Contender, told: str, began: float) -> None:
        now = time.monotonic()
        self._left -= 1
        minutes, seconds = divmod(int(now - self._began), 60)
        self._say(
            f"{minutes:>3}:{seconds:02} {self._left:>4} left  {contender.name:>21}  {told}  ({now - began:.0f} s)"
        )


def say(text: str) -> None:
    """Show how far a run is."""
    print(text, file=sys.stderr, flush=True)


def run(contenders: Sequence[Contender], steps: Sequence[Step], *, say: Say = say, everything: bool = False) -> Record:
    """Run every step for every contender that it is for."""
    return Run(contenders, steps, say, everything=everything)()
