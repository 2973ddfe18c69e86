"""What runs is cancelled: real trees, whose handlers are interrupted, coroutines too, or whose process is replaced."""

import asyncio

import pytest

from mq_django import CancelResult, queues
from mq_django.conf import get_config
from mq_django.errors import NotSupported
from mq_django.producers.queues import Queue
from mq_django.stores import open_store
from mq_django.stores.dead_letters import open_dead_letters
from mq_django.transport.connections import get_client, open_transport
from mq_django.transport.scripts import command
from mq_django.transport.sessions import Pooled
from tests.consumers.trees import empty
from tests.waiting import wait_until


def requests(store):
    return {message_id: request.force for message_id, request in store.cancel_requests().items()}


def cancel(message_id, **options):
    return queues["default"].cancel(message_id, running=True, **options)


#: Heartbeats would bring a request much later than its notification does.
RARE = {"default": {"VISIBILITY_TIMEOUT": 600}, "emails": {"MAX_ATTEMPTS": 1}}


def test_messages_that_are_cancelled_are_gone_wherever_they_are(trees, publish, history, mq_settings, tmp_path):
    mq_settings(QUEUES=RARE)
    store = open_store(get_config().queue("default"), Pooled(get_client("produce")))
    go = tmp_path / "go"
    tree = trees("--processes", "1", "--threads", "4", QUEUES=RARE)
    # What is ready when its request comes never starts.
    others = [publish(["wait", str(go)]) for _ in range(4)]
    coroutine = publish(["sleep", 3600], name="aact")
    history.wait_for("start", 5)
    ready = publish()
    assert queues["default"].cancel(ready) is CancelResult.NOT_WAITING
    assert (cancel(ready), cancel(coroutine)) == (CancelResult.ASKED, CancelResult.ASKED)
    wait_until(lambda: f"was cancelled: message {coroutine}" in tree.logged())
    go.touch()
    wait_until(lambda: empty(store))
    assert history.counts("start") == dict.fromkeys([*others, coroutine], 1)
    assert f"Message {ready} was cancelled before handler" in tree.logged()

    # Running ones are interrupted; what must not be interrupted ends first.
    thread = publish(["nap", 3600])
    guarded = publish(["cooperate", None], ["nap", 3600])
    unique = publish(["nap", 3600], unique="report", unique_for="handled")
    history.wait_for("start", 8)
    beside = [publish(), publish(name="aact")]
    assert queues["default"].cancel(unique="report", running=True) is CancelResult.ASKED
    for message_id in (thread, guarded):
        assert cancel(message_id) is CancelResult.ASKED
    wait_until(lambda: empty(store))
    assert history.counts("guarded") == {guarded: 1}
    assert history.counts() == dict.fromkeys([*others, *beside], 1)
    assert set(history.counts("start").values()) == {1}
    assert (store.depths().dead, requests(store)) == (0, {})
    for message_id in (thread, coroutine, unique):
        assert tree.logged().count(f"was cancelled: message {message_id}") == 1
    # Its unique key is free again.
    again = publish(unique="report", unique_for="handled")
    wait_until(lambda: history.counts()[again] == 1)

    # A redriven message runs, whoever has cancelled it before.
    config = get_config().queue("emails")
    emails = open_store(config, Pooled(get_client("produce")))
    failing = publish(["raise", "x"], queue="emails")
    wait_until(lambda: emails.depths().dead == 1)
    assert queues["emails"].cancel(failing, running=True) is CancelResult.ASKED
    dead = open_dead_letters(config, open_transport("inspect", config.connection))
    assert dead.redrive([entry for entry in dead.find([failing]) if entry]) == ["REDRIVEN"]
    assert requests(emails) == {}
    wait_until(lambda: history.counts("start")[failing] == 2)
    assert tree.stop() == 0


def test_a_message_that_waits_is_cancelled_at_once(mq_settings, publish, store):
    delayed = publish(delay=60)
    assert cancel(delayed) is CancelResult.CANCELLED
    assert requests(store) == {}


def test_the_asynchronous_form_asks_too(mq_settings, store):
    message_id = queues["default"].publish("act", {})
    assert asyncio.run(queues["default"].acancel(message_id, running=True)) is CancelResult.ASKED
    assert requests(store) == {message_id: False}


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
    (reply,) = open_transport("produce", store.config.connection).pipeline(
        [command("cancels_ask", keys=keys, args=arguments)]
    )
    assert reply == b"ASKED"
    wait_until(lambda: empty(store), timeout=10)
    assert history.counts() == {}


def test_by_force_its_process_is_replaced_and_no_neighbour_is_charged(trees, publish, history, store):
    limits = {f"mq_django.consumers.supervisor.workers:{name}": 0.3 for name in ("OVERTIME", "UNRESPONSIVE")}
    options = ("--processes", "1", "--threads", "2", "--grace", "0.3")
    tree = trees(*options, limits=limits, QUEUES={"default": {"MAX_ATTEMPTS": 1}})
    deaf = publish(["sleep", 3600])
    first = history.wait_for("start")[0]["pid"]
    beside = publish(["once", ["nap", 3600]])
    history.wait_for("start", 2)
    assert cancel(deaf) is CancelResult.ASKED
    assert cancel(deaf, force=True) is CancelResult.ASKED
    wait_until(lambda: first not in tree.children(), timeout=20)
    wait_until(lambda: len(history.lines("start")) == 3, timeout=20)
    assert history.counts("start") == {deaf: 1, beside: 2}
    assert [line["attempt"] for line in history.lines("start") if line["id"] == beside] == [1, 1]
    assert cancel(beside) is CancelResult.ASKED
    wait_until(lambda: empty(store))
    assert store.depths().dead == 0
    assert requests(store) == {}


def test_where_running_messages_cannot_be_cancelled_it_is_said(mq_settings):
    mq_settings(QUEUES={"old": {"STORE": "rsmq", "NAMESPACE": "r"}, "default": {}}, TOPICS={"news": {}})
    with pytest.raises(NotSupported, match="'old' has RSMQ's format: only waiting messages can be cancelled"):
        queues["old"].cancel("x", running=True)
    with pytest.raises(NotSupported, match="'news:readers' is a group of a topic"):
        Queue(get_config().queue("news:readers")).cancel("x", running=True)
    # Force is for running messages.
    with pytest.raises(ValueError, match="give running=True, too"):
        queues["default"].cancel("x", force=True)
