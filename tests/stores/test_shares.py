"""Shares of the limits that the partitions of a queue have in common."""

import pytest

from mq_django.conf import get_config
from mq_django.stores.line_store import Shares
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled


@pytest.fixture
def consumers(mq_settings):
    """Return a function that returns two consumers of a queue with these limits."""

    def make(**options):
        mq_settings(QUEUES={"default": {"PARTITIONS": 4, **options}})
        transport = Pooled(get_client("consume"))
        return [Shares(get_config().queue("default"), transport, name) for name in ("a:0", "b:0")]

    return make


def test_the_shares_of_all_are_no_more_than_may_run(consumers):
    a, b = consumers(CONCURRENCY=5)
    assert a.ask(0, 3).messages == 3
    assert b.ask(0, 4).messages == 2
    assert a.ask(3, 1) == (0, None)
    # One of a's has ended, and b holds both of its.
    assert a.ask(2, 0) == (0, 0)
    assert b.ask(2, 9).messages == 1
    assert b.ask(3, 1) == (0, None)


def test_what_was_not_used_is_there_for_others(consumers):
    a, b = consumers(CONCURRENCY=5)
    assert a.ask(0, 5).messages == 5
    assert b.ask(0, 1).messages == 0
    a.give_back(4)
    assert a.is_due(1)
    a.ask(1, 0)
    assert not a.is_due(1)
    assert b.ask(0, 9).messages == 4


def test_who_waits_is_told_when_somebody_needs_less(consumers, redis_client):
    a, b = consumers(CONCURRENCY=1)
    heard = redis_client.pubsub()
    heard.subscribe(a.channel)
    assert heard.get_message(timeout=10)["type"] == "subscribe"
    a.ask(0, 1)
    a.ask(1, 0)
    b.ask(0, 1)
    a.ask(0, 0)
    assert heard.get_message(timeout=10)["type"] == "message"
    assert b.ask(0, 1).messages == 1
    b.ask(0, 0)
    assert heard.get_message(timeout=0) is None


def test_the_share_of_a_dead_consumer_ends(consumers, redis_client):
    a, b = consumers(CONCURRENCY=1, VISIBILITY_TIMEOUT=600)
    a.ask(0, 1)
    key = get_config().queue("default").keys.shares
    count, _, ends = redis_client.hget(key, "a:0").partition(b":")
    assert 0 < int(ends) - redis_client.time()[0] * 1000 <= 601_000
    assert b.ask(0, 1).messages == 0
    redis_client.hset(key, "a:0", count + b":1")
    assert b.ask(0, 1).messages == 1
    assert redis_client.hkeys(key) == [b"b:0"]


def test_a_rate_is_that_of_all_together(consumers):
    a, b = consumers(RATE_LIMIT="5/d")
    assert a.ask(0, 3).messages == 3
    assert b.ask(0, 3).messages == 2
    messages, wait = a.ask(3, 1)
    assert (messages, 80_000 < wait <= 86_401) == (0, True)
    # b has found one message only.
    b.give_back(1)
    b.ask(1, 0)
    assert a.ask(3, 9).messages == 1


def test_what_others_have_written_there_limits_nothing(consumers, redis_client):
    a, _ = consumers(CONCURRENCY=2, RATE_LIMIT="5/d")
    keys = get_config().queue("default").keys
    redis_client.hset(keys.shares, mapping={"x": "junk", "y": "9:99999999999999999999", "z": "-1:5"})
    redis_client.hset(keys.limits, mapping={"r": "junk", "t": "junk", "w": "junk"})
    assert a.ask(0, 2).messages == 2
