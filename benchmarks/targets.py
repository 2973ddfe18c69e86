"""What mq_django shall reach, as ratios to what was measured in the same run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from benchmarks import awaited_results, batches, handled_history, keyed_queues, outbox_rows, workflow_runs
from benchmarks.contenders import BYTES, HANDLERS, RAW, TASKS
from benchmarks.messages import SIZE
from benchmarks.pages import MOST, SLOWEST
from benchmarks.scaling import partitions
from benchmarks.testing import FIXTURE_P95, HOOK_P95, MESSAGE_P95

Figures = Mapping[str, Mapping[str, float]]
#: The figures of the best of the others, by name.
BEST = "best peer"
BEST_PYTHON = "best Python peer"


@dataclass(frozen=True, slots=True)
class Target:
    """A figure of ours, what it is compared with, and the bound of their ratio."""

    what: str
    who: str
    name: str
    bound: float
    is_: Literal["at least", "at most"]
    #: Whose same figure it is divided by; None: the figure itself counts.
    by: str | None = RAW.name
    #: Another name of the figure that it is divided by.
    by_name: str = ""
    #: What the figure is divided by, when that is a number.
    scale: float = 1.0
    #: A figure of ours that says why, and its unit.
    beside: tuple[str, str] = ("", "")

    def value(self, figures: Figures) -> float | None:
        """Return the figure or its ratio, or None when it was not measured."""
        ours = figures.get(self.who, {}).get(self.name)
        base = self.scale if self.by is None else figures.get(self.by, {}).get(self.by_name or self.name)
        return None if ours is None or not base else ours / base

    @property
    def told(self) -> str:
        """Return the bound as it stands in a table."""
        return "" if self.is_only_told else f"{'≥' if self.is_ == 'at least' else '≤'} {self.bound:g}"

    @property
    def is_only_told(self) -> bool:
        """Tell whether it has no bound: it is there to be seen beside the others."""
        return self.is_ == "at least" and not self.bound

    def met(self, value: float) -> bool:
        """Tell whether a value is within the bound."""
        return value >= self.bound if self.is_ == "at least" else value <= self.bound


def _ratio(what: str, who: str, name: str, bound: float, by: str = RAW.name, by_name: str = "") -> Target:
    return Target(what, who, name, bound, "at least", by, by_name)


OURS, TASK = HANDLERS.name, TASKS.name

TARGETS = (
    _ratio("handle, one process, by the raw limit", OURS, "handle /s", 0.60),
    _ratio("handle, one process, by the raw limit without JSON", OURS, "handle /s", 0.0, by=BYTES.name),
    _ratio("handle, one process, by the best Python peer", OURS, "handle /s", 10.0, by=BEST_PYTHON),
    _ratio("handle, one process, by npm rsmq", OURS, "handle /s", 2.0, by="npm rsmq"),
    _ratio("handle a task, one process, by the raw limit", TASK, "handle /s", 0.35),
    Target(
        "handle, two processes, by one, unless Redis's core is full",
        *(OURS, "2 processes /s", 1.6, "at least"),
        by=OURS,
        by_name="handle /s",
        beside=("2 processes: Redis's core %", "% of Redis's core"),
    ),
    _ratio("publish in bulk, by raw pipelined XADD", OURS, "bulk /s", 1.5),
    _ratio("publish one by one, by a bare XADD loop", OURS, "publish /s", 0.8),
    _ratio("enqueue a task, by a bare XADD loop", TASK, "publish /s", 0.6),
    Target("at rest, p50, by the raw limit's", OURS, "at rest p50 ms", 1.5, "at most"),
    Target("at rest, p99, by the raw limit's", OURS, "at rest p99 ms", 2.5, "at most"),
    Target("kill -9: messages lost", OURS, "kill missing", 0, "at most", by=None),
    Target("kill -9: s without a handled message, then the lost ones", OURS, "kill pause s", 3, "at most", by=None),
    Target("delays: handled early", OURS, "delay early", 0, "at most", by=None),
    Target("delays: p99 late, ms", OURS, "delay p99", 5, "at most", by=None),
    Target("delays among 1,000,000: p99 late, ms", OURS, "delay p99 of 1,000,000", 50, "at most", by=None),
    Target("1,000 due/s of 1,000,000: p99 late, ms", OURS, "1,000 due/s of 1,000,000 p99 ms", 50, "at most", by=None),
    Target("1,000 due/s among 1,000,000: lost", OURS, "1,000 due/s of 1,000,000 lost", 0, "at most", by=None),
    Target("burst of 100,000: longest script, ms", OURS, "burst of 100,000 longest script ms", 10, "at most", by=None),
    Target("burst of 100,000: lost", OURS, "burst of 100,000 lost", 0, "at most", by=None),
    Target("burst of 100,000: doubled", OURS, "burst of 100,000 doubled", 0, "at most", by=None),
    Target("growth by 1,000,000 waiting, MB", OURS, "consumer grown MB by 1,000,000 waiting", 5, "at most", by=None),
    Target("memory of a ready message, by its data", OURS, "bytes ready", 1.4, "at most", by=None, scale=SIZE),
    Target("memory of a delayed message, by its data", OURS, "bytes delayed", 2.5, "at most", by=None, scale=SIZE),
    Target("idle on 5 queues: commands/s", OURS, "idle commands/s", 5, "at most", by=None),
    Target("idle on 5 queues: % of a core", OURS, "idle cpu %", 1, "at most", by=None),
    Target("consumer at rest, MB", OURS, "rest MB", 60, "at most", by=None),
    Target("growth of a consumer over 1,000,000, MB", OURS, "grown MB", 10, "at most", by=None),
    Target("admin, 1,000,000 waiting: p95 of the slowest page, ms", OURS, SLOWEST, 300, "at most", by=None),
    Target("admin: commands of a page over 2 a queue", OURS, MOST, 20, "at most", by=None),
    Target("pytest plugin: p95 in a test that publishes nothing, ms", OURS, HOOK_P95, 0.1, "at most", by=None),
    Target("pytest fixture mq: p95 of an empty test, ms", OURS, FIXTURE_P95, 10, "at most", by=None),
    Target("pytest fixture mq: p95 of a test that handles a message, ms", OURS, MESSAGE_P95, 10, "at most", by=None),
    Target("50 ms handlers, 4 x 8 threads: % of ideal", OURS, "share of ideal %", 97, "at least", by=None),
    Target("50 ms handlers, 4 x 8 threads: share max/mean", OURS, "share max/mean", 1.05, "at most", by=None),
    Target("200/s with 1 % slow: p99 of fast, by alone", OURS, "200/s ratio", 2.0, "at most", by=None),
    Target("wait(): return by start of the task, p50", TASK, awaited_results.RATIO, 2, "at most", by=None),
    Target(
        "handle in batches of 500, one process, by the raw limit",
        *(OURS, batches.BATCHES, 0.9, "at least"),
        by=OURS,
        by_name=batches.BARE,
    ),
    Target(
        "history: handle with HISTORY by without",
        *(OURS, handled_history.WITH, 0.85, "at least"),
        by=OURS,
        by_name=handled_history.WITHOUT,
    ),
    Target(
        "ordered queue, 1,000 random keys: handle by a queue without keys",
        *(OURS, keyed_queues.ORDERED, 0.4, "at least"),
        by=OURS,
        by_name=keyed_queues.PLAIN,
    ),
    Target(
        "fair queue, 1,000 random keys: handle by a queue without keys",
        *(OURS, keyed_queues.FAIR, 0.0, "at least"),
        by=OURS,
        by_name=keyed_queues.PLAIN,
    ),
    Target("ordered queue, 50 ms handlers, 10,000 keys: % of ideal", OURS, keyed_queues.IDEAL, 95, "at least", by=None),
    Target("ordered queue: inversions", OURS, keyed_queues.INVERSIONS, 0, "at most", by=None),
    Target(
        "fair queue: wait of a quiet key, p99, by that without a crowd", OURS, keyed_queues.QUIET, 2, "at most", by=None
    ),
    Target("64 partitions on 3 nodes: load max/mean", OURS, partitions.LOAD, 1.15, "at most", by=None),
    Target("64 partitions: commands/s of an idle one, by trees", OURS, partitions.IDLE, 1.5, "at most", by=None),
    Target("64 partitions: connections to a node, by processes", OURS, partitions.CONNECTIONS, 4, "at most", by=None),
    *(
        Target(
            f"outbox, {outbox_rows.NAMES[kind]}: rows relayed /s",
            *(OURS, outbox_rows.name_of(kind, outbox_rows.RELAYED), bound, "at least"),
            by=None,
        )
        for kind, bound in (("postgresql", 5000), ("sqlite", 3000), ("mariadb", 0))
    ),
    *(
        Target(
            f"outbox, {name}: commit to handler at rest, p50, ms over 3 fsyncs",
            *(OURS, outbox_rows.name_of(kind, outbox_rows.OVER_DISK), 10, "at most"),
            by=None,
        )
        for kind, name in outbox_rows.NAMES.items()
    ),
    Target("workflow: a step of 10,000 by one of 1,000", TASK, workflow_runs.GROWTH, 1.5, "at most", by=None),
    Target(
        "workflow: a step of 1,000 after 1,000 by one of 1,000",
        TASK,
        workflow_runs.CROSSED_GROWTH,
        2,
        "at most",
        by=None,
    ),
    Target("workflow: slowest script, ms", TASK, workflow_runs.SLOWEST_SCRIPT, 5, "at most", by=None),
)
