"""Build the demo up, and take it down in the right order."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from example_project.demo.children import Child, Guard, answers, free_port
from example_project.demo.closing import Closing
from mq_django.transport.servers import PrivateServer, configured_url, find_server

MANAGE = str(Path(__file__).resolve().parent.parent / "manage.py")
SITE_PORT = 8000
#: Seconds that handlers get to finish; less than a child is given to stop.
GRACE_SECONDS = 10
#: Consumers that end before this many seconds have something that a new start does not mend.
YOUNG = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Where the demo lives."""

    folder: Path
    #: For the children: it names the folder, the Redis, the gateway.
    env: dict[str, str]
    redis: str
    #: The Redis goes on after the demo, so the demo takes its keys along.
    is_shared: bool
    gateway_port: int


@contextmanager
def surroundings(folder: Path, *, namespace: str, reminder_seconds: float) -> Iterator[Surroundings]:
    """Empty the folder, find or start a Redis, and name all in the environment.

    Raises:
        NoServer: there is no Redis to be had; its text says how to install one.
        Occupied: another demo uses the folder.
    """
    with ExitStack() as stack:
        stack.enter_context(occupied(folder))
        empty(folder)
        url = configured_url()
        is_shared = url is not None
        if url is None:
            binary = find_server()
            server = stack.enter_context(PrivateServer(binary=binary, directory=folder / "redis"))
            url, redis = server.url, f"a private one ({binary.path}), gone with the demo"
        else:
            redis = f"MQ_REDIS_URL, under {namespace}:*"
        gateway_port = free_port()
        names = {
            "DJANGO_SETTINGS_MODULE": "example_project.settings",
            "EXAMPLE_PROJECT_DIR": str(folder),
            "EXAMPLE_PROJECT_NAMESPACE": namespace,
            "EXAMPLE_PROJECT_GATEWAY_URL": f"http://127.0.0.1:{gateway_port}",
            "EXAMPLE_PROJECT_REMINDER_SECONDS": str(reminder_seconds),
            "MQ_REDIS_URL": url,
        }
        os.environ.update(names)
        yield Surroundings(
            folder=folder,
            env=dict(os.environ),
            redis=redis,
            is_shared=is_shared,
            gateway_port=gateway_port,
        )


class Occupied(Exception):
    """Another demo runs in the folder."""


@contextmanager
def occupied(folder: Path) -> Iterator[None]:
    """Keep other demos out of the folder, which each empties first."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            # Let go of by the system however this process ends.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Occupied(f"Another demo runs in {folder}: end it, or name another with --folder.") from None
        yield


def empty(folder: Path) -> None:
    """Remove what an earlier demo left: its ledger would ask for messages that its Redis had."""
    for leftover in ("shop.sqlite3", "shop.sqlite3-wal", "shop.sqlite3-shm"):
        (folder / leftover).unlink(missing_ok=True)
    for leftover in ("mails", "logs", "redis"):
        shutil.rmtree(folder / leftover, ignore_errors=True)
    for needed in ("mails", "logs", "redis"):
        (folder / needed).mkdir(parents=True)


class Stage:
    """The running demo: site, gateway and consumers."""

    def __init__(self, place: Surroundings) -> None:
        """Start nothing yet."""
        self._place = place
        self._port = free_port(SITE_PORT)
        self._running: dict[str, Child] = {}
        self._guard: Guard | None = None

    @property
    def site(self) -> str:
        """Return the address of the shop."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def consumers(self) -> Child:
        """Return the supervisor of the consumers."""
        return self._running["consumers"]

    def open(self, closing: Closing) -> None:
        """Start all and wait until it works.

        Raises:
            ChildFailed: a process did not come up.
            Closed: somebody asked to end meanwhile.
        """
        gateway_port = self._place.gateway_port
        gateway = self._start("gateway", "-m", "example_project.gateway", "--port", str(gateway_port))
        web = self._start("web", MANAGE, "runserver", "--noreload", f"127.0.0.1:{self._port}")
        self._start_consumers()
        gateway.wait_until(lambda: answers(gateway_port), closing=closing)
        web.wait_until(lambda: answers(self._port), closing=closing)

    def tend(self) -> None:
        """Start the consumers again if they died, as whoever runs a shop would have it.

        Raises:
            ChildFailed: another process has ended, or the consumers as soon as they had begun.
        """
        self._running["web"].check()
        self._running["gateway"].check()
        if self.consumers.age > YOUNG and self.consumers.process.poll() is not None:
            self._start_consumers()
        self.consumers.check()

    def close(self) -> None:
        """End all, and first of all what needs the others to finish."""
        if self._guard is not None:
            self._guard.dismiss()
        for name in ("consumers", "web", "gateway"):
            if name in self._running:
                self._running[name].stop()

    def _start_consumers(self) -> None:
        options = ("--processes", "2", "--threads", "8", "--grace", str(GRACE_SECONDS))
        self._start("consumers", MANAGE, "runconsumer", *options)
        if self._guard is not None:
            self._guard.dismiss()
        self._guard = Guard(list(self._running.values()))

    def _start(self, name: str, *arguments: str) -> Child:
        child = Child(name, arguments, folder=self._place.folder / "logs", env=self._place.env)
        self._running[name] = child
        return child


@contextmanager
def running(place: Surroundings, closing: Closing) -> Iterator[Stage]:
    """Start gateway, site and consumers, and wait until they work; end them on leaving."""
    stage = Stage(place)
    try:
        stage.open(closing)
        yield stage
    finally:
        stage.close()
