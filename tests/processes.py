"""What runs on this machine, as tests of processes need to know it."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True, kw_only=True)
class Process:
    pid: int
    parent: int
    command: str
    #: The name that the system shows, where it can be changed.
    name: str = ""


def processes() -> list[Process]:
    """Return every process; one that has ended and waits to be collected has gone."""
    return _from_proc() if (PROC / "self" / "stat").exists() else _from_ps()


def alive(pid: int) -> bool:
    """Return whether a process runs."""
    return any(process.pid == pid for process in processes())


def is_stopped(pid: int) -> bool:
    """Return whether a signal has stopped every thread of a process."""
    threads = (PROC / str(pid) / "task").glob("*/stat")
    return {path.read_text(errors="replace").rpartition(")")[2].split()[0] for path in threads} == {"T"}


def _from_proc() -> list[Process]:
    found = []
    for folder in PROC.glob("[0-9]*"):
        try:
            # The name in brackets may hold anything: what comes after the last bracket is state and parent.
            before, _, after = (folder / "stat").read_text(errors="replace").rpartition(")")
            state, parent = after.split()[:2]
            command = (folder / "cmdline").read_text(errors="replace").replace("\0", " ").strip()
        except OSError:
            continue
        if state not in "ZX":
            found.append(
                Process(pid=int(folder.name), parent=int(parent), command=command, name=before.partition("(")[2])
            )
    return found


def _from_ps() -> list[Process]:
    table = subprocess.run(["ps", "-axwwo", "pid=,ppid=,stat=,command="], capture_output=True, text=True, check=True)
    rows = [line.split(maxsplit=3) for line in table.stdout.splitlines()]
    return [
        Process(pid=int(pid), parent=int(parent), command="".join(command))
        for pid, parent, state, *command in rows
        if not state.startswith("Z")
    ]
