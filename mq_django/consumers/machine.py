"""Which machine this is, and whether a process of it has ended."""

import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")


class Machine(NamedTuple):
    """What process numbers mean something in. Containers of one host share the boot, but not the numbers."""

    boot: str
    pids: str


@cache
def here() -> Machine | None:
    """Return this machine; None where it cannot be told from another."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return Machine(boot, str((_PROC / "self/ns/pid").readlink()))
    except OSError:
        return None


def started(pid: int) -> str:
    """Return when a process started, in a form that two processes of one number do not share.

    "" if it has ended, or cannot be seen: /proc may be missing, or hide the processes of other users.
    """
    return _started(pid) or ""


def has_ended(pid: int, moment: str) -> bool:
    """Return whether the process of this number that started at this moment has ended for certain."""
    now = _started(pid)
    if now is not None:
        return now != moment
    try:
        # Sends nothing, and tells of hidden processes, too.
        os.kill(pid, 0)
    except (OSError, OverflowError) as error:
        return isinstance(error, ProcessLookupError)
    return False


def _started(pid: int) -> str | None:
    """Return when a process started, "" if it has ended and is still listed, None if it cannot be seen."""
    try:
        state, *fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    # Field 22 of proc(5), in clock ticks since the boot; the state is field 3.
    return "" if state in "ZX" else fields[18]


def resident_mib(pid: int | None = None) -> float:
    """Return how much memory a process has, in MiB; 0 where that cannot be told."""
    try:
        pages = int((_PROC / str(pid or os.getpid()) / "statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
