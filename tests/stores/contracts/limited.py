"""Queues with limits: of the queue, of a key, by time and at once."""

from collections.abc import Iterator
from typing import Any

from mq_django.core.outcomes import ACK, HandBack
from mq_django.inspector.limit_use import limit_use
from mq_django.stores.base import Settlement
from mq_django.stores.stream_store import StreamStore
from tests.stores.contracts.frozen import NOW_MS
from tests.stores.contracts.stage import Stage, message_of
from tests.stores.everything import ME, OTHER


def scenes() -> Iterator[Any]:
    """Yield every scene."""
    yield from (of_queue_by_rate, of_queue_at_once, of_key_at_once, of_key_by_rate, of_all, past_the_limits)
    yield from (taken_and_parked, of_ranked)


def of_queue_by_rate(stage: Stage) -> None:
    store = stage.queue(RATE_LIMIT="3/s")
    store.publish([message_of(number) for number in range(1, 6)])
    stage.client.hset(store.keys.limits, "r", f"5:9 {NOW_MS - 1001}000:3 {NOW_MS - 10}000:1 {NOW_MS + 5000}000:1 x:y")
    with stage.under("two of three grants are free, for one"):
        assert len(store.take(ME, count=1)) == 1
    with stage.under("one of three grants is free"):
        assert len(store.take(ME, count=10)) == 1
    with stage.under("none is free: later"):
        assert store.take(ME, count=10) == []
    with stage.under("later than the one before"):
        store.take(OTHER, count=10)
    with stage.under("of the queue, by time"):
        limit_use(store.config, stage.wire())
    many = stage.queue(RATE_LIMIT="100/s")
    stage.client.hset(many.keys.limits, "r", f"{NOW_MS - 1}000:5")
    with stage.under("more than 64 in a window share words"):
        many.take(ME, count=10)


def of_queue_at_once(stage: Stage) -> None:
    store = stage.queue(CONCURRENCY=2)
    store.publish([message_of(number) for number in range(1, 5)])
    with stage.under("two at once"):
        taken = store.take(ME, count=10)
    with stage.under("full"):
        assert store.take(ME, count=10) == []
    with stage.under("one is free, and somebody waits for it"):
        store.settle(ME, [Settlement(taken[0], ACK)])
    with stage.under("for the one that is free"):
        store.take(ME, count=10)
    store.settle(ME, [Settlement(item, ACK) for item in store.held_by(ME, limit=5)])
    stage.client.hset(store.keys.limits, "w", "1")
    with stage.under("one of two permits: another is woken for the second"):
        store.take(ME, count=1)
    stage.client.hset(store.keys.control, "paused", "1")
    with stage.under("paused"):
        assert store.take(ME, count=10) == []


def of_key_at_once(stage: Stage) -> None:
    store = stage.queue(CONCURRENCY={"key": 1})
    store.publish([message_of(n, key=key) for n, key in ((1, "a"), (2, "a"), (3, "a"), (4, "b"), (5, None))])
    with stage.under("one of each key, and one without a key"):
        taken = store.take(ME, count=10)
    assert len(taken) == 3
    with stage.under("keys with parked messages"):
        limit_use(store.config, stage.wire())
    with stage.under("the next of its key is ready, and nothing stands before it"):
        store.settle(ME, [Settlement(taken[0], ACK)])
    store.publish([message_of(6)])
    with stage.under("no longer held by this one, but by another"):
        stage.lose(store, taken[1])
        store.settle(ME, [Settlement(taken[1], ACK)])
    found = store.take(ME, count=10)
    store.publish([message_of(7)])
    with stage.under("the next of its key is ready, behind another"):
        store.settle(ME, [Settlement(item, ACK) for item in found])
    with stage.under("with a permit that was given before"):
        store.take(ME, count=10)
    store.publish([message_of(8, key="c"), message_of(9, key="c")])
    assert len(store.take(ME, count=10)) == 1
    stage.client.delete(store.keys.permits)
    stage.client.zadd(store.keys.next_checks, {"c": NOW_MS}, xx=True)
    with stage.under("its turn, and its permit was forgotten"):
        assert len(store.take(ME, count=10)) == 1


def of_key_by_rate(stage: Stage) -> None:
    store = stage.queue(RATE_LIMIT={"key": "1/s"})
    store.publish([message_of(n, key=key) for n, key in ((1, "a"), (2, "a"), (3, "b"))])
    stage.client.zadd(store.keys.rates, {"past": 5, "b": 6})
    stage.client.hset(store.keys.limits, mapping={"r:past": "5:1", "r:b": f"{NOW_MS - 1000}000:1"})
    with stage.under("one of a key in a second; forgotten keys go"):
        store.take(ME, count=10)
    stage.client.zadd(store.keys.next_checks, {"a": NOW_MS}, xx=True)
    with stage.under("its turn, but no grant is free"):
        store.take(ME, count=10)
    stage.client.hset(store.keys.limits, "r:a", "5:1")
    stage.client.zadd(store.keys.next_checks, {"a": NOW_MS, "unknown": 5})
    with stage.under("its turn, and a grant is free; another has nothing parked"):
        assert len(store.take(ME, count=10)) == 1
    with stage.under("settled, with a rate and without a limit at once"):
        stage.settle(store, ACK, store.held_by(ME, limit=1))
    with stage.under("granted by key"):
        limit_use(store.config, stage.wire())


def of_all(stage: Stage) -> None:
    store = stage.queue(RATE_LIMIT={"queue": "4/s", "key": "2/s"}, CONCURRENCY={"queue": 3, "key": 2})
    store.publish([message_of(n, key="a") for n in range(1, 7)])
    with stage.under("of the queue and of keys, by time and at once"):
        assert len(store.take(ME, count=10)) == 2
    with stage.under("of all limits"):
        limit_use(store.config, stage.wire())


def past_the_limits(stage: Stage) -> None:
    """Take by a plain read, as a consumer does that was blocked or knows no limits."""
    store = stage.queue(RATE_LIMIT={"queue": "4/s", "key": "2/s"}, CONCURRENCY={"queue": 4, "key": 1})
    plain = StreamStore(store.config, stage.wire())
    store.publish([message_of(n, key=key) for n, key in ((1, "a"), (2, "a"), (3, "b"), (4, "a"))])
    with stage.under("by their keys alone: two may run, two are parked"):
        assert len(store.admit(ME, plain.take(ME, count=4))) == 2
    store.publish([message_of(5, key="c"), message_of(6)])
    with stage.under("by all limits"):
        assert len(stage.store("emails").fetch(ME, count=5, block_ms=1)) == 1
    stage.client.hset(store.keys.limits, "r", f"{NOW_MS - 10}000:4")
    with stage.under("no grant of the queue is free: it goes back"):
        assert stage.store("emails").fetch(ME, count=5, block_ms=1) == []


def taken_and_parked(stage: Stage) -> None:
    store = stage.queue(RATE_LIMIT={"queue": "9/s"}, CONCURRENCY={"key": 1})
    stage.client.hset(store.keys.limits, "r", f"{NOW_MS - 10}000:1")
    store.publish([message_of(n, key=key) for n, key in ((1, "a"), (2, "a"), (3, "a"))])
    with stage.under("what the queue's rate had granted to those that are parked is for others"):
        assert len(store.take(ME, count=5)) == 1
    stage.client.hset(store.keys.limits, "r", f"{NOW_MS - 10}000:1")
    store.publish([message_of(n, key="a") for n in (4, 5)])
    with stage.under("all of what the queue's rate had granted just now"):
        assert store.take(ME, count=5) == []


def of_ranked(stage: Stage) -> None:
    store = stage.queue(RATE_LIMIT={"queue": "100/h"})
    store.publish([message_of(1)])
    store.publish([message_of(2, priority=5), message_of(3, priority=-5)])
    with stage.under("by priority"):
        assert [item.message.id for item in store.take(ME, count=2)] == [message_of(n).message.id for n in (2, 1)]
    store.publish([message_of(4)])
    stage.settle(store, HandBack(), store.held_by(ME, limit=1))
    with stage.under("what was handed back, and no more"):
        assert len(store.take(ME, count=1)) == 1
