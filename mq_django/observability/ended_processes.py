"""The files of metrics that ended processes have left: one file of each kind has their totals."""

import os
import struct
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from mq_django.core.logs import get_logger
from mq_django.observability.allocated_files import ENTRY, HEAD
from mq_django.observability.prometheus_package import mmap_dict

logger = get_logger(__name__)

#: In the name of a file in the place of a process id.
ENDED = "ended"

#: A number, and for some gauges when it was set.
Value = tuple[float, float]


def merge_ended(folder: Path) -> None:
    """Add the files of ended processes to the totals, and delete them.

    Gauges that are for live processes only, or have a value for each process, are deleted with their process.

    Raises:
        OSError: the totals cannot be written. The files stay.
    """
    for kind, paths in _ended_files(folder).items():
        total = folder / f"{kind}_{ENDED}.db"
        if kind == "gauge_all" or kind.startswith("gauge_live"):
            values: Mapping[str, Value] = {}
        else:
            values = _merged(kind, [*([total] if total.exists() else []), *paths])
        if values:
            _write(total, values)
        for path in paths:
            path.unlink(missing_ok=True)


def _ended_files(folder: Path) -> Mapping[str, Sequence[Path]]:
    """Return the files of processes that have ended, by kind, such as `counter` or `gauge_max`."""
    found: dict[str, list[Path]] = defaultdict(list)
    for path in folder.glob("*.db"):
        kind, _, process = path.stem.rpartition("_")
        if process.isdecimal() and not _is_alive(int(process)):
            found[kind].append(path)
    return found


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # of another user
        return True
    return True


def _merged(kind: str, paths: Sequence[Path]) -> Mapping[str, Value]:
    merged: dict[str, Value] = {}
    for path in paths:
        for key, value in _read(path):
            merged[key] = _sum(kind, merged[key], value) if key in merged else value
    return merged


def _sum(kind: str, one: Value, other: Value) -> Value:
    if kind == "gauge_min":
        return min(one, other)
    if kind == "gauge_max":
        return max(one, other)
    if kind == "gauge_mostrecent":
        return max(one, other, key=lambda value: value[1])
    return one[0] + other[0], 0.0


def _read(path: Path) -> Sequence[tuple[str, Value]]:
    try:
        entries = mmap_dict.MmapedDict.read_all_values_from_file(str(path))
        return [(key, (value, timestamp)) for key, value, timestamp, _ in entries]
    except (ValueError, RuntimeError, struct.error) as error:
        logger.warning("A damaged file of metrics is ignored: %s: %s", path.name, error)
        return []


def _write(path: Path, values: Mapping[str, Value]) -> None:
    new = path.with_suffix(".new")
    try:
        # Allocated first, because the file is then mapped into memory: see allocated_files.
        new.write_bytes(bytes(HEAD + sum(len(key.encode()) + ENTRY for key in values)))
        file = mmap_dict.MmapedDict(str(new))
        try:
            for key, value in values.items():
                file.write_value(key, *value)
        finally:
            file.close()
        new.replace(path)
    except OSError:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise
