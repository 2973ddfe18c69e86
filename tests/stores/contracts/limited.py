"""Queues with limits: of the queue, of a key, by time and at once."""

from collections.abc import Iterator
from typing import Any

from mq_django.core.jsontext import dumps
from mq_django.core.limits import key_hash
from mq_django.core.messages import ACK, Bury, Cancel, Delivery, HandBack, Retry, SetAside
from mq_django.stores.base import Settlement, Store
from mq_django.stores.dead_letters import open_dead_letters
from mq_django.stores.stream_store import StreamStore
from tests.stores.contracts.frozen import NOW_MS
from tests.stores.contracts.stage import Stage, message_of
from tests.stores.everything import ME, OTHER


def scenes() -> Iterator[Any]:
    """Yield every scene."""
    yield from (of_queue_by_rate, of_queue_at_once, of_key_at_once, of_key_by_rate, of_all, past_the_limits)
    yield from (of_ranked, of_order, of_order_that_holds, of_turns, of_another_setting, of_changed)


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
    stage.client.hset(store.keys.limits, "w", NOW_MS + 5000)
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
    stage.client.zadd(store.keys.next_checks, {key_hash("c"): NOW_MS}, xx=True)
    with stage.under("its turn, and its permit was forgotten"):
        assert len(store.take(ME, count=10)) == 1


def of_key_by_rate(stage: Stage) -> None:
    store = stage.queue(RATE_LIMIT={"key": "1/s"})
    store.publish([message_of(n, key=key) for n, key in ((1, "a"), (2, "a"), (3, "b"))])
    stage.client.zadd(store.keys.rates, {"past": 5, "b": 6})
    stage.client.hset(store.keys.limits, mapping={"r:past": "5:1", "r:b": f"{NOW_MS - 1000}000:1"})
    with stage.under("one of a key in a second; forgotten keys go"):
        store.take(ME, count=10)
    stage.client.zadd(store.keys.next_checks, {key_hash("a"): NOW_MS}, xx=True)
    with stage.under("its turn, but no grant is free"):
        store.take(ME, count=10)
    stage.client.hset(store.keys.limits, "r:a", "5:1")
    stage.client.zadd(store.keys.next_checks, {key_hash("a"): NOW_MS, key_hash("unknown"): 5})
    with stage.under("its turn, and a grant is free; another has nothing parked"):
        assert len(store.take(ME, count=10)) == 1
    with stage.under("settled, with a rate and without a limit at once"):
        stage.settle(store, ACK, store.held_by(ME, limit=1))


def of_all(stage: Stage) -> None:
    store = stage.queue(RATE_LIMIT={"queue": "4/s", "key": "2/s"}, CONCURRENCY={"queue": 3, "key": 2})
    store.publish([message_of(n, key="a") for n in range(1, 7)])
    with stage.under("of the queue and of keys, by time and at once"):
        assert len(store.take(ME, count=10)) == 2


def past_the_limits(stage: Stage) -> None:
    """Take by a plain read, as a consumer does that knows no limits."""
    store = stage.queue(RATE_LIMIT={"queue": "4/s", "key": "2/s"}, CONCURRENCY={"queue": 4, "key": 1})
    plain = StreamStore(store.config, stage.transport())
    store.publish([message_of(n, key=key) for n, key in ((1, "a"), (2, "a"), (3, "b"), (4, "a"))])
    with stage.under("without a token they go back"):
        assert store.admit(ME, plain.take(ME, count=4)) == []
    with stage.under("one of each key; those that came back are before others of their key"):
        assert len(store.take(ME, count=4)) == 2


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


def _ordered(stage: Stage, **options: object) -> tuple[Store, list[Delivery]]:
    """Return an ordered queue, and the first of three messages of `a` and the only one of `b`."""
    store = stage.queue(ORDERED=True, **options)
    store.publish([message_of(n, key=key) for n, key in ((1, "a"), (2, "a"), (3, "b"), (4, "a"))])
    with stage.under("one of each key"):
        taken = store.take(ME, count=10)
    assert len(taken) == 2
    return store, [item for item in taken if isinstance(item, Delivery)]


def of_order(stage: Stage) -> None:
    store, (first, other) = _ordered(stage)
    with stage.under("a retry keeps its key"):
        stage.settle(store, Retry(), [first], delay_ms=0)
    with stage.under("it is before all others"):
        assert store.promote(limit=5).moved == 1
    again = store.take(ME, count=5)
    with stage.under("handed back with its key"):
        stage.settle(store, HandBack(), again)
    with stage.under("set aside with its key"):
        stage.settle(store, SetAside(), store.take(ME, count=5))
    with stage.under("released with its key"):
        assert store.release_unhandled(None, limit=5) == 1
    with stage.under("a handler is interrupted, and the next of the key may run"):
        stage.settle(store, Cancel(), store.take(ME, count=5))
    with stage.under("extended"):
        store.extend(ME, [(other.stream, other.entry)])
    held = store.take(ME, count=5)
    stage.settle(store, Retry(), held, delay_ms=60_000)
    with stage.under("cancelled while it waits for another attempt: the next of the key may run"):
        store.cancel(message_of(2).message.id)
    with stage.under("the last of the key"):
        last = store.take(ME, count=5)
    stage.settle(store, ACK, last)


def of_order_that_holds(stage: Stage) -> None:
    store, (first, _) = _ordered(stage, ON_DEAD_LETTER="hold")
    with stage.under("buried with its key"):
        stage.settle(store, Bury("no"), [first])
    dead = open_dead_letters(store.config, stage.transport())
    (entry,) = dead.find([first.message.id])
    dead.redrive([str(entry)])
    stage.settle(store, Bury("no"), store.take(ME, count=5))
    (entry,) = dead.find([first.message.id])
    dead.resubmit(str(entry), message_id="corrected", text=b"5")
    again = store.take(ME, count=5)
    stage.settle(store, Bury("no"), again)
    (entry,) = dead.find(["corrected"])
    dead.delete([str(entry)])
    with stage.under("the next"):
        assert len(store.take(ME, count=5)) == 1


def of_turns(stage: Stage) -> None:
    store = stage.queue(FAIR={"b": 2})
    store.publish([message_of(n, key=key) for n, key in ((1, "a"), (2, "a"), (3, "a"), (4, "b"), (5, "b"), (6, None))])
    with stage.under("the first as it comes, all others get into lines"):
        store.take(ME, count=1)
    store.publish([message_of(7, key="a")])
    with stage.under("into lines, without room for any"):
        assert not store.line_up(ME)
    with stage.under("by turns"):
        store.take(ME, count=2)
    with stage.under("the rest by turns"):
        assert len(store.take(ME, count=10)) == 4


def of_another_setting(stage: Stage) -> None:
    _ordered(stage)
    limited = stage.queue(CONCURRENCY=5)
    with stage.under("handled with the other setting"):
        limited.create_groups()
    with stage.under("of another setting"):
        assert limited.take(ME, count=5) == []
    with stage.under("the setting that it has"):
        stage.queue(ORDERED=True)


def of_changed(stage: Stage) -> None:
    store = stage.queue(RATE_LIMIT={"queue": "2/h", "key": "1/h"}, CONCURRENCY={"queue": 9, "key": 9})
    store.publish([message_of(number, key="a") for number in range(1, 7)])
    store.take(ME, count=10)

    def change(**most: dict[str, int]) -> None:
        stage.client.hset(store.keys.control, "limits", dumps(most))
        stage.client.zadd(store.keys.next_checks, {key_hash("a"): NOW_MS}, xx=True)

    change(key_rate={"most": 4, "seconds": 3600})
    with stage.under("a rate of keys that was changed, and that of the queue"):
        assert len(store.take(ME, count=10)) == 1
    change(rate={"most": 0}, key_rate={"most": 4, "seconds": 3600}, concurrency={"most": 3})
    with stage.under("there is no rate of the queue now, and three may run at once"):
        assert store.take(ME, count=10)
    change(concurrency={"most": 1})
    with stage.under("more run than may now"):
        assert store.take(ME, count=10) == []
