"""Start and control the consumer processes of a supervisor."""

import enum
import os
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

from mq_django.consumers.decisions import Evidence
from mq_django.consumers.processes import started
from mq_django.consumers.shared_state import ASYNC_BATCHES, OVERTIME, Running, SharedState
from mq_django.consumers.supervisor.launcher import Launcher
from mq_django.consumers.supervisor.template import Process
from mq_django.consumers.worker.consumer import slots
from mq_django.consumers.worker.dispatcher import backlog_of
from mq_django.consumers.worker.main import LaunchSpec
from mq_django.core import clock
from mq_django.registry import largest_batch

# Decide by its shared state whether a consumer process must be replaced.

#: Seconds without a tick after which a consumer that runs no handler is killed: it is stopped or stuck.
STILL = 15.0
#: Seconds without a tick after which a consumer with a late handler cannot be asked to leave.
UNRESPONSIVE = 1.0
#: Seconds without a tick after which the messages that a consumer has not started are handed back.
SUSPEND_AFTER = 3.0
#: Seconds that a process may take to load the project.
START = 120.0
#: At most this many seconds between two checks count: in a longer gap the supervisor itself did not run.
MAX_GAP = 0.5


class Decision(enum.Enum):
    """A decision of the watchdog about a consumer."""

    KEEP = "keep"
    #: It has a late handler, and can finish the others.
    ASK_TO_LEAVE = "ask to leave"
    #: It has a late handler and cannot be asked.
    KILL_LATE = "kill, for a late handler"
    KILL = "kill"


class Watchdog:
    """Watches one consumer. check() checks once."""

    def __init__(self, shared_state: SharedState) -> None:
        self._shared_state = shared_state
        self._looked = time.monotonic()
        self._ticks = 0
        self._still = 0.0
        #: Each delivery past its deadline, and the seconds for which it has been seen so. Each is measured separately:
        #: a different handler may be late at every check, as long as each is interrupted in time.
        self._late: dict[Running, float] = {}

    @property
    def responds(self) -> bool:
        """Return whether the consumer has ticked recently, or is still starting."""
        return not self._ticks or self._still < SUSPEND_AFTER

    @property
    def late(self) -> Collection[Running]:
        """Return the deliveries that were late at the latest check."""
        return self._late.keys()

    def check(self, now: float) -> Decision:
        """Return what to do about the consumer now."""
        passed = min(MAX_GAP, now - self._looked)
        self._looked = now
        ticks = self._shared_state.ticks()
        self._still = self._still + passed if ticks == self._ticks else 0.0
        self._ticks = ticks
        late = [item for item in self._shared_state.running() if now > item.deadline]
        self._late = {item: self._late.get(item, 0.0) + passed for item in late}
        longest = max(self._late.values(), default=0.0)
        if longest > OVERTIME:
            return Decision.KILL_LATE if self._still > UNRESPONSIVE else Decision.ASK_TO_LEAVE
        # It cannot interrupt the handler. Its replacement is started now, before it is killed.
        if late and self._still > UNRESPONSIVE:
            return Decision.ASK_TO_LEAVE
        if late or self._still <= (STILL if ticks else START):
            return Decision.KEEP
        # A handler within its timeout may hold the GIL for as long.
        return Decision.KEEP if self._shared_state.running() else Decision.KILL


#: The number of ticks, in about a second, after which a process has started successfully.
STARTED = 10
#: Seconds that a consumer may take after its grace period to settle and exit.
LAST_STEPS = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The options of all consumers of a supervisor."""

    queues: Sequence[str]
    threads: int
    grace: float
    drain: bool = False
    #: A consumer is replaced after this many messages, or when it uses this much memory in MiB; 0: never.
    max_messages: int = 0
    max_memory: float = 0.0


class WorkerProcess:
    """A consumer process, and what its supervisor knows about it."""

    def __init__(
        self,
        consumer: str,
        shared_state: SharedState,
        lifeline: int,
        process: Process,
        options: WorkerOptions,
        *,
        backlog: str,
        failed_starts: int,
    ) -> None:
        self.consumer = consumer
        #: The backlog of a quarantine; "" for any other consumer.
        self.backlog = backlog
        self.shared_state = shared_state
        self.process = process
        self.quarantine = bool(backlog)
        #: How many processes in a row ended in its place before they started a message.
        self.failed_starts = failed_starts
        self.threads = 1 if backlog else options.threads
        self.since = time.monotonic()
        self.since_ms = clock.now_ms()
        self.started = started(process.pid)
        #: It was killed because a handler exceeded its timeout.
        self.was_late = False
        #: The queues in which its supervisor has announced it.
        self.announced: set[int] = set()
        #: When its unstarted messages were last handed back because it does not respond, on the monotonic clock; else
        #: None.
        self.suspended: float | None = None
        #: It fetches no more.
        self.quiet = False
        #: It was asked to stop and is not replaced.
        self.dismissed = False
        #: Another supervisor took it for dead.
        self.evicted = False
        self.watchdog = Watchdog(shared_state)
        self._grace = options.grace
        self._kill_at: float | None = None
        self._lifeline = lifeline

    @property
    def has_begun(self) -> bool:
        """Return whether the process has started successfully, so that its end does not count as a failed start."""
        # A quarantine may be killed by the first message that it runs: that is its purpose.
        ticked = self.shared_state.ticks() >= (1 if self.quarantine else STARTED)
        return ticked or bool(self.shared_state.running() or self.shared_state.results())

    @property
    def leaving(self) -> bool:
        """Return whether it was asked to stop, or reports that it will: its replacement may start."""
        return self._kill_at is not None or self.shared_state.leaving()

    def terminate(self) -> None:
        """Ask the process to stop; the second time, to stop at once."""
        again = self._kill_at is not None
        if again:
            # Through the shared state as well, because two signals at once arrive as one.
            self.shared_state.stop_fast()
        self._kill_at = time.monotonic() + (0.0 if again else self._grace) + LAST_STEPS
        if self.process.poll() is None:
            self.process.terminate()

    def kill_if_overdue(self, now: float) -> bool:
        """Kill the process if it has not stopped in time, and return whether that was so."""
        overdue = self._kill_at is not None and now > self._kill_at
        if overdue:
            self.kill()
        return overdue

    def kill(self) -> None:
        """End the process at once, even a suspended one."""
        if self.process.poll() is None:
            self.process.kill()

    def close(self) -> None:
        """Release the shared state and the pipe."""
        os.close(self._lifeline)
        self.shared_state.close()


def spawn(
    consumer: str,
    supervisor: str,
    options: WorkerOptions,
    launcher: Launcher,
    *,
    backlog: str = "",
    failed_starts: int = 0,
) -> WorkerProcess:
    """Start a consumer, or with a backlog a quarantine. Raises the OSError of Launcher.start()."""
    threads = 1 if backlog else options.threads
    with ExitStack() as undo:
        # It fetches nothing before a heartbeat announces it, because its messages could not be reclaimed until then.
        batch = largest_batch()
        batches = threads + ASYNC_BATCHES if batch else 0
        shared_state = SharedState.create(slots(threads), held=False, batches=batches, batch=batch)
        undo.callback(shared_state.close)
        their_end, our_end = os.pipe()
        undo.callback(os.close, our_end)
        try:
            process = launcher.start(_launch_spec(consumer, supervisor, options, backlog, shared_state.fd, their_end))
        finally:
            os.close(their_end)
        undo.pop_all()
    return WorkerProcess(
        consumer, shared_state, our_end, process, options, backlog=backlog, failed_starts=failed_starts
    )


def _launch_spec(
    consumer: str, supervisor: str, options: WorkerOptions, backlog: str, shared_state: int, lifeline: int
) -> LaunchSpec:
    return LaunchSpec(
        consumer=consumer,
        supervisor=supervisor,
        queues=list(options.queues),
        threads=1 if backlog else options.threads,
        grace=options.grace,
        drain=options.drain,
        board=shared_state,
        lifeline=lifeline,
        line=backlog,
        max_messages=options.max_messages,
        max_memory=options.max_memory,
    )


# The time at which a process that has ended is replaced.

#: Seconds until the next start after two processes in a row ended before they started a message; doubled each time.
FIRST_PAUSE, MAX_PAUSE = 0.5, 30.0


class PendingStart(NamedTuple):
    """A process that is to be started."""

    #: When it may start, in seconds on the monotonic clock.
    moment: float
    #: How many processes in a row ended in its place before they started a message.
    failed_starts: int


class Restarts:
    """The processes that are to be started. Each has a delay of its own."""

    def __init__(self) -> None:
        self._pending: list[PendingStart] = []

    def ended(self, now: float, failed_starts: int, *, at_least: float = 0.0) -> float:
        """Add a start after this number of failed starts in a row, and return the seconds until then."""
        backoff = min(MAX_PAUSE, FIRST_PAUSE * 2 ** min(failed_starts - 2, 10)) if failed_starts > 1 else 0.0
        pause = max(at_least, backoff)
        self._pending.append(PendingStart(now + pause, failed_starts))
        return pause

    def waiting(self, now: float) -> int:
        """Return how many starts are not due yet."""
        return sum(pending.moment > now for pending in self._pending)

    def take(self, now: float) -> int:
        """Remove a start that is due, and return its number of failed starts; 0 if none is due or none has failed."""
        due = [pending for pending in self._pending if pending.moment <= now]
        if not due:
            return 0
        self._pending.remove(max(due, key=lambda pending: pending.failed_starts))
        return max(pending.failed_starts for pending in due)


# The number of quarantines of a supervisor, and the backlog that they share.


class Quarantines:
    """Decides how many quarantines a supervisor runs: at most as many as consumers."""

    def __init__(self, most: int, on_exit: Callable[[str, Evidence], None]) -> None:
        self._most = most
        #: Called with a backlog that no quarantine runs any more.
        self._on_exit = on_exit
        self.restarts = Restarts()
        #: The quarantine that the backlog is named after; "" while there is none.
        self.leader = ""
        #: Quarantines that have ended since the last count although more messages waited.
        self._crowded = 0

    def backlog(self, quarantine: str) -> str:
        """Return the backlog of a new quarantine. All quarantines share one."""
        self.leader = self.leader or quarantine
        return backlog_of(self.leader)

    def ended(self, worker: WorkerProcess) -> None:
        """Note that a quarantine has ended."""
        self._crowded += worker.shared_state.wants_quarantine()

    def missing(self, quarantines: Sequence[WorkerProcess], asked: Sequence[WorkerProcess], now: float) -> int:
        """Return how many quarantines to start, given those that run and the processes that asked for one.

        One more when more messages wait than the quarantines run, and one for each that has ended while messages
        waited.
        """
        needed = len(quarantines)
        if self._crowded or any(worker.quarantine for worker in asked):
            needed += self._crowded + 1
        elif asked and all(quarantine.shared_state.running() for quarantine in quarantines):
            needed += 1
        self._crowded = 0
        return max(0, min(needed, self._most - self.restarts.waiting(now)) - len(quarantines))

    def end_backlog(self) -> None:
        """Hand back the messages of the backlog when the last quarantine has ended."""
        if self.leader:
            # A consumer that has read the backlog's name before may still pass messages on to it.
            self._on_exit(backlog_of(self.leader), Evidence(may_receive=True))
        self.leader = ""
