"""What the pieces of handling a message take in Python, in one thread and without Redis.

python -m benchmarks.pieces

Microseconds depend on the machine. Instructions of the interpreter depend on the version of Python alone.
"""

import itertools
import os
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import copy_context
from importlib import import_module
from types import FrameType
from typing import Any

import django

# Nobody listens there: nothing is sent.
os.environ.setdefault("BENCH_REDIS_URL", "redis://127.0.0.1:1")
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.ours.settings")
django.setup()

from benchmarks import messages  # noqa: E402 - after the project is set up, as all below
from mq_django.conf import get_config  # noqa: E402
from mq_django.consumers.shared_state import SharedState  # noqa: E402
from mq_django.consumers.worker.batches import Batches  # noqa: E402
from mq_django.consumers.worker.call_path import WorkItem  # noqa: E402
from mq_django.consumers.worker.databases import Databases  # noqa: E402
from mq_django.consumers.worker.dispatcher import Dispatcher  # noqa: E402
from mq_django.consumers.worker.executor import Executor  # noqa: E402
from mq_django.consumers.worker.loops import LoopPool  # noqa: E402
from mq_django.consumers.worker.pools import ThreadPool  # noqa: E402
from mq_django.consumers.worker.settler import Settler  # noqa: E402
from mq_django.stores.stream_store import StreamStore  # noqa: E402
from mq_django.transport.scripts import Command  # noqa: E402

#: Messages of a batch, and batches.
BATCH, ROUNDS = 200, 300
THREADS = 8
#: The pieces.
NAMES = ("messages from the reply", "handing over", "running", "settling")

KINDS: Mapping[str, tuple[bytes, Callable[[dict[str, Any]], Any]]] = {
    "handler": (b"noop", lambda data: data),
    "task": (b"benchmarks.ours.tasks.noop", lambda data: {"args": [data], "kwargs": {}}),
}


class Nowhere:
    """Packs what it is given, brings a batch when it is asked for one, and says that all was settled."""

    def __init__(self) -> None:
        self._hiredis: Any = import_module("hiredis")
        #: What a fetch brings, as it comes from Redis.
        self.batch = b""

    def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """See Transport.pipeline()."""
        b"".join(map(self._hiredis.pack_command, commands))
        batch, self.batch = self.batch, b""
        if not batch:
            return [[] for _ in commands]
        reader = self._hiredis.Reader()
        reader.feed(batch)
        return [[[b"ready", reader.gets()]]]


def bulk(*parts: bytes) -> bytes:
    """Return an array of texts, as Redis sends it."""
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


def reply(kind: str, batch: int) -> bytes:
    """Return what Redis answers to a read that brings a batch."""
    name, wrapped = KINDS[kind]
    entries = []
    for number in range(BATCH):
        data = messages.encode(wrapped(messages.make(number)))
        entry = b"%d-%d" % (1763000000000 + batch, number)
        fields = bulk(b"id", b"4lcy0iz5xo04c%x" % number, b"type", name, b"data", data)
        entries.append(b"*2\r\n$%d\r\n%b\r\n%b" % (len(entry), entry, fields))
    return b"*%d\r\n%b" % (BATCH, b"".join(entries))


class Pieces:
    """A consumer without threads, whose parts are called one after another."""

    def __init__(self) -> None:
        config, shared_state = get_config().queue(messages.queue_name(0)), SharedState.create(THREADS)
        self._transport = Nowhere()
        self._store = StreamStore(config, self._transport)
        self._settler = Settler(self._store, config.name, "measured", threading.Event(), threading.Event())
        self._threads = ThreadPool(THREADS, shared_state)
        self._slot = self._threads.slots[0]
        self._slot.databases = Databases.of_this_thread()
        self._jobs: list[WorkItem] = []
        self._threads.put = self._jobs.append
        loop = LoopPool(THREADS, shared_state)
        self._dispatcher = Dispatcher(
            config.name,
            settler=self._settler,
            executor=Executor(config, 0, shared_state, self._settler),
            threads=self._threads,
            loop=loop,
            batches=Batches(shared_state, self._threads, loop, THREADS),
        )

    def moments(self, batch: bytes) -> Iterator[float]:
        """Yield the moments between the pieces of handling a batch."""
        self._transport.batch = batch
        yield time.perf_counter()
        deliveries = self._store.fetch("measured", count=BATCH, block_ms=1)
        yield time.perf_counter()
        self._dispatcher.dispatch(deliveries)
        yield time.perf_counter()
        for job in self._jobs:
            copy_context().run(job.path.run_in_thread, self._slot, job)
        yield time.perf_counter()
        self._settler.settle(self._store)
        yield time.perf_counter()
        self._jobs.clear()


def instructions(kind: str, batches: int = 5) -> dict[str, float]:
    """Return how many instructions of Python a message takes, by piece, when caches have been filled."""
    pieces, counted = Pieces(), Counter[str]()

    def counter(name: str) -> Callable[..., Any]:
        def count(frame: FrameType, event: str, _: object) -> Any:
            if event == "call":
                frame.f_trace_opcodes, frame.f_trace_lines = True, False
            elif event == "opcode":
                counted[name] += 1
            return count

        return count

    for batch in range(batches):
        moments = pieces.moments(reply(kind, batch))
        next(moments)
        for name in NAMES:
            if batch == batches - 1:
                sys.settrace(counter(name))
            try:
                next(moments)
            finally:
                sys.settrace(None)
        next(moments, None)
    return {name: number / BATCH for name, number in counted.items()}


def main() -> None:
    """Print instructions and microseconds a message, by piece."""
    for kind in KINDS:
        pieces, found = Pieces(), []
        for batch in range(ROUNDS):
            moments = list(pieces.moments(reply(kind, batch)))
            found.append([(after - before) / BATCH * 1e6 for before, after in itertools.pairwise(moments)])
        # What four of five are not faster than: the rest is other programs.
        micros = [statistics.quantiles(values, n=5)[0] for values in zip(*found, strict=True)]
        told = ", ".join(f"{name} {value:.2f}" for name, value in zip(NAMES, micros, strict=True))
        print(f"{kind}: {told}, together {sum(micros):.2f} us a message")
        counts = instructions(kind)
        told = ", ".join(f"{name} {count:.0f}" for name, count in counts.items())
        print(f"{kind}: {told}, together {sum(counts.values()):.0f} instructions a message")


if __name__ == "__main__":
    main()
