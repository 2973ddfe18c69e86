"""Real processes that are killed and frozen: no effect is lost, and none happens twice."""

import json
import os
import signal
import time
from contextlib import suppress

import pytest

from mq_django import queues
from mq_django.conf import get_config
from mq_django.stores import open_store
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests.consumers.conftest import history, trees  # noqa: F401 - fixtures
from tests.inbox.conftest import on_each_database
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

FEW_ATTEMPTS = {"QUEUES": {"default": {"MAX_ATTEMPTS": 1}}}


@pytest.fixture
def start(trees, using, databases, kind, monkeypatch):  # noqa: F811 - a fixture
    """Start a tree whose handlers use the database."""
    monkeypatch.setenv("MQ_TEST_INBOX", json.dumps(databases.options(kind)))
    settings = "DJANGO_SETTINGS_MODULE=tests.inbox.project.settings"
    return lambda *arguments, **options: trees(*arguments, wrap=["env", settings], **options)


@pytest.fixture
def store(mq_settings):
    return open_store(get_config().queue("default"), Pooled(get_client("produce")))


def is_empty(store):
    depths = store.depths()
    return not (depths.depth or depths.pending)


def dead(store):
    return store.depths().dead


@on_each_database
def test_a_process_that_dies_after_its_commit(start, mq_settings, effects, rows):
    """The only attempt is used up each time, and the message is not buried."""
    mq_settings(**FEW_ATTEMPTS)
    store = open_store(get_config().queue("default"), Pooled(get_client("produce")))
    ids = [f"m{number}" for number in range(4)]
    for message_id in ids:
        queues["default"].publish("die", None, message_id=message_id)
    start("--threads", "1", **FEW_ATTEMPTS)
    wait_until(lambda: effects.all() == ids and is_empty(store), timeout=40)
    assert dead(store) == 0
    assert [row.message_id for row in rows()] == ids


@on_each_database
def test_a_process_that_dies_before_its_commit(start, mq_settings, effects, rows):
    """Its message kills each process that runs it, so it is buried when a look has found that it has no effect."""
    mq_settings(**FEW_ATTEMPTS)
    store = open_store(get_config().queue("default"), Pooled(get_client("produce")))
    queues["default"].publish("die in it", None, message_id="bad")
    start("--threads", "1", **FEW_ATTEMPTS)
    wait_until(lambda: dead(store) == 1 and is_empty(store), timeout=40)
    assert (effects.all(), rows()) == ([], [])


@on_each_database
def test_consumers_that_are_killed_again_and_again(start, effects, store):
    ids = sorted(f"m{number:03}" for number in range(200))
    for message_id in ids:
        queues["default"].publish("add", 0.01, message_id=message_id)
    tree = start("--processes", "2", "--threads", "2")
    wait_until(lambda: len(effects.all()) > 5, timeout=40)
    for _ in range(5):
        for pid in tree.children():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        before = len(effects.all())
        wait_until(lambda before=before: len(effects.all()) > before or is_empty(store), timeout=40)
    wait_until(lambda: is_empty(store), timeout=60)
    assert effects.all() == ids
    assert dead(store) == 0


@on_each_database
def test_a_holder_that_is_frozen(start, effects, store, tmp_path):
    """Another tree takes its message, and whoever commits first decides."""
    options = {"QUEUES": {"default": {"VISIBILITY_TIMEOUT": 2}}}
    queues["default"].publish("wait", str(tmp_path), message_id="m")
    first = start("--threads", "1", **options)
    wait_until(lambda: list(tmp_path.glob("begun-*")), timeout=40)
    frozen = [first.pid, *first.children()]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        second = start("--threads", "1", **options)
        wait_until(
            lambda: "another delivery of it runs" in second.log.read_text() or len(list(tmp_path.glob("begun-*"))) > 1,
            timeout=40,
        )
        (tmp_path / "go").touch()
        # Where the row is at the end, the second tree does not wait for the first one.
        ends = time.monotonic() + 1.0
        while time.monotonic() < ends and not effects.all():
            time.sleep(0.02)
    finally:
        for pid in frozen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    wait_until(lambda: effects.all() and is_empty(store), timeout=40)
    first.stop()
    assert effects.all() == ["m"]
    assert dead(store) == 0
