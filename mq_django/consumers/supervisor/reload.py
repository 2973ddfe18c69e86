"""Handle SIGHUP: find out whether code or settings have changed, and restart if needed."""

import enum
import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from pprint import pformat
from typing import IO, Any

from django.apps import apps
from django.conf import settings
from django.utils import autoreload
from django.utils.autoreload import BaseReloader, StatReloader

from mq_django.conf import QueueConfig, get_config
from mq_django.consumers.shared_state import new_file
from mq_django.consumers.supervisor.workers import command, environment, ignoring_interrupts
from mq_django.core.logs import get_logger
from mq_django.core.version import VERSION
from mq_django.discovery import UnimportedSources
from mq_django.registry import MODULES, largest_batch, start_of
from mq_django.stores.schedules import scheduled

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


# Django's reloader, extended for new modules and for projects that cannot be loaded for a while.


#: Exit codes of the reloader's process: the code has changed; the command failed.
CHANGED, FAILED = 3, 1
#: Seconds between two checks of the files of a project that cannot be loaded.
CHECK_EVERY = 0.5


def run_with_reloader(main: Callable[..., None], *args: Any) -> None:
    """Run a function, and run it again in a new process when code changes.

    Django's own reloader ends every command except `runserver` when a change cannot be loaded.
    """
    if os.environ.get(autoreload.DJANGO_AUTORELOAD_ENV) == "true":
        autoreload.autoreload_started.connect(watch_new_modules)
        autoreload.run_with_reloader(main, *args)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with suppress(KeyboardInterrupt):
        sys.exit(_restart_on_changes())


def _restart_on_changes() -> int:
    """Run this command line in a process, again after each change, and return its exit code when it ends."""
    environment = {**os.environ, autoreload.DJANGO_AUTORELOAD_ENV: "true"}
    while True:
        began = time.time()
        command = autoreload.get_child_arguments()
        code = subprocess.run(command, env=environment, close_fds=False, check=False).returncode  # noqa: S603
        if code == FAILED:
            logger.error("The changed project cannot be loaded; waiting for the next change")
            _wait_for_change(began)
        elif code != CHANGED:
            return code


def watch_new_modules(sender: BaseReloader, **_: Any) -> None:
    """Make Django's reloader watch modules that apps may get later. It watches only imported ones by itself.

    A receiver of `django.utils.autoreload.autoreload_started`.
    """
    missing = list(_missing())
    for path in missing:
        sender.watch_dir(path.parent, path.name)
    if isinstance(sender, StatReloader):
        # It ignores a file that it sees for the first time, so that missing files are listed from the start.
        files = partial(_with_missing, sender.snapshot_files, missing, UnimportedSources())
        sender.snapshot_files = files  # type: ignore[method-assign]


def _missing() -> Iterator[Path]:
    for app in apps.get_app_configs():
        for name in MODULES:
            # A module that exists but was not imported counts as missing: it may have just been written.
            if f"{app.name}.{name}" not in sys.modules:
                for folder in getattr(app.module, "__path__", ()):
                    yield Path(folder, f"{name}.py")
                    yield Path(folder, name, "__init__.py")


def _with_missing(
    snapshot: Callable[[], Iterator[tuple[Path, float]]], missing: Sequence[Path], unimported: UnimportedSources
) -> Iterator[tuple[Path, float]]:
    for path in missing:
        yield path, 0.0
    yield from unimported.changes()
    yield from snapshot()


def _wait_for_change(since: float) -> None:
    """Wait until an imported file, or a file of an app, is created, deleted, or written after this time."""
    files = StatReloader()
    for app in apps.get_app_configs():
        files.watch_dir(app.path, "**/*.py")
    first = dict(files.snapshot_files())
    found = first
    while found.keys() == first.keys() and max(found.values()) < since:
        time.sleep(CHECK_EVERY)
        found = dict(files.snapshot_files())
