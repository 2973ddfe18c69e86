"""Turns of keys on a real Redis: a key with many messages does not hold up the others."""

from collections import Counter

import pytest

from mq_django import queues
from mq_django.conf import get_config
from mq_django.core.messages import ACK, Retry
from mq_django.stores.base import Settlement


@pytest.fixture
def opened(open_queue):
    """Open a fair queue."""
    return lambda **options: open_queue(**{"FAIR": True, **options})


def publish_many(key, count):
    queues["emails"].publish_many([("sms", n) for n in range(count)], key=key)


def take_and_ack(store, count):
    """Handle messages one by one, and return the keys in the order of their messages."""
    found = []
    while len(found) < count and (taken := store.take("c1", count=1)):
        found += [item.message.key for item in taken]
        store.settle("c1", [Settlement(item, ACK) for item in taken])
    return found


def test_keys_take_turns_while_messages_wait(opened):
    store = opened()
    publish_many("many", 300)
    publish_many("few", 3)
    publish_many("one", 1)
    first = take_and_ack(store, 20)
    assert Counter(first) == {"many": 16, "few": 3, "one": 1}
    assert set(first[:8]) == {"many", "few", "one"}
    assert len(take_and_ack(store, 500)) == 304 - 20


def test_a_key_that_was_quiet_waits_for_at_most_one_message_of_each_other(opened):
    store = opened()
    for key in ("a", "b", "c"):
        publish_many(key, 200)
    take_and_ack(store, 50)
    publish_many("quiet", 1)
    assert "quiet" in take_and_ack(store, 4)


def test_a_weight_gives_a_key_more_turns(opened):
    store = opened(FAIR={"big": 4})
    publish_many("big", 200)
    publish_many("small", 200)
    take_and_ack(store, 10)
    assert Counter(take_and_ack(store, 50)) == {"big": 40, "small": 10}


def test_messages_without_a_key_take_turns_like_one_key(opened):
    store = opened()
    publish_many(None, 100)
    publish_many("a", 100)
    take_and_ack(store, 4)
    assert Counter(take_and_ack(store, 20)) == {None: 10, "a": 10}


def test_a_queue_that_is_not_behind_is_read_as_it_is(opened, redis_client):
    store = opened()
    for key in "abcabc":
        publish_many(key, 1)
    taken = store.take("c1", count=10)
    assert [item.message.key for item in taken] == list("abcabc")
    keys = get_config().queue("emails").keys
    assert not redis_client.exists(keys.parked, keys.permits, keys.tags, keys.waiting)


def test_a_consumer_without_room_puts_what_is_ready_into_lines(opened):
    store = opened()
    publish_many("many", 700)
    publish_many("one", 1)
    assert store.line_up("c1")
    assert (store.depths().parked, store.depths().pending) == (250, 0)
    while store.line_up("c1"):
        pass
    assert (store.depths().parked, store.depths().ready) == (701, 0)
    assert "one" in take_and_ack(store, 2)


@pytest.mark.parametrize("options", [{"CONCURRENCY": 1}, {"RATE_LIMIT": "1/h"}], ids=str)
def test_it_does_so_too_while_the_queue_is_at_its_limit(opened, options):
    store = opened(**options)
    publish_many("many", 100)
    assert len(store.take("c1", count=1)) == 1
    assert not store.line_up("c1")
    assert store.depths().ready == 0


def test_a_queue_without_turns_is_left_as_it_is(opened):
    store = opened(FAIR=False, CONCURRENCY={"key": 1})
    publish_many("a", 5)
    assert not store.line_up("c1")
    assert store.depths().ready == 5


def test_messages_of_one_key_keep_their_order_in_its_turns(opened):
    store = opened(ORDERED=True)
    publish_many("a", 50)
    publish_many("b", 50)
    seen = {"a": [], "b": []}
    while taken := store.take("c1", count=7):
        assert len(taken) <= 2
        for item in taken:
            seen[item.message.key].append(item.message.data)
        store.settle("c1", [Settlement(item, ACK) for item in taken])
    assert seen == {"a": list(range(50)), "b": list(range(50))}


def test_a_key_at_its_limit_takes_its_turn_when_it_may(opened):
    store = opened(CONCURRENCY={"key": 1})
    publish_many("a", 20)
    publish_many("b", 20)
    held = store.take("c1", count=10)
    assert sorted(item.message.key for item in held) == ["a", "b"]
    assert store.take("c1", count=10) == []
    store.settle("c1", [Settlement(held[0], ACK)])
    assert [item.message.key for item in store.take("c1", count=10)] == [held[0].message.key]


def test_a_retry_takes_a_turn_again_and_blocks_nothing(opened):
    store = opened()
    publish_many("a", 3)
    publish_many("b", 3)
    (held,) = store.take("c1", count=1)
    store.settle("c1", [Settlement(held, Retry(), delay_ms=0)])
    store.promote(limit=10)
    assert Counter(take_and_ack(store, 10)) == {"a": 3, "b": 3}


@pytest.mark.parametrize("options", [{"CONCURRENCY": {"key": 5}}, {}], ids=["limited", "plain"])
def test_turning_it_off_leaves_nothing_behind(opened, redis_client, options):
    store = opened()
    publish_many("a", 50)
    publish_many("b", 50)
    take_and_ack(store, 10)
    other = opened(FAIR=False, **options)
    while not options and other.promote(limit=500).moved:
        pass
    assert len(take_and_ack(other, 200)) == 90
    keys = get_config().queue("emails").keys
    assert not redis_client.exists(keys.parked, keys.waiting, *([keys.tags, keys.permits] if options else []))
