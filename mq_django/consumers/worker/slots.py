"""For how long running handlers may go on, and what becomes of the processes that they fork."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from mq_django.core.logs import get_logger

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


#: Functions that close the descriptors of a consumer in a forked child; empty in a process that is no consumer.
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
    """End the processes of multiprocessing that handlers have left, or use until this one exits.

    Python would wait for them at its exit, or leave them behind if a handler still runs.

    Args:
        patience: seconds in which each may clean up after a SIGTERM.
    """
    # Loaded by the first process that a handler has started.
    if (used := sys.modules.get("multiprocessing.util")) is None:
        return
    # A pool ends its processes, and starts no others in their place. In a thread: it may wait for what never comes.
    end_pools = used._run_finalizers  # noqa: SLF001 - as multiprocessing does
    ending = threading.Thread(target=end_pools, args=(0,), daemon=True)
    ending.start()
    ending.join(patience)
    for child in sys.modules["multiprocessing.process"].active_children():
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
