"""Load changed code and settings on SIGHUP: find out what changed, and execute the command line again if need be."""

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
from mq_django.registry import start_of
from mq_django.stores.schedule_state import scheduled

logger = get_logger(__name__)

#: Seconds that a new interpreter may take to load the project.
PROBE_TIMEOUT = 60.0
#: Lines of an error that are worth logging.
LAST_LINES = 5
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_FINGERPRINT = re.compile(r"^mq_django fingerprint ([0-9a-f]{64})$", re.MULTILINE)


class Change(enum.Enum):
    """What differs from what a supervisor was started with."""

    #: Nothing that concerns it: new consumers load what else is new.
    NONE = "none"
    #: Its queues, topics, schedules or settings.
    OWN = "own"
    #: The project cannot be loaded.
    BROKEN = "broken"


def fingerprint(queues: Sequence[QueueConfig]) -> str:
    """Return a hash of everything that a supervisor of these queues takes from settings and code."""
    config = get_config()
    parts: dict[str, Any] = {
        "version": VERSION,
        "config": config,
        "queues": queues,
        "starts": [start_of(queue.name) for queue in queues],
        "schedules": scheduled(),
        "server": settings.CACHES.get(config.connection),
        "time zone": settings.TIME_ZONE,
    }
    # pformat() sorts sets, whose order differs from process to process.
    return hashlib.sha256(_ADDRESS.sub("", pformat(parts)).encode()).hexdigest()


def show(queues: Sequence[QueueConfig]) -> str:
    """Return the line by which a Probe knows the fingerprint."""
    return f"mq_django fingerprint {fingerprint(queues)}"


class Probe:
    """Compares the project on disk with the one in memory, in a new interpreter, while its caller goes on."""

    def __init__(self, queues: Sequence[QueueConfig], arguments: Sequence[str]) -> None:
        """`arguments` are those of the command line that choose the queues."""
        self._known = fingerprint(queues)
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._files: tuple[IO[bytes], IO[bytes]] | None = None
        self._give_up = 0.0

    def start(self) -> None:
        """Start to compare; start anew when a comparison runs, whose code may be out of date."""
        self.cancel()
        try:
            self._start()
        except OSError as error:
            self.cancel()
            logger.error("Cannot examine the changed project; keeping the old consumers: %s", error)  # noqa: TRY400

    def _start(self) -> None:
        # Files and not pipes: nobody reads while the process runs.
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
        """Return the result, once; None while there is none."""
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
        """Forget a comparison that runs."""
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
    """Replace this program by itself as it was called: with new code and settings, in the same process.

    Raises:
        OSError: the interpreter has gone.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    # By its full path, because an interpreter finds its virtual environment by the name it is called by.
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606
