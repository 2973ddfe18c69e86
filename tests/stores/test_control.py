"""Pausing and resuming a queue."""

import time

import pytest

from mq_django.conf import get_config
from mq_django.stores.control import Control
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled


@pytest.fixture
def control(mq_settings):
    return Control(get_config().queue("emails"), Pooled(get_client("produce")))


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
