"""Reload when an app gets its first `handlers.py`, `tasks.py` or `triggers.py`."""

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from django.apps import apps
from django.utils.autoreload import BaseReloader, StatReloader

from mq_django.registry import MODULES


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
