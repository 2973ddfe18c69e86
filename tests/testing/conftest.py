"""Handlers of a test alone; and a small project that is copied, and whose own tests run as those of a project do."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from mq_django import registry
from mq_django.conf import get_config
from mq_django.stores import open_store
from mq_django.stores.base import Depths
from mq_django.transport.connections import open_transport
from mq_django.transport.private_server import PrivateServer
from tests.shell import shell_environment

collect_ignore = ["project"]

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def configured() -> Iterator[PrivateServer]:
    """The server that the project's settings name."""
    with PrivateServer() as server:
        yield server


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The folder of the project."""
    return Path(shutil.copytree(Path(__file__).parent / "project", tmp_path / "project"))


@pytest.fixture
def environment(configured: PrivateServer) -> dict[str, str]:
    """The environment variables of its tests: those of a shell, not of the tests that run here."""
    return shell_environment(CONFIGURED_REDIS=configured.url, DJANGO_SETTINGS_MODULE="settings")


@pytest.fixture
def run(project: Path, environment: dict[str, str]) -> Run:
    """Run a Python program in the project's folder."""

    def run(*arguments: str, code: int | None = 0, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *arguments]
        done = subprocess.run(
            command, cwd=project, env=environment | more, capture_output=True, text=True, timeout=280, check=False
        )
        assert code is None or done.returncode == code, f"{done.stdout}\n{done.stderr}"
        return done

    return run


@pytest.fixture
def configured_keys(configured: PrivateServer) -> Iterator[Callable[[], list[bytes]]]:
    """Return the keys of the configured server."""
    with redis.Redis.from_url(configured.url) as client:
        yield lambda: list(client.scan_iter())


@pytest.fixture
def only_functions(handlers, monkeypatch) -> None:
    """Without the tasks of other apps, of which some are coroutine functions."""
    monkeypatch.setattr(registry, "_handlers", {})


@pytest.fixture
def depths(mq_settings) -> Callable[[str], Depths]:
    """Return a function that counts the messages of a queue by place."""
    return lambda queue: open_store(get_config().queue(queue), open_transport("inspect", "")).depths()
