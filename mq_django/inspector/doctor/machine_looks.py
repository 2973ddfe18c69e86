"""Looks at the consumers that run on this machine: their open files, and the memory of their container.

What is read is in `/proc` and `/sys/fs/cgroup` of Linux. Elsewhere, and for processes of other users, nothing is found.
"""

import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import NamedTuple

from mq_django.core.numbers import whole
from mq_django.inspector.doctor.findings import DoctorFinding, Look, counted
from mq_django.inspector.doctor.queue_looks import QueueFacts

#: The shares of open files, and of memory, from which there is a warning.
NEARLY_FULL = 0.8

_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
_MIB = 2**20


class GroupMemory(NamedTuple):
    """The bytes of memory that a control group uses, and its limit."""

    used: int
    limit: int

    @property
    def share(self) -> float:
        """Return the share of the limit that is used."""
        return self.used / self.limit if self.limit else inf


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFacts:
    """The processes of consumers and supervisors that run on this machine."""

    pids: Sequence[int]


def process_facts(queues: QueueFacts) -> ProcessFacts:
    """Find the processes of this machine among the live consumers and supervisors."""
    here, found = socket.gethostname(), set[int]()
    for queue in queues.readable:
        for one in (*queue.consumers, *queue.housekeepers):
            # A supervisor announces its own process, too.
            pids = (one.pid, one.announced.get("pid"))
            if one.alive and one.host == here:
                found.update(pid for pid in pids if isinstance(pid, int) and pid > 0)
    return ProcessFacts(pids=sorted(found))


def _of_files(processes: ProcessFacts) -> Iterator[DoctorFinding]:
    used = {pid: files for pid in processes.pids if (files := _open_files(pid)) is not None}
    full = {pid: files for pid, files in used.items() if files[0] >= files[1] * NEARLY_FULL}
    for pid, (count, limit) in full.items():
        yield DoctorFinding(
            code="D501",
            level="warning",
            seen=f"Process {pid} of runconsumer has {count} open files, and may have {limit}. At the limit it can "
            "neither connect nor start processes.",
            advice="Raise the limit: LimitNOFILE= in the systemd unit, --ulimit nofile= of docker run, or ulimit -n "
            "before the start.",
        )


def _open_files(pid: int) -> tuple[int, int] | None:
    """Return how many files a process has open, and how many it may have; None if unknown or not limited."""
    try:
        count = len(list((_PROC / str(pid) / "fd").iterdir()))
        lines = (_PROC / str(pid) / "limits").read_text().splitlines()
    except OSError:
        return None
    (line,) = (line for line in lines if line.startswith("Max open files"))
    soft = whole(line.split()[3])
    return None if soft is None else (count, soft)


def _of_memory(processes: ProcessFacts) -> Iterator[DoctorFinding]:
    groups: dict[Path, tuple[GroupMemory, list[int]]] = {}
    for pid in processes.pids:
        # Each group that a process is in limits it: the one that is nearest to its limit matters.
        limits = {folder: memory for folder in _memory_groups(pid) if (memory := _memory(folder))}
        folder = max(limits, key=lambda folder: limits[folder].share, default=None)
        if folder is not None:
            groups.setdefault(folder, (limits[folder], []))[1].append(pid)
    for memory, pids in groups.values():
        if memory.share >= NEARLY_FULL:
            yield DoctorFinding(
                code="D502",
                level="warning",
                seen=f"The container or unit of {counted(len(pids), 'process', 'es')} of runconsumer uses "
                f"{memory.used // _MIB} of {memory.limit // _MIB} MiB of memory. At the limit the kernel kills one of "
                "them.",
                advice="Give it more memory, or start runconsumer with fewer --processes. With --max-memory MIB a "
                "process that grows is replaced before that: MIB times the number of processes should stay below the "
                "limit.",
            )


def _memory_groups(pid: int) -> Sequence[Path]:
    """Return the folders of the control groups for the memory of a process, the innermost first."""
    try:
        lines = (_PROC / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return ()
    for number, controllers, path in (line.split(":", 2) for line in lines):
        if "memory" in controllers.split(",") or (number == "0" and not controllers):
            root = _CGROUPS / "memory" if controllers else _CGROUPS
            own = root / path.strip("/")
            # In a container the path may be the one outside of it.
            if ".." in own.parts or not own.is_dir():
                own = root
            folders = [folder for folder in (own, *own.parents) if folder.is_relative_to(root)]
            if found := [folder for folder in folders if (folder / "memory.stat").exists()]:
                return found
    return ()


def _memory(folder: Path) -> GroupMemory | None:
    """Return the memory of a control group, without what the kernel can free at once; None without a limit."""
    names = ("memory.current", "memory.max", "inactive_file")
    if not (folder / names[0]).exists():  # version 1
        names = ("memory.usage_in_bytes", "memory.limit_in_bytes", "total_inactive_file")
    try:
        used, limit = ((folder / name).read_text().strip() for name in names[:2])
        statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return None
    most = whole(limit)
    # Version 1 has a huge number for no limit.
    if most is None or most >= 2**60:
        return None
    return GroupMemory((whole(used) or 0) - (whole(statistics.get(names[2])) or 0), most)


MACHINE_LOOKS: tuple[Look[ProcessFacts], ...] = (
    Look("open files", ("D501",), _of_files),
    Look("memory of the container", ("D502",), _of_memory),
)
