"""What is measured of a project whose transactions publish."""

import json
import os
import subprocess
import sys

import pytest

from benchmarks.contenders import AT_COMMIT
from benchmarks.trees import ROOT
from mq_django.transport.private_server import PrivateServer
from tests.databases.database_servers import KINDS


@pytest.fixture
def database():
    with KINDS["sqlite"]() as options:
        yield options


@pytest.fixture
def server():
    """A Redis of its own: the names of the queues are those of all benchmarks."""
    with PrivateServer() as server:
        yield server


@pytest.fixture
def write(database, server):
    """Run the program that writes, as ours."""

    def write(contender, verb, count):
        command = [sys.executable, "-m", "benchmarks.in_django.writer", contender.module, verb, str(count)]
        own = {"BENCH_DATABASE": json.dumps(database), "BENCH_REDIS_URL": server.url, **contender.variables}
        env = {**os.environ, "DJANGO_SETTINGS_MODULE": "benchmarks.ours.settings", **own}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=True)
        return json.loads(done.stdout)

    return write


def test_each_transaction_has_its_moment_and_its_time(write):
    committed = write(AT_COMMIT, "pace", 2)
    assert committed == sorted(committed)
    assert len(committed) == 2
    assert all(ms > 0 for ms in write(AT_COMMIT, "costs", 3))
