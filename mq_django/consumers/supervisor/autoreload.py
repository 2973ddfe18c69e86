"""Django's reloader, for a project that gets new modules and is broken in between."""

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
from mq_django.registry import MODULES

logger = get_logger(__name__)

#: Exit codes of the process that the reloader runs: code has changed; the command failed.
CHANGED, FAILED = 3, 1
#: Seconds between two looks at the files of a project that cannot be loaded.
LOOK = 0.5


def run_with_reloader(main: Callable[..., None], *args: Any) -> None:
    """Run a function, and run it again in a new process whenever code changes.

    Like Django's, which ends every command but `runserver` when a change cannot be loaded.
    """
    if os.environ.get(autoreload.DJANGO_AUTORELOAD_ENV) == "true":
        autoreload.autoreload_started.connect(watch_new_modules)
        autoreload.run_with_reloader(main, *args)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with suppress(KeyboardInterrupt):
        sys.exit(_restart_on_changes())


def _restart_on_changes() -> int:
    """Run this command line in a process, again and again; return the exit code when it ends by itself."""
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
    """Let Django's reloader watch the modules that apps do not have yet: it knows those that were imported.

    A receiver of `django.utils.autoreload.autoreload_started`.
    """
    missing = list(_missing())
    for path in missing:
        sender.watch_dir(path.parent, path.name)
    if isinstance(sender, StatReloader):
        # It takes a file that it sees for the first time for one that was always there.
        sender.snapshot_files = partial(_with_missing, sender.snapshot_files, missing)  # type: ignore[method-assign]


def _missing() -> Iterator[Path]:
    for app in apps.get_app_configs():
        for name in MODULES:
            # Not imported, and not only absent: it may have been written in this moment.
            if f"{app.name}.{name}" not in sys.modules:
                for folder in getattr(app.module, "__path__", ()):
                    yield Path(folder, f"{name}.py")
                    yield Path(folder, name, "__init__.py")


def _with_missing(
    snapshot: Callable[[], Iterator[tuple[Path, float]]], missing: Sequence[Path]
) -> Iterator[tuple[Path, float]]:
    for path in missing:
        yield path, 0.0
    yield from snapshot()


def _wait_for_change(since: float) -> None:
    """Wait until a file was written since a time, or has gone: of what was imported here, and of all that apps have."""
    files = StatReloader()
    for app in apps.get_app_configs():
        files.watch_dir(app.path, "**/*.py")
    first = dict(files.snapshot_files())
    found = first
    while found.keys() == first.keys() and max(found.values()) < since:
        time.sleep(LOOK)
        found = dict(files.snapshot_files())
