"""A folder of a supervisor for temporary files. The next supervisor removes the folder of one that was killed."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

#: Not on Windows, where this module is imported but not used.
_fcntl: Any = import_module("fcntl") if find_spec("fcntl") else None


@contextmanager
def private_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Create a folder that only this user can read, and remove it at the end.

    Args:
        prefix: the begin of its name.
        parent: the folder in which it is created; None: that of the system for temporary files.

    Raises:
        OSError: it cannot be created: no space, or no rights.
    """
    parent = parent or Path(tempfile.gettempdir())
    parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(prefix, parent)
    # Its name begins otherwise until it is locked: an unlocked one is abandoned.
    new = Path(tempfile.mkdtemp(prefix=f"new-{prefix}", dir=parent))
    folder = new
    try:
        # The lock ends with the process, however that ends. systemd-tmpfiles leaves locked folders alone, too.
        lock = os.open(new, os.O_RDONLY)
        try:
            _fcntl.flock(lock, _fcntl.LOCK_EX)
            folder = new.rename(parent / new.name.removeprefix("new-"))
            yield folder
        finally:
            os.close(lock)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned(prefix: str, parent: Path) -> None:
    """Remove the folders whose supervisors have ended. Their consumers may still finish, and need no files."""
    for folder in parent.glob(f"{prefix}*"):
        # Another user's cannot be opened, or not be removed.
        with suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0))
            try:
                if os.fstat(lock).st_uid == os.getuid():
                    _fcntl.flock(lock, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
