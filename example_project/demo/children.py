"""The processes of the demo: started apart, watched, and ended by their ids."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from example_project.demo.closing import Closing

ROOT = Path(__file__).resolve().parents[2]
#: Seconds until a process must be up: Django starts in one, a loaded machine needs a few.
START_TIMEOUT = 30.0
#: Seconds that consumers have to finish what they run.
STOP_TIMEOUT = 20.0


class ChildFailed(Exception):
    """A process of the demo did not come up, or ended by itself."""


class Closed(Exception):
    """The demo was asked to end before it had begun."""


class Child:
    """One process of the demo, with its output in a file of its own."""

    def __init__(
        self, name: str, arguments: Sequence[str], *, folder: Path, env: Mapping[str, str], fds: Sequence[int] = ()
    ) -> None:
        """Start it; it has `fds` open, too."""
        self.name = name
        self.log = folder / f"{name}.log"
        self._started = time.monotonic()
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(  # noqa: S603
                [sys.executable, *arguments],
                cwd=ROOT,
                env=dict(env),
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C goes to every process of the terminal's group. These must end in order: first the
                # visitors, then the consumers, last what the consumers need to finish.
                process_group=0,
            )

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self.process.pid

    @property
    def age(self) -> float:
        """Return how many seconds ago it was started."""
        return time.monotonic() - self._started

    def check(self) -> None:
        """Raise ChildFailed if the process has ended."""
        if self.process.poll() is not None:
            raise ChildFailed(f"{self.name} ended with {self.process.returncode}; see {self.log}")

    def wait_until(self, ready: Callable[[], bool], *, closing: Closing) -> None:
        """Wait until the process does its work, or raise ChildFailed or Closed."""
        deadline = time.monotonic() + START_TIMEOUT
        while not ready():
            self.check()
            if closing.asked:
                raise Closed
            if time.monotonic() > deadline:
                raise ChildFailed(f"{self.name} did not come up in {START_TIMEOUT:.0f} s; see {self.log}")
            time.sleep(0.05)

    def stop(self) -> int:
        """Ask the process to end, insist after a while, and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait()


class Guard:
    """A process that ends the children if the demo is gone, however it went.

    It reads from a pipe that nobody writes to: the pipe ends with the demo.
    """

    def __init__(self, children: Sequence[Child]) -> None:
        """Start it."""
        self._process = subprocess.Popen(  # noqa: S603
            ["/bin/sh", "-c", 'cat; kill -TERM "$@"', "guard", *(str(child.pid) for child in children)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )

    def dismiss(self) -> None:
        """End the guard before the children: afterwards their ids may belong to somebody else."""
        self._process.kill()
        self._process.communicate()


def listen(preferred: int = 0) -> socket.socket:
    """Return a socket that listens on 127.0.0.1: on the preferred port if it is free, else on another.

    It is opened here and handed to the process that serves on it, because a port that was only looked for may be
    somebody else's by the time it is used.
    """
    listener = socket.socket()
    # As servers do it: a port whose last connections are just closing counts as free.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", preferred))
    except OSError:
        listener.close()
        if not preferred:
            raise
        return listen()
    listener.listen(128)
    return listener


def address(listener: socket.socket) -> str:
    """Return the URL of what listens."""
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def answers(url: str) -> bool:
    """Say whether a server answers, be it in another second."""
    address = urlsplit(url)
    connection = HTTPConnection(address.hostname or "", address.port, timeout=1)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
