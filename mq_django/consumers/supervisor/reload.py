"""Handle SIGHUP: find out whether code or settings have changed, and restart if needed."""

import enum
import hashlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pprint import pformat
from typing import IO, Any

from django.conf import settings

from mq_django.conf import QueueConfig, get_config
from mq_django.consumers.memory import new_file
from mq_django.consumers.supervisor.worker_process import command, environment, ignoring_interrupts
from mq_django.core.logs import get_logger
from mq_django.core.version import VERSION
from mq_django.registry import largest_batch, start_of
from mq_django.stores.schedule_state import scheduled

logger = get_logger(__name__)

#: Seconds that a new interpreter may take to load the project.
PROBE_TIMEOUT = 60.0
#: Lines of an error that are logged.
LAST_LINES = 5
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_FINGERPRINT = re.compile(r"^mq_django fingerprint ([0-9a-f]{64})$", re.MULTILINE)


class Change(enum.Enum):
    """A kind of change since a supervisor was started."""

    #: Nothing that the supervisor uses. New consumers load all other changes.
    NONE = "none"
    #: Its queues, topics, schedules or settings.
    OWN = "own"
    #: The project cannot be loaded.
    BROKEN = "broken"


def fingerprint(queues: Sequence[QueueConfig]) -> str:
    """Return a hash of everything that a supervisor of these queues uses of settings and code."""
    config = get_config()
    parts: dict[str, Any] = {
        "version": VERSION,
        "config": config,
        "queues": queues,
        "starts": [start_of(queue.name) for queue in queues],
        "schedules": scheduled(),
        "batch": largest_batch(),
        "servers": [settings.CACHES.get(connection or config.connection) for connection in config.connections()],
        "time zone": settings.TIME_ZONE,
    }
    # pformat() sorts sets, whose order differs from process to process.
    return hashlib.sha256(_ADDRESS.sub("", pformat(parts)).encode()).hexdigest()


def show(queues: Sequence[QueueConfig]) -> str:
    """Return the line of output in which a Probe finds the fingerprint."""
    return f"mq_django fingerprint {fingerprint(queues)}"


class Probe:
    """Compares the project on disk with the one in memory, in a new interpreter and without blocking its caller."""

    def __init__(self, queues: Sequence[QueueConfig], arguments: Sequence[str]) -> None:
        """`arguments` are the arguments of the command line that select the queues."""
        self._known = fingerprint(queues)
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._files: tuple[IO[bytes], IO[bytes]] | None = None
        self._give_up = 0.0

    @property
    def is_running(self) -> bool:
        """Return whether a comparison runs."""
        return self._process is not None

    def start(self) -> None:
        """Start a comparison. One that runs already is cancelled, because it may have loaded older code."""
        self.cancel()
        try:
            self._start()
        except OSError as error:
            self.cancel()
            logger.error("Cannot check the changed project; keeping the old consumers: %s", error)  # noqa: TRY400

    def _start(self) -> None:
        # Files, because a pipe would fill up: it would not be read while the process runs.
        self._files = output, errors = os.fdopen(new_file(), "w+b"), os.fdopen(new_file(), "w+b")
        with ignoring_interrupts():
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and command
                command("--fingerprint", *self._arguments),
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
            )
        self._give_up = time.monotonic() + PROBE_TIMEOUT

    def poll(self) -> Change | None:
        """Return the result once; None before and after."""
        if self._process is None:
            return None
        code = self._process.poll()
        late = time.monotonic() > self._give_up
        if code is None and not late:
            return None
        output, errors = (_content(file) for file in self._files or ())
        self.cancel()
        found = _FINGERPRINT.search(output)
        if code or found is None:
            reason = f"no answer in {PROBE_TIMEOUT:g} s" if late else " | ".join(errors.splitlines()[-LAST_LINES:])
            logger.error("The changed project cannot be loaded; keeping the old consumers: %s", reason)
            return Change.BROKEN
        return Change.NONE if found[1] == self._known else Change.OWN

    def cancel(self) -> None:
        """End a running comparison and discard its result."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait()
            self._process = None
        for file in self._files or ():
            file.close()
        self._files = None


def _content(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace").strip()


def execute_again() -> None:
    """Execute the same command line in this process, with the current code and settings.

    Raises:
        OSError: the interpreter no longer exists.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    # The full path, because an interpreter finds its virtual environment by the path it is called with.
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606
