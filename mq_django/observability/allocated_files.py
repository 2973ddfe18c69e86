"""Files of metrics that cannot end their process.

prometheus_client writes metrics to files that are mapped into memory and not allocated. When the disk is full, such a
write ends the process with SIGBUS. Here files are allocated before they are mapped. If that fails, the process goes on
with memory of its own, so that its handlers do not notice it, and its metrics are served as they were at that time.
"""

import mmap
import os
import struct
import threading
from pathlib import Path
from typing import Any

from mq_django.core.logs import get_logger
from mq_django.observability.prometheus_package import mmap_dict, values

logger = get_logger(__name__)

#: Bytes of a new file. It doubles when it is full.
NEW = 1 << 16
#: Bytes before the first entry.
HEAD = 8
#: The most bytes of an entry, beside its key.
ENTRY = 32

FULL = "The metrics of process %d are served without its later changes: %s"


def use_allocated_files() -> None:
    """Let prometheus_client use these files. Called before metrics are defined."""
    values.MmapedDict = AllocatedDict  # type: ignore[attr-defined]


class AllocatedDict(mmap_dict.MmapedDict):
    """The values of a process in a file that is allocated, or else in memory."""

    #: The open file; None: the values are in memory.
    _f: Any

    def __init__(self, filename: str, read_mode: bool = False) -> None:
        try:
            _create(Path(filename))
            super().__init__(filename, read_mode)  # type: ignore[no-untyped-call]
        except (OSError, ValueError, RuntimeError, struct.error) as error:
            if file := getattr(self, "_f", None):
                file.close()
            self._f, self._fname, self._positions, self._used = None, filename, {}, HEAD
            self._capacity, self._m = NEW, mmap.mmap(-1, NEW)
            _log(error)

    def _init_value(self, key: str) -> None:
        needed = self._used + len(key.encode()) + ENTRY
        if needed > self._capacity:
            self._grow(needed)
        super()._init_value(key)  # type: ignore[no-untyped-call]

    def _grow(self, needed: int) -> None:
        capacity = self._capacity
        while capacity < needed:
            capacity *= 2
        try:
            if self._f is not None:
                _write_zeros(self._f.fileno(), capacity - self._capacity)
                self._m = mmap.mmap(self._f.fileno(), capacity)
        except OSError as error:
            self._f.close()
            self._f = None
            _log(error)
        if self._f is None:
            content = self._m[: self._used]
            self._m = mmap.mmap(-1, capacity)
            self._m[: self._used] = content
        self._capacity = capacity


def _create(path: Path) -> None:
    """Create a file of zeros. Under another name first, because readers do not expect an empty file."""
    if path.exists():
        return
    new = path.with_suffix(".new")
    try:
        with new.open("wb") as file:
            _write_zeros(file.fileno(), NEW)
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def _write_zeros(file: int, size: int) -> None:
    """Append zeros, which allocates them on all systems."""
    zeros = memoryview(bytes(size))
    while zeros:
        zeros = zeros[os.write(file, zeros) :]


def _log(error: Exception) -> None:
    # In another thread, because prometheus_client holds its lock, and a project may count its log lines in a metric.
    threading.Thread(target=logger.error, args=(FULL, os.getpid(), error), daemon=True).start()
