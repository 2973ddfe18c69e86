"""Processes: which machine they are on and whether they have ended, and what a consumer or supervisor leaves behind.

That is the time for which running handlers may go on, the processes that handlers fork, and the folders of supervisors
for temporary files.
"""

import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from django.utils.autoreload import DJANGO_AUTORELOAD_ENV

from mq_django.core.logs import get_logger

_PROC = Path("/proc")
#: Not on Windows, where this module is imported but not used.
_fcntl: Any = import_module("fcntl") if find_spec("fcntl") else None


class Machine(NamedTuple):
    """The scope of process ids: a boot of a kernel, and a PID namespace in it. Each container has its own namespace."""

    boot: str
    pids: str


@cache
def here() -> Machine | None:
    """Return this machine, or None where it cannot be identified."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return Machine(boot, str((_PROC / "self/ns/pid").readlink()))
    except OSError:
        return None


def is_reloaded() -> bool:
    """Return whether this process runs under `--autoreload`, which ends it at a change without an orderly stop."""
    return DJANGO_AUTORELOAD_ENV in os.environ


def started(pid: int) -> str:
    """Return the start time of a process, which tells it from an earlier process with the same id.

    "" if it has ended or is not visible: /proc may be missing, or hide the processes of other users.
    """
    return _started(pid) or ""


def has_ended(pid: int, started_at: str) -> bool:
    """Return whether the process with this id and start time has certainly ended."""
    now = _started(pid)
    if now is not None:
        return now != started_at
    try:
        # Signal 0 only checks that the process exists, even if /proc hides it.
        os.kill(pid, 0)
    except (OSError, OverflowError) as error:
        return isinstance(error, ProcessLookupError)
    return False


def _started(pid: int) -> str | None:
    """Return the start time of a process, "" if it has ended and is still listed, None if it is not visible."""
    try:
        state, *fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    # Field 22 of proc(5), in clock ticks since the boot; the state is field 3.
    return "" if state in "ZX" else fields[18]


def resident_mib(pid: int | None = None) -> float:
    """Return the resident memory of a process in MiB; 0 where it is not known."""
    try:
        pages = int((_PROC / str(pid or os.getpid()) / "statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


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
        patience: seconds in which they may clean up after a SIGTERM.
    """
    # Loaded by the first process that a handler has started.
    if (used := sys.modules.get("multiprocessing.util")) is None:
        return
    # A pool ends its processes, and starts no others in their place. In a thread: it may wait for what never comes.
    end_pools = used._run_finalizers  # noqa: SLF001 - as multiprocessing does
    ending = threading.Thread(target=end_pools, args=(0,), daemon=True)
    ending.start()
    ending.join(patience)
    children = sys.modules["multiprocessing.process"].active_children()
    for child in children:
        logger.warning("Process %d, which a handler has started and left, is ended", child.pid)
        child.terminate()
    grace = Grace(patience)
    for child in children:
        child.join(grace.left())
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


@contextmanager
def private_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Create a folder that only this user can read, and remove it at the end.

    Args:
        prefix: the begin of its name.
        parent: the folder in which it is created; None: that of the system for temporary files.

    Raises:
        OSError: it cannot be created: no space, or no rights.
    """
    parent = parent or Path(tempfile.gettempdir())
    parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(prefix, parent)
    # Its name begins otherwise until it is locked: an unlocked one is abandoned.
    new = Path(tempfile.mkdtemp(prefix=f"new-{prefix}", dir=parent))
    folder = new
    try:
        # The lock ends with the process, however that ends. systemd-tmpfiles leaves locked folders alone, too.
        lock = os.open(new, os.O_RDONLY)
        try:
            _fcntl.flock(lock, _fcntl.LOCK_EX)
            folder = new.rename(parent / new.name.removeprefix("new-"))
            yield folder
        finally:
            os.close(lock)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned(prefix: str, parent: Path) -> None:
    """Remove the folders whose supervisors have ended. Their consumers may still finish, and need no files."""
    for folder in parent.glob(f"{prefix}*"):
        # Another user's cannot be opened, or not be removed.
        with suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0))
            try:
                if os.fstat(lock).st_uid == os.getuid():
                    _fcntl.flock(lock, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
