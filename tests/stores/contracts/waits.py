"""What waits beside a queue: delayed, unique, claimed, with a priority, unhandled."""

from collections.abc import Iterator
from typing import Any

import pytest

from mq_django.core.messages import ACK, HandBack, SetAside
from mq_django.core.publication import Publication, publication
from mq_django.errors import AlreadyPublished, QueueFull
from mq_django.stores.base import Store
from tests.stores.contracts.frozen import NOW_MS
from tests.stores.contracts.stage import Stage, message_of
from tests.stores.everything import ME

MINUTE = 60_000


def scenes() -> Iterator[Any]:
    """Yield every scene."""
    yield from (add, add_unique, replace_many, add_taken_id, full, just_fits, cancel, promote)
    yield from (promote_by_priority, rank, rank_before_others, rank_beside_handed_back, release, unclaim)
    yield from (rank_with_ageing, begin_and_end_ageing)


def unique(number: int, key: str, **options: Any) -> Publication:
    return message_of(number, unique=key, **{"delay_ms": MINUTE, **options})


def add(stage: Stage) -> None:
    store = stage.queue()
    with stage.under("two of one name and another, the first of all"):
        store.publish([message_of(1, delay_ms=MINUTE), message_of(2, delay_ms=0), message_of(3, "report", due_ms=1)])
    with stage.under("one that is due later: nobody is told"):
        store.publish([message_of(4, due_ms=NOW_MS + MINUTE, priority=-7)])


def add_unique(stage: Stage) -> None:
    store = stage.queue()
    with stage.under("under a unique key"):
        store.publish([unique(1, "cart")])
    with stage.under("in place of the one before, sooner, and a new one beside it"):
        store.publish([unique(2, "cart", delay_ms=1000), unique(3, "basket")])
    with stage.under("kept: the one before stays"):
        assert store.publish([unique(4, "cart", on_conflict="keep")])[0] != message_of(4).message.id
    with stage.under("earliest, and this one is"):
        store.publish([unique(5, "cart", delay_ms=1, on_conflict="earliest")])
    with stage.under("earliest, and they are due at the same time"):
        store.publish([unique(9, "cart", delay_ms=1, on_conflict="earliest")])
    with stage.under("earliest, and the one before is"):
        store.publish([unique(6, "cart", on_conflict="earliest")])
    with stage.under("with the latest time to which others may postpone it"):
        store.publish([unique(10, "limited", postpone_ms=500)])
    with stage.under("that time has come"):
        store.publish([unique(11, "limited", delay_ms=2 * MINUTE)])
    with stage.under("refused: the key is taken"), pytest.raises(AlreadyPublished):
        store.publish([unique(7, "cart", on_conflict="error")])
    with stage.under("not refused: the key is free"):
        store.publish([unique(8, "free", on_conflict="error")])


def replace_many(stage: Stage) -> None:
    store = stage.queue()
    store.publish([unique(1, "cart")])
    stage.client.zadd(store.keys.replaced, {f"r{number}": number for number in range(10_000)})
    with stage.under("after ten thousand replaced ones"):
        store.publish([unique(2, "cart")])


def add_taken_id(stage: Stage) -> None:
    store = stage.queue()
    store.publish([message_of(1, delay_ms=MINUTE)])
    with stage.under("another message waits under its id"):
        store.publish([message_of(1, delay_ms=MINUTE), message_of(1, delay_ms=MINUTE)])


def full(stage: Stage) -> None:
    store = stage.queue(MAX_DEPTH=3)
    with stage.under("with a limit, and there is room"):
        store.publish([message_of(1)])
        store.publish([message_of(2, priority=5)])
        store.publish([unique(3, "cart")])
    with stage.under("full: refused"):
        for refused in (message_of(4), message_of(4, priority=5), message_of(4, delay_ms=1)):
            with pytest.raises(QueueFull):
                store.publish([refused])
    with stage.under("full, and it replaces another: not refused"):
        store.publish([unique(5, "cart")])


def just_fits(stage: Stage) -> None:
    kinds = (message_of(3), message_of(3, priority=5), message_of(3, delay_ms=MINUTE))
    for item in kinds:
        store = stage.queue(MAX_DEPTH=4)
        store.publish([message_of(1, delay_ms=MINUTE)])
        stage.settle(store, HandBack(), stage.taken(store, message_of(2)))
        store.publish([message_of(4)])
        with stage.under("as many as it may hold"):
            store.publish([item])
        stage.clear()


def claims(number: int, **options: Any) -> Publication:
    return message_of(number, **{"unique": "cart", "claim_ms": 0, "on_conflict": "error", **options})


def everywhere(stage: Stage) -> Store:
    """Let a message wait in every place, and one under each kind of unique key."""
    store = stage.queue()
    store.publish([message_of(1, delay_ms=MINUTE), unique(2, "cart"), unique(3, "old")])
    store.publish([unique(4, "old")])
    store.publish([claims(5, unique="claimed", delay_ms=MINUTE)])
    stage.settle(store, SetAside(), stage.taken(store, message_of(6)))
    store.publish([message_of(7, priority=5), message_of(8, priority=5)])
    keys = store.keys
    stage.client.zadd(keys.parked, {"p:1": 9})
    stage.client.hset(keys.waiting, "p:1", '{"id":"parked"}')
    stage.client.hset(keys.unique, mapping={"p:1": "parked", "parked": "p:1"})
    return store


#: What each of them is called by.
NAMED = {
    "delayed": message_of(1).message.id,
    "by its unique key": "u:cart",
    "by its id, under a unique key": message_of(4).message.id,
    "replaced by another": message_of(3).message.id,
    "by the key it claims": "u:claimed",
    "unhandled": message_of(6).message.id,
    "with a priority": message_of(8).message.id,
    "parked": "parked",
    "parked, by its place in line": "p:1",
    "ready": message_of(7).message.id,
    "of an unknown unique key": "u:unknown",
}


def cancel(stage: Stage) -> None:
    store = everywhere(stage)
    for title, named in NAMED.items():
        with stage.under(title):
            store.cancel(named)
    task = stage.queue(RESULT_TTL=60)
    task.publish([publication(task.config, "shop.tasks.send", {}, delay=60, message_id="task", runs_task=True)])
    with stage.under("its result is ended, too"):
        task.cancel("task")
    with stage.under("a task, and another that replaces it"):
        for data in (1, 2):
            task.publish([publication(task.config, "shop.tasks.send", data, delay=60, unique="u", runs_task=True)])


def promote(stage: Stage) -> None:
    store = everywhere(stage)
    with stage.under("nothing is due, and what is parked is free"):
        store.promote(limit=10)
    stage.make_due(store, message_of(1).message.id, "u:cart", "u:old")
    stage.client.hdel(store.keys.waiting, "u:old")
    stage.client.hset(store.keys.control, "paused", "1")
    with stage.under("three are due, one of them without a body, and the queue is paused"):
        assert store.promote(limit=10).moved == 3
    limited = stage.queue(CONCURRENCY={"key": 1})
    stage.client.zadd(limited.keys.parked, {"p:2": 9})
    with stage.under("what is parked stays while keys have limits"):
        assert limited.promote(limit=10).moved == 0
    store = stage.queue()
    stage.clear()
    store.publish([message_of(1, due_ms=NOW_MS), message_of(2, due_ms=NOW_MS + 1)])
    with stage.under("one is due now, another in a millisecond"):
        assert store.promote(limit=10).moved == 1
    stage.clear()
    store.publish([message_of(1, delay_ms=1), message_of(2, delay_ms=2), message_of(1, delay_ms=3)])
    stage.client.zadd(store.keys.due, dict.fromkeys(stage.client.zrange(store.keys.due, 0, -1), 5))
    with stage.under("more are due than it may move"):
        assert store.promote(limit=2).moved == 2
    with stage.under("the rest, one of which another had taken the id of"):
        store.promote(limit=2)


def promote_by_priority(stage: Stage) -> None:
    store = stage.queue()
    store.publish([message_of(number, delay_ms=1, priority=level) for number, level in ((1, 0), (2, 9), (3, -9))])
    stage.make_due(store, *(message_of(number).message.id for number in (1, 2, 3)))
    with stage.under("with priorities, into an empty queue"):
        store.promote(limit=10)
    store.publish([message_of(number, delay_ms=1, priority=level) for number, level in ((4, 5), (5, 0))])
    stage.make_due(store, *(message_of(number).message.id for number in (4, 5)))
    with stage.under("with priorities, behind others"):
        store.promote(limit=10)


def rank(stage: Stage) -> None:
    store = stage.queue()
    with stage.under("into an empty queue that knew no priorities: all become ready"):
        store.publish([message_of(1, priority=5), message_of(2), message_of(3, "report", priority=-5)])
    with stage.under("behind others: each by its priority"):
        store.publish(
            [message_of(4, priority=100), message_of(5, priority=-100), message_of(6), message_of(7, priority=5)]
        )
    store.take(ME, count=10)
    with stage.under("all are handed out: the first is ready at once, the others stand behind it"):
        store.publish([message_of(8, priority=5), message_of(9, priority=7)])


def rank_before_others(stage: Stage) -> None:
    store = stage.queue()
    levels = {1: 5, 2: 0, 3: -5, 4: 7, 5: 5, 6: -100}
    store.publish([message_of(1, priority=5)])
    store.publish([message_of(number, priority=level) for number, level in levels.items() if number > 1])
    store.publish([message_of(7), message_of(8)])
    with stage.under("by priority, and what was ready with one goes where it belongs"):
        taken = store.take(ME, count=3)
    with stage.under("handed back, before all others"):
        stage.settle(store, HandBack(), taken)
    for turn, title in ((15, "each 16th fetch takes what is ready first"), (31, "or what has waited longest")):
        stage.client.hset(store.keys.control, "turns", turn)
        with stage.under(f"{title}, of each priority"):
            store.take(ME, count=3)
    with stage.under("the rest"):
        store.take(ME, count=10)
    stage.settle(store, ACK, store.held_by(ME, limit=10))
    store.publish([message_of(9)])
    store.publish([message_of(10, priority=5), message_of(11, priority=-5)])
    store.take(ME, count=1)
    with stage.under("a reader has woken, and the next is made ready for another"):
        store.fetch(ME, count=1, block_ms=1)
    stage.client.hset(store.keys.control, "paused", "1")
    with stage.under("paused"):
        store.take(ME, count=10)


def rank_beside_handed_back(stage: Stage) -> None:
    store = stage.queue()
    store.publish([message_of(1)])
    store.publish([message_of(2, priority=5), message_of(3, priority=6)])
    taken = store.take(ME, count=1)
    stage.settle(store, HandBack(), taken)
    stage.client.hset(store.keys.control, "turns", "x")
    with stage.under("what was handed back, then by priority, and the turn is no number"):
        assert len(store.take(ME, count=3)) == 3


def rank_with_ageing(stage: Stage) -> None:
    store = stage.queue(PRIORITY_AGEING=60)
    with stage.under("the first, and one behind it"):
        store.publish([message_of(1, priority=-5), message_of(2, priority=-7)])
    store.publish([message_of(number, priority=5) for number in (3, 4)])
    store.publish([message_of(5), message_of(6)])
    with stage.under("with a claim, and delayed"):
        store.publish([claims(7, priority=10)])
        store.publish([message_of(8, priority=-1, delay_ms=0)])
        store.promote(limit=10)
    with stage.under("by their age"):
        store.take(ME, count=4)
    with stage.under("the rest: those without a priority are in their order"):
        store.take(ME, count=3)
    with stage.under("a reader has woken: the next is made ready, and its age is noted"):
        store.fetch(ME, count=1, block_ms=1)
    with stage.under("nobody read it: it goes where it belongs"):
        store.publish([message_of(9)])
        store.take(ME, count=1)
    store = stage.queue(PRIORITY_AGEING=60, CONCURRENCY={"key": 5})
    store.publish([message_of(10, key="a"), message_of(11, priority=-1, key="a")])
    with stage.under("with limits by key"):
        store.take(ME, count=10)


def begin_and_end_ageing(stage: Stage) -> None:
    strict = stage.queue()
    strict.publish([message_of(1), message_of(2, priority=5), message_of(3, priority=-5), message_of(4, priority=-5)])
    aged = stage.queue(PRIORITY_AGEING=60)
    with stage.under("the queue gets ageing"):
        aged.take(ME, count=1)
    with stage.under("what was ranked waits from now on"):
        aged.take(ME, count=1)
    strict = stage.queue()
    with stage.under("the queue has it no more"):
        strict.take(ME, count=1)
    strict.publish([message_of(5), message_of(6, priority=-9)])
    with stage.under("what was ranked with it keeps its place"):
        strict.take(ME, count=2)
    with stage.under("nothing is left"):
        strict.take(ME, count=1)


def release(stage: Stage) -> None:
    store = stage.queue()
    items = [message_of(1), message_of(2, "report"), message_of(3, priority=5), message_of(4, priority=-5)]
    stage.settle(store, SetAside(), [stage.taken(store, item)[0] for item in items])
    store.publish([message_of(5, delay_ms=MINUTE)])
    stage.settle(store, SetAside(), stage.taken(store, message_of(5, "taken")))
    with stage.under("one whose id another waits under"):
        assert store.release_unhandled(["taken"], limit=5) == 1
    store.take(ME, count=1)
    with stage.under("one of a name"):
        assert store.release_unhandled(["report"], limit=5) == 1
    with stage.under("two of three, one with a priority, behind another"):
        assert store.release_unhandled(["welcome"], limit=2) == 2


def unclaim(stage: Stage) -> None:
    store = stage.queue()
    for number, key in ((1, "a"), (2, "b"), (3, "c")):
        store.publish([claims(number, unique=key)])
    taken = store.take(ME, count=3)
    stage.lose(store, taken[1])
    stage.client.hset(store.keys.claims, "k:c", "5:another")
    with stage.under("two are done, of which one's key is another's by now; a third is no longer held"):
        stage.settle(store, ACK, taken)
