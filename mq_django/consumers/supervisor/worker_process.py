"""The processes of a supervisor."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from django.conf import settings

from mq_django.consumers.machine import started
from mq_django.consumers.shared_state import SharedState
from mq_django.consumers.supervisor.watchdog import Watchdog
from mq_django.consumers.worker.consumer import lanes
from mq_django.consumers.worker.main import Orders

#: A consumer that has ticked so often, about a second, died of something else than its start.
STARTED = 10
#: Seconds that a consumer may take beyond the grace to settle and end.
LAST_STEPS = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """What holds for every consumer of a supervisor."""

    queues: Sequence[str]
    threads: int
    grace: float
    drain: bool = False
    #: After so many messages, or with so many MiB of memory, another takes a consumer's place; 0: never.
    max_messages: int = 0
    max_memory: float = 0.0
    #: Given to the command as they are.
    arguments: Sequence[str] = ()


class WorkerProcess:
    """A consumer process, seen from its supervisor."""

    def __init__(
        self,
        consumer: str,
        shared_state: SharedState,
        lifeline: int,
        process: "subprocess.Popen[bytes]",
        terms: WorkerOptions,
        *,
        backlog: str,
        deaths: int,
    ) -> None:
        self.consumer = consumer
        #: What a quarantine takes from; "" for any other consumer.
        self.backlog = backlog
        self.shared_state = shared_state
        self.process = process
        self.quarantine = bool(backlog)
        #: Processes that ended in its place, one after another, without having begun a message.
        self.deaths = deaths
        self.threads = 1 if backlog else terms.threads
        self.since = time.monotonic()
        self.since_ms = int(time.time() * 1000)
        self.started = started(process.pid)
        #: It was killed because a handler of it ran past its timeout.
        self.was_late = False
        #: Its supervisor speaks for it in every queue.
        self.announced: set[int] = set()
        #: It does not respond, and what it has not begun goes to others; since when, on the monotonic clock.
        self.suspended: float | None = None
        #: It was seen to be quiet.
        self.quiet = False
        #: It was asked to stop for good: nobody takes its place.
        self.dismissed = False
        #: Others took it for dead.
        self.evicted = False
        self.watchdog = Watchdog(shared_state)
        self._grace = terms.grace
        self._kill_at: float | None = None
        self._lifeline = lifeline

    @property
    def has_begun(self) -> bool:
        """Tell whether the process has got as far as to run messages, and so did not end of its start."""
        # A quarantine may well be killed by what it runs first: that is what it is for.
        ticked = self.shared_state.ticks() >= (1 if self.quarantine else STARTED)
        return ticked or bool(self.shared_state.running() or self.shared_state.results())

    @property
    def leaving(self) -> bool:
        """Tell whether it was asked to end, or told that it will: another may take its place."""
        return self._kill_at is not None or self.shared_state.leaving()

    def terminate(self) -> None:
        """Ask the process to stop; the second time, to stop at once."""
        again = self._kill_at is not None
        if again:
            # By the shared state too, because two signals at once arrive as one.
            self.shared_state.stop_fast()
        self._kill_at = time.monotonic() + (0.0 if again else self._grace) + LAST_STEPS
        if self.process.poll() is None:
            self.process.terminate()

    def kill_if_overdue(self, now: float) -> bool:
        """Kill the process when it was asked to stop and has not; tell whether it was so."""
        overdue = self._kill_at is not None and now > self._kill_at
        if overdue:
            self.kill()
        return overdue

    def kill(self) -> None:
        """End the process at once, also one that is stopped."""
        if self.process.poll() is None:
            self.process.kill()

    def close(self) -> None:
        """Let go of what was shared with the process."""
        os.close(self._lifeline)
        self.shared_state.close()


def spawn(consumer: str, supervisor: str, terms: WorkerOptions, *, backlog: str = "", deaths: int = 0) -> WorkerProcess:
    """Start a consumer, or with a backlog a quarantine, as a new interpreter, which loads the code as it is now.

    A fork would share the supervisor's threads' locks and its old code.

    Raises:
        OSError: there is no room for its memory, or the system allows no more processes or descriptors.
    """
    threads = 1 if backlog else terms.threads
    with ExitStack() as undo:
        # Until a heartbeat speaks for it nobody would reclaim what it fetches.
        shared_state = SharedState.create(lanes(threads), held=False)
        undo.callback(shared_state.close)
        their_end, our_end = os.pipe()
        undo.callback(os.close, our_end)
        try:
            process = _execute(_orders(consumer, supervisor, terms, backlog, shared_state.fd, their_end), terms)
        finally:
            os.close(their_end)
        undo.pop_all()
    return WorkerProcess(consumer, shared_state, our_end, process, terms, backlog=backlog, deaths=deaths)


def _orders(
    consumer: str, supervisor: str, terms: WorkerOptions, backlog: str, shared_state: int, lifeline: int
) -> Orders:
    return Orders(
        consumer=consumer,
        supervisor=supervisor,
        queues=list(terms.queues),
        threads=1 if backlog else terms.threads,
        grace=terms.grace,
        drain=terms.drain,
        board=shared_state,
        lifeline=lifeline,
        line=backlog,
        max_messages=terms.max_messages,
        max_memory=terms.max_memory,
    )


def _execute(orders: Orders, terms: WorkerOptions) -> "subprocess.Popen[bytes]":
    with ignoring_interrupts():
        return subprocess.Popen(  # noqa: S603 - our own interpreter and command
            command("--orders", orders.as_text(), *terms.arguments),
            pass_fds=(orders.board, orders.lifeline),
            env=environment(),
            stdin=subprocess.DEVNULL,
        )


def command(*arguments: str) -> list[str]:
    """Return the command line of another `runconsumer` of the same project."""
    return [sys.executable, "-m", "django", "runconsumer", *arguments]


@contextmanager
def ignoring_interrupts() -> Iterator[None]:
    """Have a process started inside ignore Ctrl-C from its first moment; its supervisor decides what that means."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def environment() -> dict[str, str]:
    """Return the environment in which `python -m django` finds the same project."""
    module = os.environ.get("DJANGO_SETTINGS_MODULE") or settings.SETTINGS_MODULE
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)  # noqa: PTH109 - '' means just that
    # Of glibc: else each of some twenty threads begins a heap of its own, though in Python they take turns.
    heaps = {"MALLOC_ARENA_MAX": "2"}
    return {**heaps, **os.environ, "DJANGO_SETTINGS_MODULE": module, "PYTHONPATH": path}
