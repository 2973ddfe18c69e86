"""What runs is cancelled: real trees, whose handlers are interrupted, coroutines too, or whose process is replaced."""

import asyncio

import pytest

from mq_django import CancelResult, queues
from mq_django.conf import get_config
from mq_django.errors import NotSupported
from mq_django.producers.queues import Queue
from mq_django.stores.dead_letter_queue import open_dead_letters
from mq_django.transport.connections import open_wire
from mq_django.transport.scripts import command
from tests.waiting import becomes_true, wait_until

#: Seconds in which consumers are told, and a handler that can be interrupted has ended.
TOLD = 3.0


def empty(store):
    depths = store.depths()
    return depths.ready + depths.pending + depths.delayed == 0


def requests(store):
    return dict(store.cancel_requests())


def cancel(message_id, **options):
    return queues["default"].cancel(message_id, running=True, **options)


@pytest.mark.parametrize(("name", "step"), [("act", "nap"), ("aact", "sleep")])
def test_a_running_handler_is_interrupted_at_once_and_its_message_is_gone(trees, publish, history, store, name, step):
    tree = trees("--processes", "1")
    cancelled = publish([step, 3600], name=name)
    history.wait_for("start")
    other = publish([step, 0.3], name=name)
    assert cancel(cancelled) is CancelResult.ASKED
    wait_until(lambda: empty(store), within=TOLD)
    assert history.counts() == {other: 1}
    assert history.counts("start")[cancelled] == 1
    assert store.depths().dead == 0
    assert requests(store) == {}
    assert tree.logged().count(f"was cancelled: message {cancelled}") == 1
    assert tree.stop() == 0


def test_a_message_that_is_ready_never_starts(trees, publish, history, store):
    ready, other = publish(), publish()
    assert queues["default"].cancel(ready) is CancelResult.NOT_WAITING
    assert cancel(ready) is CancelResult.ASKED
    tree = trees("--processes", "1")
    wait_until(lambda: empty(store))
    assert history.counts("start") == {other: 1}
    assert f"Message {ready} was cancelled before handler" in tree.logged()
    assert requests(store) == {}


def test_a_message_that_waits_is_cancelled_at_once(mq_settings, publish, store):
    delayed = publish(delay=60)
    assert cancel(delayed) is CancelResult.CANCELLED
    assert requests(store) == {}


def test_the_asynchronous_form_asks_too(mq_settings, store):
    message_id = queues["default"].publish("act", {})
    assert asyncio.run(queues["default"].acancel(message_id, running=True)) is CancelResult.ASKED
    assert requests(store) == {message_id: False}


def test_what_must_not_be_interrupted_ends_first(trees, publish, history, store):
    trees("--processes", "1")
    message_id = publish(["cooperate", None], ["nap", 3600])
    history.wait_for("start")
    assert cancel(message_id) is CancelResult.ASKED
    wait_until(lambda: empty(store), within=TOLD)
    assert history.counts("guarded") == {message_id: 1}
    assert history.counts() == {}


def test_a_retry_of_it_does_not_start(trees, publish, history, store):
    tree = trees("--processes", "1")
    message_id = publish(["retry", 0.2])
    tree.wait_until_ready()
    history.wait_for("start")
    cancel(message_id)
    wait_until(lambda: empty(store))
    assert store.depths().dead == 0
    assert requests(store) == {}


def test_its_unique_key_is_free_again(trees, publish, history, store):
    trees("--processes", "1")
    publish(["nap", 3600], unique="report", unique_for="handled")
    history.wait_for("start")
    assert queues["default"].cancel(unique="report", running=True) is CancelResult.ASKED
    wait_until(lambda: empty(store), within=TOLD)
    again = publish(unique="report", unique_for="handled")
    wait_until(lambda: history.counts()[again] == 1)


def test_an_unknown_unique_key_is_told(mq_settings, store):
    assert queues["default"].cancel(unique="nobody", running=True) is CancelResult.NOT_WAITING
    assert requests(store) == {}


def test_without_its_notification_a_heartbeat_brings_it(trees, publish, history, store, redis_client):
    trees("--processes", "1", QUEUES={"default": {"VISIBILITY_TIMEOUT": 4}})
    message_id = publish(["nap", 3600])
    history.wait_for("start")
    wait_until(lambda: redis_client.hlen(store.keys.consumers))
    arguments = [message_id, "", "nobody-listens"]
    keys = [store.keys.cancels, store.keys.claims, store.keys.consumers]
    (reply,) = open_wire("produce", store.config.connection).trip([command("cancels_ask", keys=keys, args=arguments)])
    assert reply == b"ASKED"
    wait_until(lambda: empty(store), timeout=10)
    assert history.counts() == {}


def test_by_force_its_process_is_replaced_and_no_neighbour_is_charged(trees, publish, history, store):
    tree = trees("--processes", "1", "--threads", "2", "--grace", "5", QUEUES={"default": {"MAX_ATTEMPTS": 1}})
    deaf = publish(["sleep", 3600])
    first = history.wait_for("start")[0]["pid"]
    beside = publish(["once", ["nap", 3600]])
    history.wait_for("start", 2)
    assert cancel(deaf) is CancelResult.ASKED
    assert not becomes_true(lambda: first not in tree.children(), within=0.5)
    assert cancel(deaf, force=True) is CancelResult.ASKED
    wait_until(lambda: first not in tree.children(), timeout=20)
    wait_until(lambda: len(history.lines("start")) == 3, timeout=20)
    assert history.counts("start") == {deaf: 1, beside: 2}
    assert [line["attempt"] for line in history.lines("start") if line["id"] == beside] == [1, 1]
    assert cancel(beside) is CancelResult.ASKED
    wait_until(lambda: empty(store), within=TOLD)
    assert store.depths().dead == 0
    assert requests(store) == {}


def test_a_redriven_message_runs_whoever_has_cancelled_it_before(trees, publish, history, store):
    trees("--processes", "1", QUEUES={"default": {"MAX_ATTEMPTS": 1}})
    config = get_config().queue("default")
    message_id = publish(["raise", "x"])
    wait_until(lambda: store.depths().dead == 1)
    assert cancel(message_id) is CancelResult.ASKED
    dead = open_dead_letters(config, open_wire("inspect", config.connection))
    assert dead.redrive([entry for entry in dead.find([message_id]) if entry]) == ["REDRIVEN"]
    assert requests(store) == {}
    wait_until(lambda: history.counts("start")[message_id] == 2)
    wait_until(lambda: store.depths().dead == 1)


def test_an_rsmq_queue_says_that_it_cannot(mq_settings):
    mq_settings(QUEUES={"old": {"STORE": "rsmq", "NAMESPACE": "r"}})
    with pytest.raises(NotSupported, match="'old' has RSMQ's format: only waiting messages can be cancelled"):
        queues["old"].cancel("x", running=True)


def test_a_group_of_a_topic_says_that_it_cannot(mq_settings):
    mq_settings(TOPICS={"news": {}})
    with pytest.raises(NotSupported, match="'news:readers' is a group of a topic"):
        Queue(get_config().queue("news:readers")).cancel("x", running=True)


def test_force_is_for_running_messages(mq_settings):
    with pytest.raises(ValueError, match="give running=True, too"):
        queues["default"].cancel("x", force=True)
