"""Limits in real processes: permits of consumers that are killed come back."""

from tests.consumers.trees import kill
from tests.waiting import wait_until

ONE = {"CONCURRENCY": {"queue": 1, "key": 1}}


ONE = {"CONCURRENCY": {"queue": 1, "key": 1}}


def test_permits_of_a_killed_child_and_of_a_killed_machine_come_back(
    mq_settings, trees, publish, history, store, redis_client, tmp_path
):
    mq_settings(QUEUES={"default": {**ONE, "VISIBILITY_TIMEOUT": 5, "RETRY": {"delay": 0}}})
    go = tmp_path / "go"
    held = publish(["once", ["wait", str(go)]], key="a")
    others = [publish(key="a"), publish(key="b")]
    first = trees("--processes", "1", "--threads", "4")
    history.wait_for("start")
    assert store.depths().pending == 1
    (child,) = first.children()
    kill(child)
    history.wait_for("effect", 3)
    assert history.counts() == dict.fromkeys([held, *others], 1)

    again = publish(["once", ["wait", str(go)]], key="a")
    more = [publish(key="a"), publish(key="b")]
    wait_until(lambda: history.counts("start")[again])
    first.kill_all()
    # It is not known what ran, so nothing is charged, and its first attempt is made again.
    go.touch()
    second = trees("--threads", "4")
    history.wait_for("effect", 6)
    assert history.counts() == dict.fromkeys([held, *others, again, *more], 1)
    assert second.stop() == 0
    assert store.depths().depth == 0
    assert not redis_client.exists(store.keys.permits, store.keys.parked, store.keys.next_checks)
