"""Identify this machine, and find out whether one of its processes has ended."""

import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

from django.utils.autoreload import DJANGO_AUTORELOAD_ENV

_PROC = Path("/proc")


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
