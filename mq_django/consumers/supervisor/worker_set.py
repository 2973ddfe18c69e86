"""Start, watch and replace the consumer processes of a supervisor; all of its threads may ask which there are."""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from mq_django.conf import QueueConfig
from mq_django.consumers.decisions import Evidence
from mq_django.consumers.processes import is_reloaded
from mq_django.consumers.service import ServerQueues
from mq_django.consumers.shared_state import Receipt, Running, SharedState
from mq_django.consumers.supervisor.heartbeat import Announcement
from mq_django.consumers.supervisor.launcher import Launcher
from mq_django.consumers.supervisor.reclaimer import evidence_of
from mq_django.consumers.supervisor.workers import Decision, Quarantines, Restarts, WorkerOptions, WorkerProcess, spawn
from mq_django.core.ids import token
from mq_django.core.logs import get_logger
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


logger = get_logger(__name__)

#: Seconds between two hand-backs for a process that does not respond: its blocked reads may still be assigned messages.
SUSPEND_AGAIN = 1.0
#: Seconds until the next attempt when the system has refused to start a process.
REFUSED_PAUSE = 0.5


class WorkerSet:
    """Keeps a number of consumer processes running. For one thread; other threads use the WorkerStates."""

    def __init__(
        self,
        supervisor: str,
        options: WorkerOptions,
        states: WorkerStates,
        launcher: Launcher,
        *,
        processes: int,
        on_exit: Callable[[str, Evidence], None],
        on_unresponsive: Callable[[str, Collection[Receipt]], None],
        on_late: Callable[[str, Collection[Receipt]], None],
    ) -> None:
        self._supervisor = supervisor
        self._options = options
        self._states = states
        self._launcher = launcher
        self._processes = processes
        self._has_consumers = processes > 0
        #: Called with a consumer that has ended, and the evidence in its shared state.
        self._on_exit = on_exit
        #: Called with a consumer that does not respond, and the deliveries that it has started.
        self._on_unresponsive = on_unresponsive
        #: Called with a consumer that is killed or replaced, and its deliveries past their timeout, to log these.
        self._on_late = on_late
        self._stopping = False
        self._restarts = Restarts()
        self._quarantines = Quarantines(processes, on_exit)
        self._to_renew: list[WorkerProcess] = []
        self._renewing: tuple[WorkerProcess, WorkerProcess] | None = None
        #: No more processes are started.
        self._quiet = False

    @property
    def is_drained(self) -> bool:
        """Return whether all consumers have ended for good: drained, or stopped by an operator."""
        return self._has_consumers and not self._processes

    @property
    def is_renewing(self) -> bool:
        """Return whether consumers are being replaced after renew()."""
        return bool(self._to_renew or self._renewing)

    def readiness(self) -> tuple[int, int]:
        """Return how many consumers are ready to fetch messages, and how many are to run."""
        ready = (self._is_ready(worker) and not worker.leaving and not worker.quiet for worker in self._active())
        return sum(ready), self._processes

    def check(self, now: float) -> bool:
        """Check every process once; return whether the next heartbeat should be sent at once."""
        self._remove_ended(now)
        has_news = self._handle_requests()
        for worker in self._states:
            self._watch(worker, now)
            has_news |= self._suspend(worker, now) | _became_quiet(worker)
        before = len(self._states)
        if not self._stopping:
            self._launcher.check(now)
        if not self._launcher.is_loading:
            self._renew(now)
            self._start_missing(now)
        self._manage_quarantines(now)
        return has_news or len(self._states) > before

    def stop(self) -> None:
        """Ask all processes to finish; the second time, to hand back their running messages at once."""
        self._stopping = True
        self._to_renew, self._renewing = [], None
        for worker in self._states:
            worker.terminate()

    def renew(self) -> None:
        """Replace the consumers one after another, so that they load the current code."""
        self._to_renew = [worker for worker in self._states if not worker.leaving]

    def begin_anew(self, supervisor: str) -> None:
        """Replace all consumers at once, under a new supervisor id.

        Another supervisor took them for dead, and other consumers may have their messages.
        """
        self._supervisor = supervisor
        self._quarantines.end_backlog()
        self._states.evict()
        for worker in self._states:
            if not worker.leaving:
                worker.terminate()

    def _start(self, now: float, *, quarantine: bool = False) -> WorkerProcess | None:
        """Start a process, and return it; None if the system refuses. Then it is started later."""
        restarts = self._quarantines.restarts if quarantine else self._restarts
        failed_starts = restarts.take(now)
        name = f"{self._supervisor}-{token()[:6]}"
        backlog = self._quarantines.backlog(name) if quarantine else ""
        try:
            worker = spawn(
                name, self._supervisor, self._options, self._launcher, backlog=backlog, failed_starts=failed_starts
            )
        except OSError as error:
            pause = restarts.ended(now, failed_starts + 1, at_least=REFUSED_PAUSE)
            logger.error("Cannot start a consumer process: %s. Next attempt in %g s", error, pause)  # noqa: TRY400
            return None
        self._states.add(worker)
        return worker

    def _active(self) -> list[WorkerProcess]:
        """Return the consumers that count towards the number to run. A dismissed one counts until it has ended."""
        return [worker for worker in self._states if not worker.quarantine and (worker.dismissed or not worker.leaving)]

    def _is_ready(self, worker: WorkerProcess) -> bool:
        """Return whether a process can take messages: it has started, and was announced in at least one queue."""
        return bool(worker.shared_state.ticks() and worker.announced)

    def _is_renewed(self, worker: WorkerProcess) -> bool:
        """Return whether a process is stopping, or its replacement is planned or has started."""
        is_being_replaced = self._renewing is not None and self._renewing[0] is worker
        return worker.leaving or worker in self._to_renew or is_being_replaced

    def _active_quarantines(self) -> list[WorkerProcess]:
        return [worker for worker in self._states if worker.quarantine and not worker.leaving]

    def _handle_requests(self) -> bool:
        """Pass on the requests of operators, and return whether there were any.

        A consumer that was asked to stop is not replaced. A quiet one runs until it is asked to stop.
        """
        asked = self._states.take_asked()
        of_all = asked.get(self._supervisor)
        self._quiet |= of_all == "quiet"
        for worker in self._states:
            request = asked.get(worker.consumer, "quiet" if of_all == "quiet" else "")
            if worker.leaving or not request:
                continue
            logger.info("Consumer %s was asked to %s", worker.consumer, "go quiet" if request == "quiet" else "stop")
            if request == "quiet" and not worker.quarantine:
                worker.shared_state.quiet()
            else:
                # Not quiet: consumers would still pass messages on to a quarantine that runs none.
                worker.dismissed = not worker.quarantine
                worker.terminate()
        return bool(asked)

    def _start_missing(self, now: float) -> None:
        if self._quiet:
            return
        while not self._stopping and len(self._active()) + self._restarts.waiting(now) < self._processes:
            self._start(now)

    def _manage_quarantines(self, now: float) -> None:
        """Start quarantines while messages must run alone, and announce their backlog to all consumers."""
        asked = [worker for worker in self._states if worker.shared_state.wants_quarantine()]
        for _ in range(self._quarantines.missing(self._active_quarantines(), asked, now)):
            if not self._stopping and not self._quiet:
                self._start(now, quarantine=True)
        quarantines = self._active_quarantines()
        if not quarantines:
            self._quarantines.end_backlog()
        ready = any(self._is_ready(quarantine) for quarantine in quarantines)
        for worker in self._states:
            worker.shared_state.set_quarantine(self._quarantines.leader if ready else "")

    def _renew(self, now: float) -> None:
        if self._renewing is not None:
            old, new = self._renewing
            if new not in self._states:
                logger.error("The new consumer failed to start; keeping the old ones")
                self._to_renew, self._renewing = [], None
            elif old not in self._states:
                self._renewing = None
            elif self._is_ready(new) and not old.leaving:
                old.terminate()
        while self._renewing is None and self._to_renew:
            old = self._to_renew.pop(0)
            if old not in self._states or old.leaving:
                continue
            if old.quarantine:
                old.terminate()
            else:
                started = self._start(now)
                self._renewing = (old, started) if started is not None else None

    def _watch(self, worker: WorkerProcess, now: float) -> None:
        if worker.kill_if_overdue(now):
            logger.error("Consumer %s did not stop in time and was killed", worker.consumer)
            return
        decision = worker.watchdog.check(now)
        if decision in (Decision.KILL, Decision.KILL_LATE):
            worker.was_late = decision is Decision.KILL_LATE
            self._report_late(worker, "killed: it does not respond", now)
            worker.kill()
        elif decision is Decision.ASK_TO_LEAVE and not self._is_renewed(worker) and not self._restarts.waiting(now):
            self._report_late(worker, "replaced: a handler cannot be interrupted", now)
            # The replacement is started first, because this process still serves its queues meanwhile.
            if self._quiet:
                worker.terminate()
            else:
                self._to_renew.insert(0, worker)

    def _report_late(self, worker: WorkerProcess, action: str, now: float) -> None:
        late = worker.watchdog.late
        runs = [
            f"entry {item.receipt.entry.decode(errors='replace')!r} of queue {self._options.queues[item.receipt.queue]}"
            f" for {now - item.since:.1f} s"
            for item in late
        ]
        logger.error("Consumer %s is %s. Past its timeout: %s", worker.consumer, action, ", ".join(runs) or "nothing")
        self._on_late(worker.consumer, {item.receipt for item in late})

    def _suspend(self, worker: WorkerProcess, now: float) -> bool:
        """Hand back the unstarted messages of a process that does not respond; return whether it responds again."""
        if worker.watchdog.responds:
            responds_again = worker.suspended is not None
            worker.suspended = None
            return responds_again
        if worker.suspended is None or now - worker.suspended > SUSPEND_AGAIN:
            self._states.suspend(worker, now)
            started = {item.receipt for item in worker.shared_state.running()} | set(worker.shared_state.results())
            self._on_unresponsive(worker.consumer, started)
        return False

    def _remove_ended(self, now: float) -> None:
        for worker in self._states:
            code = worker.process.poll()
            if code is None:
                continue
            is_done = self._options.drain and code == 0 and not worker.quarantine and not worker.leaving
            if is_done or worker.dismissed:
                self._processes -= 1
            elif code == 1 and not worker.shared_state.ticks() and is_reloaded():
                # The reloader may have seen the file for the first time after it was saved.
                if not self._quiet:
                    logger.error("The changed project cannot be loaded; waiting for the next change")
                self._quiet = True
            elif not worker.leaving and not self._stopping:
                logger.error("Consumer %s exited with code %d; starting another", worker.consumer, code)
                if not worker.has_begun:
                    restarts = self._quarantines.restarts if worker.quarantine else self._restarts
                    restarts.ended(now, worker.failed_starts + 1)
            # A process that exits with code 0 has interrupted its blocked reads before.
            self._on_exit(
                worker.consumer, evidence_of(worker.shared_state, late=worker.was_late, now=now, may_receive=code != 0)
            )
            if worker.quarantine:
                self._quarantines.ended(worker)
            self._states.remove(worker)


def _became_quiet(worker: WorkerProcess) -> bool:
    """Return whether a consumer has stopped fetching since the last call."""
    before, worker.quiet = worker.quiet, worker.shared_state.is_quiet()
    return worker.quiet and not before
