"""What is measured of a project whose transactions publish."""

import json
import os
import subprocess
import sys

import pytest

from benchmarks import transactions
from benchmarks.contenders import AT_COMMIT, BY_OUTBOX
from benchmarks.trees import ROOT
from benchmarks.trial import Note
from mq_django.models import OutboxMessage
from mq_django.transport.private_server import PrivateServer
from tests.databases.database_servers import KINDS
from tests.databases.fixtures import known


def notes(count, *, each):
    return [Note(number, 0.0, 0.0, number * each, 1) for number in range(count)]


def test_the_rate_is_that_after_the_first_fifth():
    first, rest = notes(20, each=10.0), [Note(n, 0.0, 0.0, 200.0 + (n - 20) * 0.5, 1) for n in range(20, 100)]
    assert transactions.rate_of(first + rest) == pytest.approx(2.0)


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


def test_a_backlog_is_published_by_the_outbox(write, database, django_db_blocker):
    write(BY_OUTBOX, "fill", 250)
    with django_db_blocker.unblock(), known("bench", database):
        assert OutboxMessage.objects.using("bench").count() == 250


def test_each_transaction_has_its_moment_and_its_time(write):
    committed = write(AT_COMMIT, "pace", 2)
    assert committed == sorted(committed)
    assert len(committed) == 2
    assert all(ms > 0 for ms in write(AT_COMMIT, "costs", 3))
