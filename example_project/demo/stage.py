"""Build the demo up, and take it down in the right order."""

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
    """
    empty(folder)
    with ExitStack() as stack:
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


def empty(folder: Path) -> None:
    """Remove what an earlier demo left: its ledger would ask for messages that its Redis had."""
    for leftover in ("shop.sqlite3", "shop.sqlite3-wal", "shop.sqlite3-shm"):
        (folder / leftover).unlink(missing_ok=True)
    for leftover in ("mails", "logs", "redis"):
        shutil.rmtree(folder / leftover, ignore_errors=True)
    for needed in ("mails", "logs", "redis"):
        (folder / needed).mkdir(parents=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The running demo."""

    site: str
    web: Child
    gateway: Child
    consumers: Child
    guard: Guard

    def check(self) -> None:
        """Raise ChildFailed if a process has ended by itself."""
        for child in (self.web, self.gateway, self.consumers):
            child.check()


@contextmanager
def running(place: Surroundings, closing: Closing) -> Iterator[Stage]:
    """Start gateway, site and consumers, and wait until they work; end them on leaving."""
    port = free_port(SITE_PORT)
    with ExitStack() as stack:

        def start(name: str, *arguments: str) -> Child:
            child = Child(name, arguments, folder=place.folder / "logs", env=place.env)
            stack.callback(child.stop)
            return child

        gateway = start("gateway", "-m", "example_project.gateway", "--port", str(place.gateway_port))
        web = start("web", MANAGE, "runserver", "--noreload", f"127.0.0.1:{port}")
        consumers = start("consumers", MANAGE, "runconsumer", "--processes", "2", "--threads", "8")
        guard = Guard([consumers, web, gateway])
        # Last in, first out: the guard goes before the children it guards.
        stack.callback(guard.dismiss)
        gateway.wait_until(lambda: answers(place.gateway_port), closing=closing)
        web.wait_until(lambda: answers(port), closing=closing)
        yield Stage(site=f"http://127.0.0.1:{port}", web=web, gateway=gateway, consumers=consumers, guard=guard)
