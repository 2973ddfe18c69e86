"""The running consumers of a supervisor, for all of its threads."""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mq_django.conf import QueueConfig
from mq_django.consumers.by_server import ServerQueues
from mq_django.consumers.shared_state import Running, SharedState
from mq_django.consumers.supervisor.heartbeat import Announcement
from mq_django.consumers.supervisor.workers import WorkerProcess
from mq_django.core.partitions import preferred
from mq_django.stores.members import MAX_RUNNING, Membership

# The running messages, the busy slots and the counts of a consumer, as its supervisor announces them.


def worker_activity(shared_state: SharedState, queues: range) -> list[Mapping[str, Any]]:
    """Return for each queue the running messages of a consumer, longest first, its counts, and its handling time."""
    now = time.monotonic()
    running: dict[int, list[Any]] = {}
    counts: Counter[int] = Counter()
    for item in sorted(shared_state.running(), key=lambda item: item.since):
        counts[item.receipt.queue] += 1
        entries = running.setdefault(item.receipt.queue, [])
        if len(entries) < MAX_RUNNING:
            stream, entry = item.receipt.stream, item.receipt.entry.decode(errors="replace")
            entries.append([stream, entry, max(0, round((now - item.since) * 1000))])
    found: list[Mapping[str, Any]] = []
    for number in queues:
        handled, failed, micros = shared_state.counted(number)
        entries = running.get(number, [])
        # Without it, a shorter list has all of them.
        more = {"runs": counts[number]} if counts[number] >= MAX_RUNNING else {}
        found.append({"running": entries, **more, "handled": handled, "failed": failed, "took_ms": micros // 1000})
    return found


def slots_in_use(shared_state: SharedState, threads: int, queues: Sequence[str]) -> Mapping[str, Any]:
    """Return how many threads and coroutines of a consumer run a handler, and what holds all of one kind.

    While all are busy, no queue of the consumer makes progress, so each queue gets this.
    """
    now, running = time.monotonic(), shared_state.running()
    slots = {
        "threads": (threads, [item for item in running if item.slot < threads]),
        "coroutines": (shared_state.slots - threads, [item for item in running if item.slot >= threads]),
    }
    full = {}
    for kind, (count, busy) in slots.items():
        if len(busy) >= count:
            busy.sort(key=lambda item: item.since)
            receipt = busy[0].receipt
            ages = [max(0, round((now - item.since) * 1000)) for item in (busy[0], busy[-1])]
            full[kind] = [queues[receipt.queue], receipt.stream, receipt.entry.decode(errors="replace"), *ages]
    return {"busy": [len(busy) for _, busy in slots.values()], **({"full": full} if full else {})}


class WorkerStates:
    """The consumers of a supervisor that have not ended. One thread adds and removes them; any thread may use them."""

    def __init__(self, queues: range, describe: Callable[[WorkerProcess], Mapping[str, Any]]) -> None:
        self._queues = queues
        self._describe = describe
        self._workers: list[WorkerProcess] = []
        #: Held while consumers are added or removed, and while their shared states are used.
        self._lock = threading.Lock()
        #: Queue -> whether it is paused, for consumers that are added later.
        self._paused: dict[int, bool] = {}
        #: Consumer or supervisor -> the latest request, until take_asked().
        self._asked: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._workers)

    def __iter__(self) -> Iterator[WorkerProcess]:
        return iter(self._workers.copy())

    def add(self, worker: WorkerProcess) -> None:
        """Add a consumer that has just been started."""
        with self._lock:
            for number, paused in self._paused.items():
                worker.shared_state.set_paused(number, paused)
            self._workers.append(worker)

    def remove(self, worker: WorkerProcess) -> None:
        """Remove a consumer that has ended, and close its shared state and pipe."""
        with self._lock:
            self._workers.remove(worker)
            worker.close()

    def evict(self) -> None:
        """Stop announcing these consumers: another supervisor took them for dead."""
        with self._lock:
            for worker in self._workers:
                worker.evicted = True

    def suspend(self, worker: WorkerProcess, now: float) -> None:
        """Prevent a consumer from starting the messages that it holds. If it continues, it hands them back itself."""
        with self._lock:
            worker.suspended = now
            for number in self._queues:
                worker.shared_state.hold_until(number, 0.0)

    def pause(self, number: int, paused: bool) -> None:
        """Set whether a queue is paused, for all consumers and those that are added later."""
        with self._lock:
            self._paused[number] = paused
            for worker in self._workers:
                worker.shared_state.set_paused(number, paused)

    def prefer(self, number: int, consumer: str) -> None:
        """Set which consumer prefers a partition; it need not be one of these."""
        with self._lock:
            for worker in self._workers:
                worker.shared_state.set_preferred(number, worker.consumer == consumer)

    def set_unhandled(self, number: int, there_are: bool) -> None:
        """Set whether a queue has unhandled messages, for all consumers."""
        with self._lock:
            for worker in self._workers:
                worker.shared_state.set_unhandled(number, there_are)

    def note_requests(self, number: int) -> None:
        """Have all consumers read the requests in a queue: to cancel messages, and for stacks."""
        with self._lock:
            for worker in self._workers:
                worker.shared_state.note_requests(number)

    def ask(self, asks: Mapping[str, str]) -> None:
        """Add the requests of operators to consumers, or to the supervisor with all of them."""
        with self._lock:
            self._asked |= asks

    def take_asked(self) -> Mapping[str, str]:
        """Return the requests since the last call."""
        with self._lock:
            asked, self._asked = self._asked, {}
        return asked

    def activity(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Return for each consumer its running messages and its counts, one value per queue."""
        with self._lock:
            shown = [worker for worker in self._workers if not worker.evicted]
            return {worker.consumer: worker_activity(worker.shared_state, self._queues) for worker in shown}

    def announced(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the descriptions of the consumers and of their backlogs, for the heartbeat."""
        with self._lock:
            shown = [worker for worker in self._workers if not worker.evicted]
            described = {worker.consumer: self._describe(worker) for worker in shown}
        backlogs = {worker.backlog: described[worker.consumer] for worker in shown if worker.backlog}
        changes = {"quarantine": False, "threads": 0}
        return described | {backlog: {**owner, **changes} for backlog, owner in backlogs.items()}

    def running(self) -> Mapping[str, Sequence[Running]]:
        """Return the deliveries that each consumer runs."""
        with self._lock:
            return {worker.consumer: worker.shared_state.running() for worker in self._workers}

    def held(self, number: int, announcement: Announcement, moment: float, since: Callable[[str], float]) -> None:
        """Set for the announced consumers until when they hold what they have read of a queue since a time.

        `since` returns that time for a consumer; infinity: it holds nothing yet.
        """
        with self._lock:
            for worker in self._workers:
                if worker.consumer not in announcement.consumers or worker.evicted or worker.suspended is not None:
                    continue
                if (began := since(worker.consumer)) < math.inf:
                    worker.shared_state.hold_until(number, moment, since=began)
                    worker.announced.add(number)


# Which partitions the consumers of this supervisor prefer: those that they look at first, and more often.
#
# Every supervisor computes it from the members of each partition, for the same consumers with the same result.
# Nothing depends on it but the order in which partitions are looked at: a consumer with a free slot takes from any of
# them.


class Preferences:
    """Tells consumers which partitions they prefer.

    Args:
        queues: the queues on one server, of which some are partitions.
        states: the consumers of this supervisor.
    """

    def __init__(self, queues: ServerQueues, states: WorkerStates) -> None:
        self._parts: Mapping[int, QueueConfig] = {
            number: config for number, config in queues.items() if config.is_partition
        }
        self._states = states
        #: Consumers that fetch, and the number of partitions -> the consumer that prefers each partition.
        self._known: tuple[tuple[tuple[str, ...], int], Mapping[int, str]] = (((), 0), {})

    def seen(self, number: int, membership: Membership) -> None:
        """Set whether the consumers of this supervisor prefer a queue, if it is a partition, by its members."""
        config = self._parts.get(number)
        if config is None:
            return
        fetching = tuple(
            sorted(
                name
                for name, announced in membership.consumers.items()
                if announced.get("state") not in ("quiet", "stopping")
                and not announced.get("quarantine")
                and announced.get("threads")
            )
        )
        key = (fetching, config.partitions)
        if self._known[0] != key:
            choice = preferred(config.partitions, fetching)
            self._known = key, {part: name for name, parts in choice.items() for part in parts}
        self._states.prefer(number, self._known[1].get(config.number, ""))
