"""Limits in real processes: permits of consumers that are killed come back, and waiting costs nothing."""

import pytest

from mq_django import queues
from tests.consumers.trees import kill
from tests.waiting import wait_until

#: Calls between two heartbeats of a tree at rest are about five; who looks every 50 ms makes a hundred.
FEW = 30
ONE = {"CONCURRENCY": {"queue": 1, "key": 1}}


@pytest.fixture
def queue(mq_settings):
    return mq_settings(QUEUES={"default": {**ONE, "VISIBILITY_TIMEOUT": 1, "RETRY": {"delay": 0}}})


def test_a_permit_of_a_killed_child_comes_back(queue, trees, publish, history, store, tmp_path):
    held = publish(["once", ["wait", str(tmp_path / "never")]], key="a")
    others = [publish(key="a"), publish(key="b")]
    tree = trees("--processes", "1", "--threads", "4")
    history.wait_for("start")
    assert store.depths().pending == 1
    (child,) = tree.children()
    kill(child)
    history.wait_for("effect", 3)
    assert history.counts() == dict.fromkeys([held, *others], 1)
    assert tree.stop() == 0
    assert store.depths().depth == 0


def test_a_permit_of_a_killed_machine_comes_back(queue, trees, publish, history, store, redis_client, tmp_path):
    held = publish(["once", ["wait", str(tmp_path / "never")]], key="a")
    others = [publish(key="a"), publish(key="b")]
    first = trees("--threads", "4")
    history.wait_for("start")
    first.kill_all()
    # It is not known what ran, so nothing is charged, and its first attempt is made again.
    (tmp_path / "never").touch()
    second = trees("--threads", "4")
    history.wait_for("effect", 3)
    assert history.counts() == dict.fromkeys([held, *others], 1)
    assert second.stop() == 0
    assert store.depths().depth == 0
    assert not redis_client.exists(store.keys.permits, store.keys.parked, store.keys.next_checks)


def calls(client):
    """Return how many scripts and reads were asked for."""
    found = client.info("commandstats")
    return sum(found.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval", "xreadgroup"))


@pytest.mark.parametrize("limits", [{"RATE_LIMIT": "1/h"}, {"CONCURRENCY": {"key": 1}}], ids=str)
def test_what_waits_for_a_limit_costs_no_attempts_and_no_polling(
    mq_settings, trees, publish, history, store, redis_client, tmp_path, limits
):
    mq_settings(QUEUES={"default": limits})
    ids = [publish(["wait", str(tmp_path / "go")], key="a") for _ in range(20)]
    tree = trees("--processes", "2", "--threads", "4")
    history.wait_for("start")

    def beats():
        membership = redis_client.hgetall(store.keys.consumers)
        return sum(int(count) for field, count in membership.items() if field.startswith(b"beat:"))

    first = beats()
    wait_until(lambda: beats() > first)
    before = calls(redis_client)
    wait_until(lambda: beats() > first + 1, timeout=20)
    made = calls(redis_client) - before
    assert made < FEW
    assert len(history.lines("start")) == 1
    assert store.depths().pending == 1
    waiting = [found.message for found in map(queues["default"].find, ids) if found]
    assert {message.attempt for message in waiting} <= {1}
    (tmp_path / "go").touch()
    if "CONCURRENCY" in limits:
        history.wait_for("effect", 20)
        assert history.counts() == dict.fromkeys(ids, 1)
        assert {line["attempt"] for line in history.lines("start")} == {1}
    assert tree.stop() == 0
