"""Which machine this is, and whether a process of it still runs."""

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
    """Return when a process started, in a form that two processes of one number do not share; "" if it has gone.

    On systems without /proc it is always "", and nobody is taken for gone there.
    """
    try:
        state, *fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    # Field 22 of proc(5), in clock ticks since the boot; the state is field 3.
    return "" if state in "ZX" else fields[18]


def resident_mib(pid: int | None = None) -> float:
    """Return how much memory a process has, in MiB; 0 where that cannot be told."""
    try:
        pages = int((_PROC / str(pid or os.getpid()) / "statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
