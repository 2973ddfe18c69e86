"""Handlers of batches in real trees: what comes together, and what a process leaves behind that dies in a call."""

import signal

import pytest

from mq_django.conf import get_config
from mq_django.producers import queues
from mq_django.stores import open_store
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests.consumers.trees import kill
from tests.waiting import wait_until

QUEUES = {"default": {}, "batches": {"MAX_ATTEMPTS": 5}}


@pytest.fixture
def store(mq_settings):
    mq_settings(QUEUES=QUEUES)
    return open_store(get_config().queue("batches"), Pooled(get_client("produce")))


@pytest.fixture
def send(store, publish):
    def send(*steps, name="many"):
        return publish(*steps, name=name, queue="batches")

    return send


def sizes(history):
    return [len(call["ids"]) for call in history.lines("call")]


def handled(history, ids):
    return set(ids) <= history.counts().keys()


def is_empty(store):
    depths = store.depths()
    return not depths.depth and not depths.dead


def test_messages_come_in_lists(trees, send, history, store):
    ids = [send(name=name) for name in ("many", "amany") for _ in range(200)]
    tree = trees("--processes", "2", "--threads", "2", QUEUES=QUEUES)
    wait_until(lambda: handled(history, ids))
    wait_until(lambda: is_empty(store))
    assert history.counts() == dict.fromkeys(ids, 1)
    assert max(sizes(history)) == 20
    assert len(sizes(history)) < 100
    # One with less waits for more messages.
    history.path.write_text("")
    ids = [send(name="lingering") for _ in range(5)]
    wait_until(lambda: handled(history, ids))
    assert sum(sizes(history)) == 5
    assert len(sizes(history)) < 5
    assert tree.stop() == 0


def test_with_partitions_a_list_has_messages_of_several(trees, mq_settings, publish, history):
    options = {"default": {}, "batches": {"PARTITIONS": 4}}
    mq_settings(QUEUES=options)
    ids = [publish(name="lingering", queue="batches") for _ in range(60)]
    tree = trees("--processes", "1", "--threads", "1", QUEUES=options)
    wait_until(lambda: handled(history, ids))
    assert history.counts() == dict.fromkeys(ids, 1)
    # The id ends with the number of the partition.
    assert any(len({each.rpartition(".")[2] for each in call["ids"]}) > 1 for call in history.lines("call"))
    assert tree.stop() == 0


def test_in_an_ordered_queue_a_list_has_one_message_of_each_key(trees, mq_settings, publish, history):
    options = {"default": {}, "batches": {"ORDERED": True}}
    mq_settings(QUEUES=options)
    keys = {publish(name="many", queue="batches", key=f"key-{number % 5}"): number % 5 for number in range(40)}
    tree = trees("--processes", "1", QUEUES=options)
    wait_until(lambda: handled(history, keys))
    assert history.counts() == dict.fromkeys(keys, 1)
    for call in history.lines("call"):
        assert len({keys[each] for each in call["ids"]}) == len(call["ids"])
    ran = [line["id"] for line in history.lines("effect")]
    for key in range(5):
        assert [each for each in ran if keys[each] == key] == [each for each in keys if keys[each] == key]
    assert tree.stop() == 0


def test_a_stop_finishes_the_call_and_hands_back_the_rest(trees, send, history, store, tmp_path):
    go = tmp_path / "go"
    first = send(["wait", str(go)])
    tree = trees("--processes", "1", "--threads", "1", QUEUES=QUEUES)
    history.wait_for("call")
    ids = [send(name="lingering") for _ in range(5)]
    tree.signal(signal.SIGTERM)
    wait_until(lambda: store.depths().pending == 1)
    go.touch()
    assert tree.wait() == 0
    assert history.counts() == {first: 1}
    assert store.depths().ready == len(ids)


def test_after_a_kill_in_a_call_only_what_it_had_runs_alone(trees, send, history, store, tmp_path):
    go = tmp_path / "go"
    tree = trees("--processes", "1", "--threads", "1", QUEUES=QUEUES)
    tree.wait_until_ready()
    ids = queues["batches"].publish_many([("lingering", {"do": [["once", ["wait", str(go)]]]})] * 20)
    history.wait_for("call")
    waiting = [send() for _ in range(10)]
    wait_until(lambda: store.depths().pending == 30)
    (call,) = history.lines("call")
    running = call["ids"]
    assert len(running) > 1
    # First: nothing may end before.
    kill(call["pid"])
    go.touch()
    wait_until(lambda: handled(history, [*ids, *waiting]))
    wait_until(lambda: is_empty(store))
    later = history.lines("call")[1:]
    alone = [each["ids"][0] for each in later if each["ids"][0] in running]
    # Uncharged: any of them may have been the cause.
    assert sorted(alone) == sorted(running)
    assert all(len(each["ids"]) == 1 for each in later if each["ids"][0] in running)
    assert all(attempt == 1 for each in later for attempt in each["attempts"])
    assert all(history.counts("start")[each] == 1 for each in waiting)
    assert tree.stop() == 0


def test_the_message_that_kills_its_process_is_found(trees, send, history, store):
    # Charged for both processes that it has ended, it does so no more in its third attempt.
    ids = [send() for _ in range(7)] + [send(["once", ["exit", 1]])] + [send() for _ in range(7)]
    tree = trees("--processes", "1", "--threads", "1", QUEUES=QUEUES)
    wait_until(lambda: handled(history, ids))
    wait_until(lambda: is_empty(store))
    killer = ids[7]
    assert [line["attempt"] for line in history.lines("start") if line["id"] == killer] == [1, 1, 3]
    others = [line for line in history.lines("start") if line["id"] != killer]
    assert all(line["attempt"] == 1 for line in others)
    assert tree.stop() == 0


def test_a_call_that_cannot_be_interrupted_makes_its_messages_suspects(trees, send, history, store):
    ids = [send(name="stubborn"), send(["once", ["gil", 3600]], name="stubborn"), send(name="stubborn")]
    # What is late will never end.
    limits = {f"mq_django.consumers.supervisor.workers:{name}": 0.3 for name in ("OVERTIME", "UNRESPONSIVE")}
    tree = trees("--processes", "1", "--threads", "1", limits=limits, QUEUES=QUEUES)
    wait_until(lambda: handled(history, ids), timeout=20)
    wait_until(lambda: is_empty(store))
    attempts = {line["id"]: line["attempt"] for line in history.lines("effect")}
    assert attempts[ids[0]] == attempts[ids[2]] == 1
    assert attempts[ids[1]] > 1
    assert tree.stop() == 0
