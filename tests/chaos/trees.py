"""Trees of `runconsumer`: start them, find their processes, hit them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from mq_django.consumers.supervisor.template import TEMPLATE
from tests.chaos.settings import queues
from tests.processes import Process, alive, children
from tests.waiting import wait_until

ROOT = Path(__file__).parent.parent.parent


class Tree:
    """A supervisor and its consumers, each process with 8 threads."""

    def __init__(
        self,
        connection: str,
        folder: Path,
        *,
        processes: int = 2,
        wrap: Sequence[str] = (),
        temporary: Path | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self._log = (folder / "consumers.log").open("ab")
        command = [sys.executable, "-m", "django", "runconsumer", *queues(), "--processes", str(processes)]
        self.process = subprocess.Popen(
            [*wrap, *command, "--threads", "8", "--grace", "10", *options],
            cwd=ROOT,
            env={**environment(connection, folder), **({"TMPDIR": str(temporary)} if temporary else {})},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        #: Whether the run itself ended it.
        self.ended = False

    @property
    def pid(self) -> int:
        """Return the supervisor's process id."""
        return self.process.pid

    def children(self) -> list[int]:
        """Return the process ids of the consumers."""
        return [found.pid for found in self._found() if found.name != TEMPLATE]

    def templates(self) -> list[int]:
        """Return the process id of what its consumers are forked from, if there is one."""
        return [found.pid for found in self._found() if found.name == TEMPLATE]

    def pids(self) -> list[int]:
        """Return all process ids of the tree, the supervisor's first."""
        return [self.pid, *self.children(), *self.templates()]

    def _found(self) -> list[Process]:
        return children(self.pid)

    def kill(self) -> list[int]:
        """Kill the whole tree as a power failure does, and return who died."""
        # Stopped first, so that no part of it sees another die.
        hit = self.pids()
        for number in (signal.SIGSTOP, signal.SIGKILL):
            send(hit, number)
        self.ended = True
        self.process.wait()
        wait_until(lambda: not any(map(alive, hit)), timeout=10)
        self._log.close()
        return hit

    def stop(self, *, timeout: float = 20.0) -> bool:
        """Stop the tree as a deploy does, and tell whether it ended by itself in time."""
        self.ended = True
        children = self.children()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            send([*children, *self.pids()], signal.SIGKILL)
            self.process.wait()
            return False
        finally:
            self._log.close()
        return True

    @property
    def gave_up(self) -> int | None:
        """Return the exit code of a supervisor that ended by itself, or None."""
        return None if self.ended else self.process.poll()


def environment(connection: str, folder: Path) -> dict[str, str]:
    """Return the environment of a process of a run."""
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.chaos.settings",
        "PYTHONPATH": str(ROOT),
        "CHAOS_CONNECTION": connection,
        "CHAOS_HISTORY": str(folder),
        "CHAOS_OWNER": str(os.getpid()),
    }


def send(pids: Sequence[int], number: int) -> None:
    """Send a signal to processes; one that has gone is passed over."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def kill(pid: int) -> None:
    """Kill a process and wait until it runs no more."""
    send([pid], signal.SIGKILL)
    deadline = time.monotonic() + 10
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.001)
