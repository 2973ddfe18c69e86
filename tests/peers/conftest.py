"""Peers in other languages, installed once into folders that git ignores."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from tests.conftest import MQSettings
from tests.peers.programs import HERE, Project


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Keep other runs of the tests from installing into the same folder."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def missing(reason: str) -> None:
    """Skip, but not where everything is meant to be there."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def node() -> str:
    """The program `node`, with the packages of `package.json` installed."""
    program = shutil.which("node")
    if program is None or shutil.which("npm") is None:
        missing("there is no node and npm on this machine")
    with one_at_a_time(HERE / ".node.lock"):
        wanted = json.loads((HERE / "package.json").read_text(encoding="utf-8"))["dependencies"]
        if not all((HERE / "node_modules" / name).exists() for name in wanted):
            command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--silent"]
            done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False, timeout=280)
            if done.returncode:
                missing(f"npm cannot install {', '.join(wanted)}: {done.stderr[-300:]}")
    return str(program)


@pytest.fixture(scope="session")
def pyrsmq() -> str:
    """A Python with PyRSMQ, in an environment of its own: the package brings a top-level `tests`."""
    folder = HERE / ".venv-pyrsmq"
    python = folder / "bin" / "python"
    with one_at_a_time(HERE / ".pyrsmq.lock"):
        if not (folder / "ready").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True, timeout=280)
            command = [str(python), "-m", "pip", "install", "--quiet", "PyRSMQ==0.6.1"]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
            if done.returncode:
                missing(f"pip cannot install PyRSMQ: {done.stderr[-300:]}")
            (folder / "ready").touch()
    return str(python)


@pytest.fixture
def project(mq_settings: MQSettings, redis_client: redis.Redis) -> Iterator[Callable[..., Project]]:
    """Make a project with some MQ_DJANGO; its processes end with the test."""
    made: list[Project] = []

    def make(**overrides: object) -> Project:
        made.append(Project(mq_settings(**overrides), redis_client))
        return made[-1]

    yield make
    for each in made:
        each.stop()
