"""What runs on a lane, and what a lane does for it."""

import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple, NoReturn, Protocol

from mq_django.consumers.shared_state import Receipt
from mq_django.consumers.worker.databases import Databases
from mq_django.core.logs import get_logger
from mq_django.core.messages import Delivery, Message
from mq_django.registry import Handler

#: What a handler gets.
Argument = Message | list[Message]


class WorkItem(NamedTuple):
    """A delivery, its handler and what runs it."""

    delivery: Delivery
    handler: Handler
    executor: "DeliveryRunner"


class ThreadLane(Protocol):
    """A thread that runs one delivery at a time."""

    #: Its number in the shared state.
    number: int
    databases: Databases
    #: What it runs, or has run last.
    job: WorkItem | None
    #: Somebody has cancelled what it runs, or has run last.
    cancelled: bool

    def call(self, handler: Handler, argument: Argument, timeout: float | None) -> object:
        """Call a handler; raise HandlerTimeout when it takes longer than `timeout` seconds."""


class LoopLane(Protocol):
    """A place on an event loop that runs one delivery at a time."""

    #: Its number in the shared state.
    number: int
    #: What it runs, or has run last.
    job: WorkItem | None
    #: Somebody has cancelled what it runs, or has run last.
    cancelled: bool
    #: The connections of the thread in which `sync_to_async` runs database operations.
    databases: Databases

    def is_alone(self) -> bool:
        """Return whether nothing else runs on the loop."""

    async def call(self, handler: Handler, argument: Argument, timeout: float | None) -> object:
        """Call a coroutine function; raise HandlerTimeout when it takes longer than `timeout` seconds."""


class DeliveryRunner(Protocol):
    """Runs deliveries on lanes: one with each call, or a batch."""

    #: The number of the queue in this process; -1 for a batch, which cannot be interrupted.
    number: int

    def run(self, lane: ThreadLane, delivery: Delivery, handler: Handler) -> None:
        """Run a delivery in this thread."""

    async def run_coroutine(self, lane: LoopLane, delivery: Delivery, handler: Handler) -> None:
        """Run a delivery on this event loop."""

    def overdue(self, lane: int, delivery: Delivery, *, since: float) -> None:
        """Mark what a lane runs as past its deadline, so that the supervisor replaces the process."""

    def receipt(self, delivery: Delivery) -> Receipt:
        """Return the receipt of a delivery in the shared state; of a batch that of its first."""

    def receipts(self, delivery: Delivery) -> Sequence[Receipt]:
        """Return the receipts of all that it runs with a delivery."""

    def hand_back(self, delivery: Delivery) -> None:
        """Hand back a delivery that has not started."""

    def rescue(self, delivery: Delivery, handler: Handler, error: BaseException) -> None:
        """Have a delivery retried whose run has failed outside of its handler: each has an outcome."""


class RunningState(Protocol):
    """The part of the shared state that running a delivery needs: see `SharedState` for each method."""

    def run(self, lane: int, queue: int, stream: int, entry: bytes, since: float, deadline: float = math.inf) -> None:
        """Note that a lane has been running a delivery since a time on the monotonic clock."""

    def run_batch(
        self, lane: int, row: int, receipts: Iterable[tuple[int, int, bytes]], since: float, deadline: float
    ) -> None:
        """Note that a lane has been running several deliveries since a time; their receipts are in a row of a table."""

    def largest_batch(self) -> int:
        """Return how many messages a batch may have."""

    def idle(self, lane: int) -> None:
        """Note that a lane is idle."""

    def ended(self, state: int, queue: int, stream: int, entry: bytes) -> None:
        """Note that a delivery was HANDLED, FAILED or RETURNED."""

    def batch_handled(self, row: int, count: int) -> None:
        """Note that all the deliveries of a row were HANDLED."""

    def holds(self, queue: int, read_at: float) -> bool:
        """Return whether the consumer holds a delivery now that it has read at a time; 0: it was not read."""

    def may_run(self, queue: int, read_at: float) -> bool:
        """Return whether a delivery may start: the consumer holds it, and its queue is not paused."""


# The grace period in which running handlers may finish.


class Grace:
    """A deadline that can be ended early."""

    def __init__(self, seconds: float, *, on_check: Callable[[], None] = lambda: None) -> None:
        self._ends = time.monotonic() + seconds
        #: Called every few milliseconds while a caller waits.
        self.on_check = on_check

    def end(self) -> None:
        """End the grace period now."""
        self._ends = 0.0

    def left(self) -> float:
        """Return the seconds left, at least 0."""
        return max(0.0, self._ends - time.monotonic())

    @property
    def over(self) -> bool:
        """Return whether the time is over."""
        return self.left() == 0.0


# What becomes of processes that handlers fork: they are ordinary programs, and no consumers.
#
# A forked child has the default handling of signals, so that `terminate()` ends it, and no descriptor of its
# consumer: while it had a copy of a connection, Redis would take a dead consumer for one that reads.

logger = get_logger(__name__)


#: The number of forks between the interpreter's first process and this one. It is read for every message, and
#: `os.getpid()` would be a system call.
generation = 0


#: What closes the descriptors of a consumer in a forked child; empty in a process that is no consumer.
_closers: list[Callable[[], None]] = []


def close_in_children(close: Callable[[], None]) -> None:
    """Have a function called in each child that is forked from now on, which closes descriptors and may raise."""
    _closers.append(close)


def _forked() -> None:
    global generation  # noqa: PLW0603 - a process has one
    generation += 1
    if not _closers:
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for close in _closers:
        with suppress(Exception):
            close()
    _closers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def end_children(patience: float = 1.0) -> None:
    """End the processes of multiprocessing that handlers have left: Python would wait for them at its exit.

    Args:
        patience: seconds in which each may clean up after a SIGTERM.
    """
    # Loaded by the first handler that has used it.
    used = sys.modules.get("multiprocessing.process")
    for child in used.active_children() if used is not None else ():
        logger.warning("Process %d, which a handler has started and left, is ended", child.pid)
        child.terminate()
        child.join(patience)
        if child.is_alive():
            child.kill()


def end_child(where: str, code: int) -> NoReturn:
    """Exit a forked child that has returned from the handler `where`: it must not run as a second consumer.

    Nothing is cleaned up, because the child shares every connection and the shared state with its parent.
    """
    try:
        logger.error("A child process forked by handler %s returned from the handler, and was ended", where)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
