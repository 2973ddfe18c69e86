"""Queues in RSMQ's format: RSMQ's own operations, and what stores do beside settling."""

from collections.abc import Iterator
from typing import Any

import pytest

from mq_django.core.outcomes import HandBack, Retry, SetAside
from mq_django.errors import AlreadyPublished, MessageTooLarge, QueueExists, QueueFull, QueueNotFound
from mq_django.stores.base import Store
from mq_django.stores.members import Members
from mq_django.stores.rsmq_queues import RsmqQueues
from mq_django.stores.rsmq_store import RsmqStore
from tests.stores.contracts.frozen import NOW_MS
from tests.stores.contracts.stage import Stage, message_of, rsmq_id
from tests.stores.everything import ME, OTHER

MINUTE = 60_000


def scenes() -> Iterator[Any]:
    """Yield every scene."""
    yield from (attributes, send, send_as_rsmq, receive, receive_as_rsmq, change, waits, purge, tidy, hold, members)


def queues(stage: Stage, **options: Any) -> RsmqQueues:
    return RsmqQueues(f"{stage.namespace}:r", stage.wire(), **options)


def attributes(stage: Stage) -> None:
    rsmq = queues(stage)
    with stage.under("created, and there already"):
        rsmq.create("emails", vt=5, delay=1, maxsize=2000)
        with pytest.raises(QueueExists):
            rsmq.create("emails")
    with stage.under("read, and then changed"):
        assert rsmq.attributes("emails").vt == 5
        assert rsmq.attributes("emails", {"vt": 9, "maxsize": -1}).vt == 9
    rsmq.send("emails", ["a", "b"], delay=9)
    rsmq.send("emails", ["a"], delay=0)
    with stage.under("with messages"):
        assert rsmq.attributes("emails").hiddenmsgs == 2
    with stage.under("deleted"):
        rsmq.delete_queue("emails")
    with stage.under("of no queue"):
        for act in (rsmq.attributes, rsmq.delete_queue, rsmq.receive, rsmq.pop):
            with pytest.raises(QueueNotFound):
                act("emails")
        with pytest.raises(QueueNotFound):
            rsmq.send("emails", ["a"])
        with pytest.raises(QueueNotFound):
            rsmq.show("emails", rsmq_id(1), 5)


def send(stage: Stage) -> None:
    store = stage.rsmq(REALTIME=True, MAX_DEPTH=4, MAXSIZE=1024, DELAY=7)
    with stage.under("two names, by the queue's delay"):
        store.publish([message_of(1), message_of(2, "report")])
    with stage.under("before the others, and after them"):
        store.publish([message_of(3, delay_ms=0)])
        store.publish([message_of(4, due_ms=NOW_MS + MINUTE)])
    with stage.under("full"), pytest.raises(QueueFull):
        store.publish([message_of(5)])
    store = stage.rsmq(MAXSIZE=1024)
    with stage.under("too long"), pytest.raises(MessageTooLarge):
        store.publish([message_of(5), message_of(6, headers={"a": "b" * 1024})])
    with stage.under("its id is another's"), pytest.raises(AlreadyPublished):
        store.publish([message_of(1)])


def send_as_rsmq(stage: Stage) -> None:
    rsmq = queues(stage, realtime=True)
    rsmq.create("emails", delay=2, maxsize=-1)
    with stage.under("two, without names, whose ids say when they were sent"):
        rsmq.send("emails", ["one", "zw\u00f6lf"])
    rsmq.attributes("emails", {"maxsize": 1024})
    with stage.under("as long as it may be"):
        rsmq.send("emails", ["x" * 1024])
    with stage.under("with a delay of its own"):
        rsmq.send("emails", ["three"], delay=0)


def receive(stage: Stage) -> None:
    store = stage.rsmq(VT=20)
    with stage.under("nothing is there"):
        assert store.take(ME, count=5) == []
    store.publish([message_of(1), message_of(2), message_of(3), message_of(4, due_ms=NOW_MS + 1)])
    with stage.under("two of three; another is hidden for a millisecond"):
        taken = store.take(ME, count=2)
    stage.settle(store, HandBack(suspect=True), taken[:1])
    stage.settle(store, Retry(error="no"), taken[1:], delay_ms=0)
    stage.client.hdel(store.keys.hash, rsmq_id(3))
    stage.client.hset(store.keys.hash, mapping={f"{rsmq_id(3)}:rc": 1, f"{rsmq_id(3)}:fr": 1, "totalrecv": "x"})
    with stage.under("received before, with notes; and one without a body"):
        assert len(store.take(ME, count=5)) == 2
    stage.settle(store, SetAside(), store.held_by(ME, limit=1))
    stage.client.zadd(store.keys.zset, {message_of(1).message.id: 5}, xx=True)
    with stage.under("what was unhandled"):
        assert len(store.take(OTHER, count=5)) == 1
    stage.client.hset(store.keys.control, "paused", "1")
    with stage.under("paused"):
        assert store.take(ME, count=5) == []


def receive_as_rsmq(stage: Stage) -> None:
    rsmq = queues(stage)
    rsmq.create("emails", vt=5)
    ids = rsmq.send("emails", ["one", "two", "three"])
    stage.client.hset(f"{stage.namespace}:r:emails:mq:control", "paused", "1")
    with stage.under("as RSMQ does it: a pause does not matter, and nobody is remembered"):
        rsmq.receive("emails")
    with stage.under("for a time of its own"):
        rsmq.receive("emails", vt=60, count=1)
    with stage.under("received before"):
        assert rsmq.show("emails", ids[0], 0)
        assert rsmq.pop("emails")
    with stage.under("the first time"):
        assert rsmq.pop("emails")
    with stage.under("nothing can be seen"):
        assert rsmq.pop("emails") is None
    with stage.under("one that is there, and one that is not"):
        assert rsmq.delete("emails", [ids[1], ids[0]]) == 1


def change(stage: Stage) -> None:
    store, rsmq = stage.rsmq(VT=20), queues(stage)
    store.publish([message_of(1), message_of(2)])
    taken = store.take(ME, count=2)
    stage.settle(store, HandBack(lost=True), taken[:1])
    with stage.under("later than the other: nobody is told; and of no message"):
        assert rsmq.show("emails", rsmq_id(2), 90)
        assert not rsmq.show("emails", rsmq_id(3), 90)
    with stage.under("the first, so that another is first now"):
        assert rsmq.show("emails", rsmq_id(1), 95)
    with stage.under("held by a consumer, with notes"):
        assert rsmq.delete("emails", [rsmq_id(1), rsmq_id(2)]) == 2


#: What each of these messages waits for.
WAITS = {1: "can be seen", 2: "delayed", 3: "held", 4: "unhandled", 5: "retried", 6: "retried, and hidden by another"}


def everywhere(stage: Stage) -> Store:
    """Let a message be in every place."""
    store = stage.rsmq(VT=20)
    taken = stage.taken(store, *(message_of(number) for number in (3, 4, 5, 6)))
    stage.settle(store, SetAside(), taken[1:2])
    stage.settle(store, Retry(error="no"), taken[2:], delay_ms=MINUTE, alone=True)
    stage.client.zadd(store.keys.zset, {rsmq_id(6): NOW_MS + 1}, xx=True)
    store.publish([message_of(1), message_of(2, delay_ms=MINUTE)])
    return store


def waits(stage: Stage) -> None:
    store = everywhere(stage)
    for number, title in WAITS.items():
        with stage.under(title):
            store.find(rsmq_id(number))
            store.reschedule(rsmq_id(number), delay_ms=2 * MINUTE)
            store.cancel(rsmq_id(number))
    store.publish([message_of(7, delay_ms=MINUTE)])
    with stage.under("at a fixed time"):
        store.reschedule(rsmq_id(7), due_ms=NOW_MS + 5)


def purge(stage: Stage) -> None:
    for place in ("", "ready", "delayed", "unhandled"):
        store = everywhere(stage)
        with stage.under(f"what is {place or 'anywhere'}"):
            assert store.purge(limit=10, place=place)
        stage.clear()
    store = everywhere(stage)
    with stage.under("at most one at a time"):
        assert store.purge(limit=1, place="delayed") == 1


def tidy(stage: Stage) -> None:
    store = everywhere(stage)
    with stage.under("nothing is to be forgotten"):
        store.promote(limit=5)
    keys = store.keys
    stage.client.hset(keys.owners, mapping={"gone": "c 1", rsmq_id(3): "c 5"})
    stage.client.hset(keys.notes, mapping={"gone:free": 1, "strange": 1})
    stage.client.zadd(keys.unhandled, {"gone": 1})
    stage.client.zadd(keys.retried, {"gone": 1})
    stage.client.hset(keys.control, "paused", "1")
    with stage.under("something of everything is, and the queue is paused"):
        assert store.promote(limit=5).paused


def hold(stage: Stage) -> None:
    store = everywhere(stage)
    assert isinstance(store, RsmqStore)
    stage.client.zadd(store.keys.zset, {rsmq_id(3): NOW_MS + 1000})
    assert store.take(ME, count=1)
    stage.client.hset(store.keys.owners, mapping={"gone": f"{ME} 1", rsmq_id(5): f"{OTHER} 1"})
    stage.client.hset(store.keys.notes, f"{rsmq_id(3)}:free", 1)
    stage.client.hdel(store.keys.hash, f"{rsmq_id(1)}:fr")
    with stage.under("with bodies; one was deleted meanwhile"):
        assert len(store.held_by(ME, limit=5)) == 2
    with stage.under("without bodies"):
        assert store.holds(ME)
    stage.client.hset(store.keys.owners, "gone", f"{ME} 1")
    with stage.under("of two consumers; one was deleted meanwhile"):
        assert store.extend_all([ME, OTHER]) == 3
    with stage.under("two of everything"):
        store.depths()


def members(stage: Stage) -> None:
    store = everywhere(stage)
    membership: Members = stage.members(store)
    with stage.under("of a queue in RSMQ's format"):
        assert membership.beat("s1", {"pid": 1}, {ME: {}})
        membership.leave([ME, OTHER], supervisor="s1")
