"""What one handler does leaves the others of its process alone: real trees, whose handlers misbehave."""

import time

import pytest

from tests.waiting import wait_until


def empty(store):
    depths = store.depths()
    return depths.ready + depths.pending + depths.delayed == 0


@pytest.mark.parametrize("how", ["stop", "callback"])
def test_the_event_loop_outlives_its_coroutines(trees, publish, history, store, how):
    tree = trees("--processes", "1")
    publish(["loop", how], ["sleep", 0.1], name="aact")
    ids = [publish(name="aact") for _ in range(20)]
    wait_until(lambda: empty(store))
    assert all(history.counts()[message_id] == 1 for message_id in ids)
    assert "A coroutine" in tree.logged()
    assert "which was restarted" in tree.logged()
    began = time.monotonic()
    assert tree.stop() == 0
    assert time.monotonic() - began < 10


def test_a_process_whose_event_loop_is_blocked_is_replaced(trees, publish, history, store):
    tree = trees("--processes", "1", "--grace", "1", QUEUES={"default": {"MAX_ATTEMPTS": 1}})
    blocking = publish(["loop", "block"], name="aact")
    blocked = history.wait_for("start")[0]["pid"]
    ids = [publish(name="aact") for _ in range(5)]
    wait_until(lambda: all(history.counts()[message_id] == 1 for message_id in ids), timeout=30)
    wait_until(lambda: blocked not in tree.children(), timeout=20)
    assert "by tests.consumers.project.handlers.act_async: coroutines must not block" in tree.logged()
    wait_until(lambda: store.depths().dead == 1, timeout=20)
    assert history.counts("start")[blocking] == 1
    assert tree.stop() == 0


def test_what_waits_on_a_blocked_event_loop_goes_on_within_seconds(trees, publish, history, store):
    """With the usual grace: nobody waits for coroutines that cannot end."""
    trees("--processes", "1", QUEUES={"default": {"MAX_ATTEMPTS": 1}})
    ids = [publish(["sleep", 1], name="aact") for _ in range(5)]
    history.wait_for("start", 5)
    publish(["loop", "block"], name="aact")
    wait_until(lambda: all(history.counts()[message_id] == 1 for message_id in ids), within=28)
    wait_until(lambda: store.depths().dead == 1, timeout=20)


def test_a_process_whose_event_loop_has_ended_is_replaced_at_once(trees, publish, history, store):
    tree = trees("--processes", "1")
    publish(["loop", "end"], name="aact")
    ended = history.wait_for("effect")[0]["pid"]
    ids = [publish(name="aact") for _ in range(5)]
    wait_until(lambda: all(history.counts()[message_id] == 1 for message_id in ids), within=28)
    assert "must be replaced: mq_django loop has ended" in tree.logged()
    wait_until(lambda: ended not in tree.children())
    began = time.monotonic()
    assert tree.stop() == 0
    assert time.monotonic() - began < 10


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
    trees("--processes", "1", "--threads", "2")
    for _ in range(300):
        publish(["sleep", 8])
    history.wait_for("start", 2)
    published = publish(name="aact")
    wait_until(lambda: history.counts()[published], within=7)


def test_threads_do_not_wait_behind_slow_coroutines(trees, publish, history):
    trees("--processes", "1", "--threads", "2")
    for _ in range(400):
        publish(["sleep", 8], name="aact")
    history.wait_for("start", 100)
    published = publish()
    wait_until(lambda: history.counts()[published], within=7)


def test_nor_across_queues(trees, publish, history, mq_settings):
    trees("--processes", "1", "--threads", "2", QUEUES={"a": {}, "b": {}})
    for _ in range(6):
        publish(["sleep", 8], queue="a")
    history.wait_for("start", 2)
    published = publish(name="aact", queue="b")
    wait_until(lambda: history.counts()[published], within=7)


@pytest.mark.parametrize(("name", "code"), [("act", 0), ("act", 1), ("aact", 0)])
def test_a_forked_child_that_comes_back_from_the_handler_ends(trees, publish, history, store, name, code):
    tree = trees("--processes", "1")
    published = publish(["fork_back", code], name=name)
    ids = [publish() for _ in range(20)]
    history.wait_for("child")
    wait_until(lambda: empty(store))
    # The child notes its own effect, if it does not raise; it handles nothing else.
    assert history.counts()[published] == (1 if code else 2)
    assert all(history.counts()[message_id] == 1 for message_id in ids)
    assert [line["code"] for line in history.lines("child")] == [code]
    assert "returned from the handler, and was ended" in tree.logged()
    assert tree.stop() == 0
