"""Django's reloader, extended for new modules and for projects that cannot be loaded for a while."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from django.apps import apps
from django.utils import autoreload
from django.utils.autoreload import BaseReloader, StatReloader

from mq_django.core.logs import get_logger
from mq_django.discovery import UnimportedSources
from mq_django.registry import MODULES

logger = get_logger(__name__)

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
