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
from typing import Any

from django.apps import apps
from django.conf import settings
from django.utils import autoreload
from django.utils.autoreload import BaseReloader, StatReloader

from mq_django import __version__
from mq_django.conf import QueueConfig, get_config
from mq_django.consumers.supervisor.launcher import Launcher, Loading
from mq_django.core.logs import get_logger
from mq_django.discovery import UnimportedSources
from mq_django.registry import MODULES, handlers, largest_batch, start_of
from mq_django.stores.schedules import scheduled

logger = get_logger(__name__)

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class Change(enum.Enum):
    """A kind of change since a supervisor was started."""

    #: Nothing that the supervisor uses. New consumers load all other changes.
    NONE = "none"
    #: Its queues, topics, schedules or settings, or what it uses of their handlers.
    OWN = "own"
    #: The project cannot be loaded.
    BROKEN = "broken"


def _used_of_handlers(queues: Sequence[QueueConfig]) -> list[Any]:
    """Return what a supervisor uses of the handlers of these queues: to settle for dead processes, and to trim inboxes.

    Nothing of a plain handler, so that consumers are replaced one by one when one is added.
    """
    own = {None, *(queue.public_name for queue in queues)}
    used = [each for each in handlers() if each.queue in own and (each.retry or each.once or each.keeps_result)]
    used.sort(key=lambda each: (each.queue or "", each.name))
    return [(each.queue, each.name, each.retry, each.once, each.keeps_result) for each in used]


def fingerprint(queues: Sequence[QueueConfig]) -> str:
    """Return a hash of everything that a supervisor of these queues uses of settings and code."""
    config = get_config()
    parts: dict[str, Any] = {
        "version": __version__,
        "config": config,
        "queues": queues,
        "starts": [start_of(queue.name) for queue in queues],
        "schedules": scheduled(),
        "batch": largest_batch(),
        "handlers": _used_of_handlers(queues),
        "servers": [settings.CACHES.get(connection or config.connection) for connection in config.connections()],
        "time zone": settings.TIME_ZONE,
    }
    # pformat() sorts sets, whose order differs from process to process.
    return hashlib.sha256(_ADDRESS.sub("", pformat(parts)).encode()).hexdigest()


def show(queues: Sequence[QueueConfig]) -> str:
    """Return the line of output in which a Loading finds the fingerprint."""
    return f"mq_django fingerprint {fingerprint(queues)}"


class Probe:
    """Compares the project on disk with the one in memory, in a new interpreter and without blocking its caller."""

    def __init__(self, queues: Sequence[QueueConfig], launcher: Launcher) -> None:
        self._known = fingerprint(queues)
        self._launcher = launcher
        self._loading: Loading | None = None

    @property
    def is_running(self) -> bool:
        """Return whether a comparison runs."""
        return self._loading is not None

    def start(self) -> None:
        """Start a comparison. One that runs already is cancelled, because it may have loaded older code."""
        self.cancel()
        try:
            self._loading = self._launcher.load()
        except OSError as error:
            logger.error("Cannot check the changed project; keeping the old consumers: %s", error)  # noqa: TRY400

    def poll(self) -> Change | None:
        """Return the result once; None before and after. With Change.NONE, new consumers have the current code."""
        if self._loading is None or (found := self._loading.poll()) is None:
            return None
        self._loading = None
        if found.error:
            logger.error("The changed project cannot be loaded; keeping the old consumers: %s", found.error)
            return Change.BROKEN
        if found.fingerprint == self._known:
            self._launcher.use(found)
            return Change.NONE
        if found.template is not None:
            found.template.close()
        return Change.OWN

    def cancel(self) -> None:
        """End a running comparison and discard its result."""
        if self._loading is not None:
            self._loading.cancel()
        self._loading = None


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
