"""Pausing and resuming a queue."""

import json
import os
import signal
import time

import pytest

from mq_django import inspector
from mq_django.conf import get_config
from mq_django.errors import WrongKeyType
from mq_django.producers import queues
from mq_django.stores.control import Control
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests.peers.programs import Project
from tests.waiting import wait_until


@pytest.fixture
def control(mq_settings):
    return Control(get_config().queue("emails"), Pooled(get_client("produce")))


@pytest.fixture
def shop(mq_settings, redis_client):
    made = Project(mq_settings(), redis_client)
    yield made
    made.stop()


def test_a_paused_queue_hands_out_nothing_until_it_is_resumed(emails, store, control):
    emails.publish("welcome", 1)

    assert control.pause()
    assert store.take("c1", count=1) == []
    assert control.resume()
    assert len(store.take("c1", count=1)) == 1


def test_pausing_twice_is_pausing_once_and_both_say_so(control, keys, redis_client):
    assert not control.resume()
    assert control.pause()
    assert not control.pause()
    assert redis_client.hget(keys.control, "paused") == b"1"
    assert control.resume()
    assert not redis_client.hexists(keys.control, "paused")


def test_a_pause_keeps_who_made_it_why_and_since_when_until_it_is_over(control, keys, redis_client):
    control.pause(who="ann", reason="deploy")
    noted = redis_client.hgetall(keys.control)
    assert not control.pause(who="bob", reason="other")

    assert redis_client.hgetall(keys.control) == noted
    assert (noted[b"paused-by"], noted[b"paused-reason"]) == (b"ann", b"deploy")
    assert abs(time.time() * 1000 - int(noted[b"paused-at"])) < 60_000
    control.resume()
    assert not redis_client.exists(keys.control)


def test_supervisors_are_told_at_once(control, keys, redis_client):
    with redis_client.pubsub() as subscription:
        subscription.subscribe(keys.wake)
        subscription.get_message(timeout=5)
        control.pause()
        control.resume()
        told = [subscription.get_message(timeout=5)["data"] for _ in range(2)]

    assert told == [b"paused", b"resumed"]


def test_a_strangers_key_is_left_as_it_is(control, keys, redis_client):
    redis_client.set(keys.control, "mine")

    with pytest.raises(WrongKeyType):
        control.pause()
    assert redis_client.get(keys.control) == b"mine"


@pytest.mark.retried(why="a busy machine may keep a process waiting for longer than 100 ms")
def test_no_handler_starts_later_than_100_ms_after_a_pause(shop, control, redis_client):
    """A stream of messages into a real consumer: what a blocked read still brings goes back, with its attempt."""
    shop.runconsumer("emails")
    queues["emails"].publish("welcome", "first")
    shop.wait_handled(1)
    for n in range(300):
        queues["emails"].publish("welcome", n)
    control.pause()
    paused_ms = time.time() * 1000
    for n in range(300, 320):
        queues["emails"].publish("welcome", n)
    # A consumer may take those before it hears of the pause, and none of these.
    wait_until(lambda: time.time() * 1000 > paused_ms + 100)
    for n in range(320, 340):
        queues["emails"].publish("welcome", n)
    wait_until(lambda: inspector.queue("emails").pending == 0)
    left = inspector.queue("emails").ready

    handled = [json.loads(line) for line in redis_client.lrange(f"{shop.namespace}:handled", 0, -1)]
    assert max(told["at_ms"] for told in handled) <= paused_ms + 100
    assert len(handled) + left == 341
    assert left >= 20

    control.resume()
    handled = shop.wait_handled(341)
    assert {told["attempt"] for told in handled} == {1}
    assert {told["data"] for told in handled} == {"first", *range(340)}


def test_a_consumer_that_starts_in_a_pause_handles_nothing(shop, control, redis_client):
    """It sets a message of another queue aside, so that it is known to be at work."""
    shop.runconsumer("emails", "default")
    queues["emails"].publish("welcome", "first")
    shop.wait_handled(1)
    control.pause()
    (old,) = {consumer.pid for consumer in inspector.queue("emails").consumers}
    os.kill(old, signal.SIGKILL)
    queues["emails"].publish("welcome", "second")
    queues["default"].publish("nobody", 1)
    wait_until(lambda: inspector.queue("default").unhandled == 1, timeout=20)

    wait_until(lambda: inspector.queue("emails").pending == 0)
    assert redis_client.llen(f"{shop.namespace}:handled") == 1
    control.resume()
    assert [told["attempt"] for told in shop.wait_handled(2)] == [1, 1]
