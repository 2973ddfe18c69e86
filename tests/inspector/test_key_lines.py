"""The line of a key: what waits, what that waits for, and what lets it go on."""

import json

import pytest

from mq_django import inspector
from mq_django.conf import get_config
from mq_django.core.clock import now_ms
from mq_django.core.limits import key_hash
from mq_django.core.messages import ACK, Bury, Retry, SetAside
from mq_django.inspector.key_lines import MAX_LISTED, skip
from mq_django.stores.base import Settlement
from tests import seeding
from tests.seeding import CONSUMER, beat, publish

LINE = key_hash("a")


@pytest.fixture
def opened(mq_settings):
    """Configure a queue with lines, and open it."""

    def open_with(**options):
        mq_settings(QUEUES={"emails": options or {"ORDERED": True}})
        return seeding.opened("emails")

    return open_with


@pytest.fixture
def store(opened):
    return opened()


def fill(count=3, **options):
    return [publish("emails", "sms", n, key="a", **options) for n in range(count)]


def take(store, count=10):
    return store.take(CONSUMER, count=count)


def settle(store, items, outcome=ACK, **more):
    assert store.settle(CONSUMER, [Settlement(item, outcome) for item in items]) == []


def only_head():
    (head,) = inspector.key_line("emails", "a").heads
    return head


def test_the_parked_messages_come_in_their_order_with_when_they_were_published(store):
    began = now_ms()
    _, *others = fill(MAX_LISTED + 5)
    take(store)
    line = inspector.key_line("emails", "a")
    assert (line.parked, line.tokens) == (MAX_LISTED + 4, 1)
    assert [message.id for message in line.first] == others[:MAX_LISTED]
    assert {message.name for message in line.first} == {"sms"}
    assert all(began - 1 <= message.published_ms <= now_ms() for message in line.first)


def test_the_head_is_with_a_consumer(store, redis_client):
    """Whether it has started is known only of consumers that list what they run."""
    first, *_ = fill()
    (item,) = take(store)
    consumers = get_config().queue("emails").keys.consumers
    places = []
    for more in ({}, {"running": []}, {"running": [[item.stream, item.entry.decode(), 60_000]]}):
        redis_client.hset(consumers, f"consumer:{CONSUMER}", json.dumps({"supervisor": "s1", **more}))
        beat("emails", "s1")
        head = only_head()
        assert (head.id, head.name, head.attempt, head.consumer) == (first, "sms", 1, CONSUMER)
        assert not head.can_be_skipped
        places.append(head.state)
    assert places == ["held", "fetched", "running"]
    assert now_ms() - 120_000 < head.since_ms <= now_ms() - 59_000


def test_the_head_is_ready_again(store):
    first, *_ = fill()
    store.settle(CONSUMER, [Settlement(item, Retry(), delay_ms=60_000) for item in take(store)])
    store.reschedule(first, delay_ms=0)
    store.promote(limit=10)
    head = only_head()
    assert (head.state, head.id, head.attempt, head.can_be_skipped) == ("ready", first, 2, False)


def test_what_another_program_has_deleted_is_gone(store, redis_client):
    fill()
    (item,) = take(store)
    keys = get_config().queue("emails").keys
    redis_client.xack(keys.ready, "mq", item.entry)
    redis_client.xdel(keys.ready, item.entry)
    assert only_head().state == "gone"


def test_hostile_tokens_do_no_harm(store, redis_client, subtests):
    for token, place in [
        ("x", "gone"),
        ("0-x", "gone"),
        ("m-nobody", "gone"),
        ("d-1-1", "gone"),
        (b"\xff-\xff", "gone"),
        ("0-1-1", "gone"),
    ]:
        with subtests.test(token=token, place=place):
            redis_client.zadd(get_config().queue("emails").keys.permits, {token: LINE})
            assert only_head().state == place
            assert skip("emails", LINE, only_head().token) in ("RUNS", "CHANGED", "SKIPPED")
            redis_client.delete(get_config().queue("emails").keys.permits)


def test_hostile_bodies_do_no_harm(store, redis_client, subtests):
    for body in [b"", b"\xff", b"{", b"[]", b"9" * 60_000, b"2:id,", b"{" + b" " * 60_000, None]:
        with subtests.test(body=body):
            keys = get_config().queue("emails").keys
            redis_client.zadd(keys.parked, {"p:1": LINE})
            redis_client.zadd(keys.due, {"p:2": 5})
            redis_client.zadd(keys.permits, {"m-p:2": LINE})
            if body is not None:
                redis_client.hset(keys.waiting, mapping={"p:1": body, "p:2": body})
            line = inspector.key_line("emails", "a")
            assert ([message.ref for message in line.first], line.heads[0].state) == (["p:1"], "delayed")
            redis_client.delete(keys.waiting)


def test_looking_changes_nothing(store, redis_client, namespace):
    fill()
    take(store)
    before = {key: redis_client.dump(key) for key in redis_client.scan_iter(match=f"{namespace}:*")}
    inspector.key_line("emails", "a")
    assert {key: redis_client.dump(key) for key in redis_client.scan_iter(match=f"{namespace}:*")} == before


def bury_head(store):
    settle(store, take(store), Bury("ValueError: no", reason="attempts"))


def delay_head(store):
    store.settle(CONSUMER, [Settlement(item, Retry(), delay_ms=60_000) for item in take(store)])


def set_head_aside(store):
    settle(store, take(store), SetAside())


@pytest.mark.parametrize(
    ("put", "where"), [(bury_head, "dead"), (delay_head, "delayed"), (set_head_aside, "unhandled")]
)
def test_a_key_goes_on_without_a_head_that_waits(opened, put, where):
    store = opened(ORDERED=True, ON_DEAD_LETTER="hold")
    _, second, _ = fill()
    put(store)
    assert take(store) == []
    assert skip("emails", LINE, only_head().token) == "SKIPPED"
    assert [item.message.id for item in take(store)] == [second]
    assert getattr(store.depths(), where) == 1
