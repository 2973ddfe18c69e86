"""Where the demo lives: a folder of its own, a Redis, and the environment that tells its processes of both."""

import fcntl
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from example_project.demo.children import address, listen
from mq_django.transport.private_server import PrivateServer, configured_url, find_server

#: Seconds between two reports, and between two newsletters.
OFTEN_SECONDS = 5
#: How long a line of a price list takes: an import takes long enough to look at it.
PRICE_LINE_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The folder, the addresses and the Redis of a demo."""

    folder: Path
    #: For the children: it names the folder, the Redis, the gateway.
    env: dict[str, str]
    redis: str
    #: The demo's own Redis. None: MQ_REDIS_URL names one, which goes on after the demo: the demo deletes its keys.
    server: PrivateServer | None
    #: Where the gateway will answer.
    gateway: socket.socket


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
        server = None
        if url is None:
            binary = find_server()
            # Each command is on the disk before its reply is sent: what Redis has accepted survives the outage.
            durable = PrivateServer(
                binary=binary, directory=folder / "redis", append_only=True, settings={"appendfsync": "always"}
            )
            server = stack.enter_context(durable)
            url, redis = server.url, f"a private one ({binary.path}), gone with the demo"
        else:
            redis = f"MQ_REDIS_URL, under {namespace}:*"
        gateway = stack.enter_context(listen())
        names = {
            "DJANGO_SETTINGS_MODULE": "example_project.settings",
            "EXAMPLE_PROJECT_DIR": str(folder),
            "EXAMPLE_PROJECT_NAMESPACE": namespace,
            "EXAMPLE_PROJECT_GATEWAY_URL": address(gateway),
            "EXAMPLE_PROJECT_REMINDER_SECONDS": str(reminder_seconds),
            "EXAMPLE_PROJECT_OFTEN_SECONDS": str(OFTEN_SECONDS),
            "EXAMPLE_PROJECT_PRICE_LINE_SECONDS": str(PRICE_LINE_SECONDS),
            "MQ_REDIS_URL": url,
        }
        os.environ.update(names)
        yield Surroundings(folder=folder, env=dict(os.environ), redis=redis, server=server, gateway=gateway)


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
