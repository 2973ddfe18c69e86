"""Permits of consumers that are killed come back: real processes, and signal 9."""

import pytest

from tests.consumers.trees import kill

pytestmark = pytest.mark.timeout(120)

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
    assert not redis_client.exists(store.keys.permits, store.keys.parked, store.keys.turns)
