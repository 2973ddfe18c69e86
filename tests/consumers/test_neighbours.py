"""What one handler does leaves the others of its process alone: real trees, whose handlers misbehave."""

import pytest

from tests.consumers.trees import empty
from tests.waiting import wait_until

#: The names of handlers, and how a child that they fork ends.
FORKS = [("act", 0), ("act", 1), ("aact", 0)]


@pytest.mark.versions
def test_forked_children_that_come_back_end(trees, publish, history, store):
    tree = trees("--processes", "1")
    # The child notes its own effect, if it does not raise; it handles nothing else.
    forks = {publish(["fork_back", code], name=name): 1 if code else 2 for name, code in FORKS}
    ids = [publish() for _ in range(10)]
    history.wait_for("child", 3)
    wait_until(lambda: empty(store))
    assert {message_id: history.counts()[message_id] for message_id in forks} == forks
    assert sorted(line["code"] for line in history.lines("child")) == [0, 0, 1]
    assert "returned from the handler, and was ended" in tree.logged()
    assert all(history.counts()[message_id] == 1 for message_id in ids)
    assert tree.stop() == 0


def test_a_process_whose_event_loop_is_blocked_is_replaced(trees, publish, history, store):
    tree = trees("--processes", "1", "--grace", "0.2", QUEUES={"default": {"MAX_ATTEMPTS": 1}})
    blocking = publish(["block", 0], name="aact")
    blocked = history.wait_for("start")[0]["pid"]
    ids = [publish(name="aact") for _ in range(5)]
    wait_until(lambda: all(history.counts()[message_id] == 1 for message_id in ids), timeout=30)
    wait_until(lambda: blocked not in tree.children(), timeout=20)
    assert "by tests.consumers.project.handlers.act_async: coroutines must not block" in tree.logged()
    wait_until(lambda: store.depths().dead == 1, timeout=20)
    assert history.counts("start")[blocking] == 1
    assert tree.stop() == 0


def test_what_blocks_the_event_loop_by_a_task_of_its_own_is_found_by_running_alone(trees, publish, history, store):
    limits = {"mq_django.consumers.worker.loops:MAX_BLOCKED": 0.5}
    tree = trees("--processes", "1", "--grace", "0.2", limits=limits, QUEUES={"default": {"MAX_ATTEMPTS": 1}})
    neighbour = publish(["sleep", 3], name="aact")
    history.wait_for("start")
    blocking = publish(["gather", 0], name="aact")
    wait_until(lambda: "its event loop is blocked" in tree.logged(), timeout=30)
    wait_until(lambda: history.counts()[neighbour] == 1, timeout=30)
    wait_until(lambda: store.depths().dead == 1, timeout=30)
    assert history.counts("start")[blocking] == 2
    assert history.counts()[blocking] == 0
    assert tree.stop() == 0


def test_a_supervisor_with_a_service_that_stands_still_starts_again(trees, publish, history, monkeypatch, tmp_path):
    stuck = tmp_path / "stuck"
    monkeypatch.setenv("MQ_TEST_APPS", "tests.consumers.project.stuck.Stuck")
    monkeypatch.setenv("MQ_TEST_STUCK", str(stuck))
    tree = trees("--processes", "1", TOPICS={"news": {}})
    tree.wait_until_ready()
    stuck.touch()
    wait_until(lambda: "trimmer is stuck" in tree.logged(), timeout=20)
    tree.wait_until_ready(2)
    published = publish()
    wait_until(lambda: history.counts()[published] == 1, timeout=20)
    assert tree.stop() == 0


def test_coroutines_do_not_wait_behind_slow_threads(trees, publish, history):
    """Nor across queues: what is slow does not end before its tree is killed."""
    trees("--processes", "1", "--threads", "2", QUEUES={"a": {}, "b": {}})
    for _ in range(300):
        publish(["nap", 3600], queue="a")
    history.wait_for("start", 2)
    published = [publish(name="aact", queue=queue) for queue in ("a", "b")]
    wait_until(lambda: all(history.counts()[each] for each in published))


def test_threads_do_not_wait_behind_slow_coroutines(trees, publish, history):
    trees("--processes", "1", "--threads", "2")
    for _ in range(400):
        publish(["sleep", 3600], name="aact")
    history.wait_for("start", 100)
    published = publish()
    wait_until(lambda: history.counts()[published])
