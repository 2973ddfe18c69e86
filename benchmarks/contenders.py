"""Who is measured, and how to see in Redis what of a queue's messages is still to be handled."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import redis

Remaining = Callable[[redis.Redis], int]

OURS = "ours"


def total(*commands: str) -> Remaining:
    """Return a function that adds up the replies of commands."""
    split = [command.split() for command in commands]

    def remaining(client: redis.Redis) -> int:
        pipeline = client.pipeline(transaction=False)
        for command in split:
            pipeline.execute_command(*command)  # type: ignore[no-untyped-call]
        return sum(int(reply) for reply in pipeline.execute())

    return remaining


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """Somebody who publishes and handles messages."""

    #: As in the table.
    name: str
    #: The module that speaks for it (see benchmarks.driver), or the file of a node program of the same verbs.
    module: str
    #: Messages published and not yet handled.
    remaining: Remaining
    #: What of its environment is measured with: `ours`, or the peer's own name.
    environment: str
    #: What its environment has, in the words of pip or npm.
    packages: tuple[str, ...] = ()
    #: The oldest Python that these run on, such as 3.12; any that this suite runs on if empty.
    oldest_python: str = ""
    #: The oldest Redis that has all the commands it sends, such as 8.6; any that this suite runs on if empty.
    oldest_redis: str = ""
    #: Messages for a second or three of work: published one by one, in bulk (0: it has no such call), handled.
    one_by_one: int
    bulk: int
    handled: int
    #: Sizes of the queue in the growth workload.
    sizes: tuple[int, ...] = (10_000, 100_000)
    #: Its environment variables: they choose its settings.
    variables: Mapping[str, str] = field(default_factory=dict)
    #: Its settings in words.
    settings: str = ""
    #: Whether these are its safest settings, and not its fastest.
    is_safest: bool = False
    #: Processes that handle eight messages at a time: 1 with threads or an event loop.
    processes_for_eight: int = 1
    #: Whether it publishes in the transactions of a Django project. It does nothing else.
    in_django: bool = False
    #: The names of the workloads it cannot do, or that would tell nothing new of it.
    skips: frozenset[str] = frozenset()

    @property
    def is_ours(self) -> bool:
        """Tell whether it is mq_django with handlers, for which everything is measured."""
        return self.module == "benchmarks.ours.contender" and not self.in_django

    @property
    def is_peer(self) -> bool:
        """Tell whether it is another queue."""
        return self.environment != OURS

    @property
    def is_python(self) -> bool:
        """Tell whether it is written in Python."""
        return not self.module.endswith(".js")


RAW = Contender(
    name="bare redis-py",
    module="benchmarks.raw",
    remaining=total("XLEN raw"),
    environment=OURS,
    one_by_one=10_000,
    bulk=150_000,
    handled=250_000,
    sizes=(10_000, 100_000, 1_000_000),
    variables={"BENCH_MODE": "json"},
    settings="an XADD a message, or pipelines of 1,000; reads of 100, acked with the next read; the standard json",
    skips=frozenset({"delays", "kill", "idle", "memory delayed", "threads"}),
)
BYTES = replace(
    RAW,
    name="bare redis-py, no JSON",
    variables={"BENCH_MODE": "bytes"},
    settings="as before, with the same bytes sent and never looked at",
    skips=RAW.skips | {"publish", "two processes", "at rest", "memory", "growth"},
)
HANDLERS = Contender(
    name="mq_django",
    module="benchmarks.ours.contender",
    remaining=total("XLEN mq:{bench0}:ready"),
    environment=OURS,
    one_by_one=10_000,
    bulk=150_000,
    handled=250_000,
    sizes=(10_000, 100_000, 1_000_000),
    settings="defaults, 8 threads; orjson and hiredis from the extra `fast`",
)
TASKS = Contender(
    name="mq_django @task",
    module="benchmarks.ours.task_contender",
    remaining=HANDLERS.remaining,
    environment=OURS,
    one_by_one=10_000,
    bulk=0,
    handled=40_000,
    settings="the same, with Django's task API",
    skips=frozenset({"at rest", "delays", "memory", "idle", "kill", "growth", "threads"}),
)
AT_COMMIT = replace(
    HANDLERS,
    name="mq_django at the commit",
    in_django=True,
    handled=20_000,
    settings="in a transaction, by on_commit; else as mq_django",
)
BY_OUTBOX = replace(
    AT_COMMIT,
    name="mq_django by the outbox",
    variables={"BENCH_OPTIONS": '{"OUTBOX": true}'},
    settings="in a transaction, with OUTBOX; else as mq_django",
)
