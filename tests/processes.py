"""What runs on this machine, as tests of processes need to know it.

Tests look again and again while other programs need the processors, and the machine may run hundreds of processes: so
a look reads one small file for each of them.
"""

import os
import subprocess
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")

#: Where a line of /proc/PID/stat has the number of threads that have not ended, counted after the name.
THREADS = 17


class Process(NamedTuple):
    pid: int
    parent: int
    #: The name that the system shows, where it can be changed.
    name: str = ""


def processes() -> list[Process]:
    """Return every process; one that has ended and waits to be collected has gone."""
    if not (PROC / "self" / "stat").exists():
        return _from_ps("-ax")
    return [found for entry in os.scandir(PROC) if entry.name.isdecimal() and (found := _from_proc(entry.name))]


def children(parent: int) -> list[Process]:
    """Return the processes that a process has started, and not theirs."""
    return [process for process in processes() if process.parent == parent]


def alive(pid: int) -> bool:
    """Return whether a process runs."""
    has_proc = (PROC / "self" / "stat").exists()
    return _from_proc(str(pid)) is not None if has_proc else _from_ps("-p", str(pid)) != []


def command(pid: int) -> str:
    """Return the command line of a process; "" if it has ended."""
    if not (PROC / "self" / "stat").exists():
        return _ps("-ww", "-p", str(pid), "-o", "command=").strip()
    try:
        return (PROC / str(pid) / "cmdline").read_text(errors="replace").replace("\0", " ").strip()
    except OSError:
        return ""


def is_stopped(pid: int) -> bool:
    """Return whether a signal has stopped every thread of a process."""
    threads = (PROC / str(pid) / "task").glob("*/stat")
    return {path.read_text(errors="replace").rpartition(")")[2].split()[0] for path in threads} == {"T"}


def _from_proc(pid: str) -> Process | None:
    try:
        # The name in brackets may hold anything: what comes after the last bracket is state and parent.
        before, _, after = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")
    except OSError:
        return None
    fields = after.split()
    # Its first thread may have ended before the others, which still hold its connections open.
    has_ended = fields[0] in "ZX" and int(fields[THREADS]) <= 1
    return None if has_ended else Process(int(pid), int(fields[1]), before.partition("(")[2])


def _from_ps(*which: str) -> list[Process]:
    rows = [line.split() for line in _ps(*which, "-o", "pid=,ppid=,stat=").splitlines()]
    return [Process(int(pid), int(parent)) for pid, parent, state in rows if not state.startswith("Z")]


def _ps(*arguments: str) -> str:
    """Return what `ps` prints. It fails when it finds no process."""
    return subprocess.run(["ps", *arguments], capture_output=True, text=True, check=False).stdout
