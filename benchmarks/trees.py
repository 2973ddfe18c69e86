"""A consumer's whole tree of processes: start, watch and end it."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

_TICKS = os.sysconf("SC_CLK_TCK")
#: Seconds for which the processes of a tree are remembered, to measure it often: a look at all processes of a machine
#: takes milliseconds, which what is measured would lack.
REMEMBERED = 0.25
ROOT = Path(__file__).parent.parent


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS if fields else 0.0


class Tree:
    """A command in a session of its own, with all that it starts."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._command = command
        self._environment = environment
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        #: Its processes, and when they were found.
        self._known: tuple[float, list[int]] = (0.0, [])

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """Start the command."""
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                cwd=ROOT,
                env={**os.environ, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    def pids(self) -> list[int]:
        """Return the processes of the tree: those of the session that the command leads."""
        assert self._process is not None
        leader = self._process.pid
        return [pid for pid in _all_pids() if _session(pid) == leader]

    def died(self) -> bool:
        """Tell whether the command has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def kill(self) -> None:
        """Kill every process at once."""
        for _ in range(3):  # one may be starting another
            for pid in self.pids():
                _signal(pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def stop(self, seconds: float = 1.0) -> None:
        """Ask the command to stop, then kill what is left."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
        self.kill()

    def cpu_seconds(self) -> float:
        """Return the processor time that the living processes have used, without those that began just now."""
        found_at, pids = self._known
        if time.monotonic() - found_at > REMEMBERED:
            pids = self.pids()
            self._known = time.monotonic(), pids
        return sum(cpu_seconds(pid) for pid in pids)

    def memory(self) -> dict[int, float]:
        """Return the resident megabytes of each process."""
        return {pid: _resident(pid) for pid in self.pids()}


def _all_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _stat(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    # The second field is the program's name in brackets, and may hold spaces.
    return text.rpartition(")")[2].split()


def _session(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[3]) if fields and fields[0] != "Z" else -1


def _resident(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/statm").read_text(encoding="utf-8")
    except OSError:
        return 0.0
    return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def wait_until(condition: object, *, timeout: float, step: float = 0.01) -> bool:
    """Wait for a condition, and tell whether it came true."""
    assert callable(condition)
    give_up = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > give_up:
            return False
        time.sleep(step)
    return True
