"""`runconsumer` and `mq outbox --relay` as processes: they publish rows, and the first one handles their messages."""

import json
import os
import subprocess
import sys

import pytest
from django.conf import settings
from django.db import connections, transaction

from mq_django import queues
from tests.consumers.trees import ROOT, History, Tree, end
from tests.outbox.relays import ready, rows
from tests.waiting import wait_until


@pytest.fixture
def start(tmp_path, sqlite, mq_settings, monkeypatch):
    """Start trees on the database of the test; they all end with it."""
    mq_settings(QUEUES={"default": {"OUTBOX": True}})
    monkeypatch.setenv("MQ_TEST_DATABASE", str(connections[sqlite].settings_dict["NAME"]))
    # They use the test's database in the place of one for tests.
    monkeypatch.setenv("MQ_DJANGO_TESTING", "0")
    started = []

    def run(*arguments):
        started.append(Tree(settings.MQ_DJANGO, tmp_path / "history", tmp_path / f"log{len(started)}", *arguments))
        return started[-1]

    yield run
    end(started)


@pytest.fixture
def history(tmp_path):
    return History(tmp_path / "history")


def publish(alias):
    with transaction.atomic(using=alias):
        return queues["default"].publish("act", {"do": []}, using=alias)


def test_a_row_is_published_and_handled(start, history, sqlite):
    start().wait_until_ready()
    message_id = publish(sqlite)
    history.wait_for("effect")
    assert history.counts() == {message_id: 1}
    wait_until(lambda: not rows(sqlite).exists())


def test_without_its_relay_runconsumer_leaves_rows_to_mq_relay(start, history, sqlite, redis_client, tmp_path):
    start("--no-relay")
    message_id = publish(sqlite)
    direct = queues["default"].publish("act", {"do": []}, outbox=False)
    history.wait_for("effect")
    wait_until(lambda: ready(redis_client, "default") == [])
    assert history.counts() == {direct: 1}
    assert rows(sqlite).get().message_id == message_id

    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.consumers.project.settings",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "MQ_TEST_CONFIG": json.dumps(settings.MQ_DJANGO),
        "MQ_TEST_CACHES": json.dumps(settings.CACHES),
        "MQ_TEST_HISTORY": str(tmp_path / "history"),
    }
    process = subprocess.Popen([sys.executable, "-m", "django", "mq", "outbox", "--relay"], env=environment)
    try:
        wait_until(lambda: history.counts() == {direct: 1, message_id: 1})
        process.terminate()
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
