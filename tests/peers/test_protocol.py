"""`docs/protocol.md`, tried by programs in another language, as processes."""

import json
import signal
import time

import pytest

from mq_django import queues
from mq_django.stores import open_store
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("node")]


def test_the_node_producer_publishes_now_and_later(project):
    shop = project()
    shop.runconsumer("emails")
    before = time.time() * 1000
    later = shop.node_publish("emails", "welcome", '{"n":2}', "1500")
    now = shop.node_publish("emails", "welcome", '{"n":1,"text":"héllo ☃"}')
    told = {each["id"]: each for each in shop.wait_handled(2)}
    assert {key: each["data"] for key, each in told.items()} == {now: {"n": 1, "text": "héllo ☃"}, later: {"n": 2}}
    assert told[later]["at_ms"] >= before + 1500


def test_the_node_consumer_handles_what_django_publishes(project, redis_client):
    shop = project()
    now = queues["emails"].publish("welcome", {"n": 1}, headers={"tenant": "a"})
    later = queues["emails"].publish("welcome", {"n": 2}, delay=0.01)
    node = shop.node_consumer("emails")
    assert node.line() == {"id": now, "name": "welcome", "data": {"n": 1}, "attempt": 1}
    promote("emails")
    assert node.line() == {"id": later, "name": "welcome", "data": {"n": 2}, "attempt": 1}
    wait_until(lambda: redis_client.xlen(queues["emails"].config.keys.ready) == 0)
    assert node.stop() == 0
    assert redis_client.hgetall(queues["emails"].config.keys.consumers) == {}


def test_both_share_a_queue_and_each_message_is_handled_once(project, redis_client):
    shop = project()
    shop.runconsumer("emails")
    node = shop.node_consumer("emails")
    keys = queues["emails"].config.keys
    wait_until(lambda: sum(name.startswith(b"consumer:") for name in redis_client.hkeys(keys.consumers)) == 2)
    ids = queues["emails"].publish_many([("welcome", {"n": n}) for n in range(400)])
    wait_until(lambda: redis_client.xlen(keys.ready) == 0)
    theirs = [json.loads(line)["id"] for line in node.stop_and_tell().splitlines()]
    ours = [told["id"] for told in shop.handled()]
    assert sorted(theirs + ours) == sorted(ids)
    assert theirs


def test_a_node_handler_that_fails_retries_and_then_buries(project, redis_client):
    shop = project()
    shop.node_consumer("emails", MQ_MAX_ATTEMPTS="2")
    keys = queues["emails"].config.keys
    message_id = queues["emails"].publish("fail", {"n": 1}, key="user:7")
    wait_until(lambda: redis_client.zcard(keys.due) == 1)
    body = json.loads(redis_client.hget(keys.waiting, message_id))
    assert (body["attempt"], body["partitionkey"], body["data"]) == (2, "user:7", {"n": 1})
    wait_until(lambda: promote("emails"))
    wait_until(lambda: redis_client.xlen(keys.dead) == 1)
    ((entry, fields),) = redis_client.xrange(keys.dead)
    assert (fields[b"id"].decode(), fields[b"deadreason"], fields[b"deadattempts"]) == (message_id, b"attempts", b"2")
    assert redis_client.hget(keys.dead_ids, message_id) == entry
    assert redis_client.xlen(keys.ready) == 0


def test_what_node_held_when_it_was_killed_goes_to_others(project, redis_client):
    shop = project(QUEUES={"emails": {"VISIBILITY_TIMEOUT": 1}})
    node = shop.node_consumer("emails")
    keys = queues["emails"].config.keys
    wait_until(lambda: redis_client.hlen(keys.consumers) == 4 and redis_client.info("clients")["blocked_clients"])
    node.process.send_signal(signal.SIGSTOP)
    # A blocked read of a stopped process still stands in the line, and takes what comes.
    queues["emails"].publish("welcome", {"n": 1})
    wait_until(lambda: redis_client.xpending(keys.ready, "mq")["pending"] == 1)
    shop.runconsumer("emails")
    (told,) = shop.wait_handled(1)
    assert told["data"] == {"n": 1}
    node.stop(kill=True)


def promote(queue):
    return open_store(queues[queue].config, Pooled(get_client("consume"))).promote(limit=10).moved
