"""What a server stands on, and what consumers run in: clocks, disks, memory, users."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from mq_django.errors import NoServer
from mq_django.transport.private_server import ServerBinary, bundled_server, find_server

#: Where Debian and others put libfaketime.
FAKETIME = ("/usr/lib/x86_64-linux-gnu/faketime", "/usr/lib/aarch64-linux-gnu/faketime", "/usr/lib64/faketime")
#: Bytes of the small disk.
DISK = 64 * 2**20
#: Runs a command with a /proc that hides the processes of other users.
HIDDEN = (
    *("unshare", "--mount", "sh", "-c", 'mount -t proc -o hidepid=2 proc /proc && exec "$@"', "sh"),
    *("setpriv", "--clear-groups", "--inh-caps=-all,+dac_override", "--ambient-caps=-all,+dac_override"),
)


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
    #: The temporary folder of consumers, a small disk.
    temporary: Path | None = None
    #: The server has a replica, and a Sentinel names the master.
    sentinel: bool = False
    #: What the commands of trees are wrapped in, one tree after another.
    wraps: Sequence[Sequence[str]] = ((),)


@contextmanager
def plain(_: ServerBinary) -> Iterator[Surroundings]:
    """Nothing special."""
    yield Surroundings()


def turned_on(setting: str) -> Callable[[ServerBinary], AbstractContextManager[Surroundings]]:
    """Return what turns on one of the settings of consumers that are in their environment."""

    @contextmanager
    def found(_: ServerBinary) -> Iterator[Surroundings]:
        with mock.patch.dict(os.environ, {setting: "1"}):
            yield Surroundings()

    return found


@contextmanager
def stepping_clock(binary: ServerBinary) -> Iterator[Surroundings]:
    """A server whose wall clock is the machine's plus an offset."""
    library = next((path for folder in FAKETIME if (path := Path(folder) / "libfaketime.so.1").exists()), None)
    if library is None:
        raise Unavailable("libfaketime is not installed")
    told = subprocess.run(
        [str(binary.path), "--version"], capture_output=True, text=True, check=True, timeout=280
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
    with _mounted() as folder:
        # With "always" Redis ends when it cannot write; with this it refuses everything until it can.
        yield Surroundings(directory=folder, disk=folder, settings={"appendfsync": "everysec"})


@contextmanager
def small_temporary_folder(_: ServerBinary) -> Iterator[Surroundings]:
    """A temporary folder of 64 MB for the consumers alone."""
    with _mounted() as folder:
        yield Surroundings(temporary=folder)


@contextmanager
def hidden_processes(_: ServerBinary) -> Iterator[Surroundings]:
    """Trees of two users whose /proc shows none but their own processes, as with ProtectProc=invisible of systemd."""
    # They may still read the project, and write its history.
    wraps = [(*HIDDEN, f"--reuid={user}", f"--regid={user}") for user in (65534, 65533)]
    see = [*wraps[0], "test", "!", "-e", f"/proc/{os.getpid()}"]
    if os.geteuid() != 0 or not shutil.which("setpriv") or subprocess.run(see, check=False).returncode:
        raise Unavailable("to hide processes takes root, unshare, setpriv and Linux 5.8")
    yield Surroundings(wraps=wraps)


@contextmanager
def _mounted() -> Iterator[Path]:
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
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)
        folder.rmdir()


def servers() -> list[Path]:
    """Return the server programs of this machine: the one of the installed package, and the one on PATH."""
    found = [bundled_server()]
    with suppress(NoServer):
        found.append(find_server())
    return list(dict.fromkeys(server.path for server in found if server))
