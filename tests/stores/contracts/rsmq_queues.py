"""Queues in RSMQ's format: RSMQ's own operations, and what consumers do beside settling."""

from collections.abc import Iterator
from typing import Any

import pytest

from mq_django.core.messages import HandBack, Retry, SetAside
from mq_django.errors import AlreadyPublished, MessageTooLarge, QueueExists, QueueFull, QueueNotFound
from mq_django.stores.members import Members
from mq_django.stores.rsmq_queues import RsmqQueues
from tests.stores.contracts.frozen import NOW_MS
from tests.stores.contracts.stage import Stage, message_of, rsmq_id
from tests.stores.everything import ME, OTHER

MINUTE = 60_000


def scenes() -> Iterator[Any]:
    """Yield every scene."""
    yield from (attributes, send, send_as_rsmq, receive, receive_as_rsmq, change, members)


def queues(stage: Stage, **options: Any) -> RsmqQueues:
    return RsmqQueues(f"{stage.namespace}:r", stage.transport(), **options)


def attributes(stage: Stage) -> None:
    rsmq = queues(stage)
    with stage.under("created, and there already"):
        rsmq.create_queue("emails", vt=5, delay=1, maxsize=2000)
        with pytest.raises(QueueExists):
            rsmq.create_queue("emails")
    with stage.under("read, and then changed"):
        assert rsmq.get_queue_attributes("emails").vt == 5
        assert rsmq.set_queue_attributes("emails", vt=9, maxsize=-1).vt == 9
    rsmq.send_many("emails", ["a", "b"], delay=9)
    rsmq.send_many("emails", ["a"], delay=0)
    with stage.under("with messages"):
        assert rsmq.get_queue_attributes("emails").hiddenmsgs == 2
    with stage.under("deleted"):
        rsmq.delete_queue("emails")
    with stage.under("of no queue"):
        for act in (rsmq.get_queue_attributes, rsmq.delete_queue, rsmq.receive, rsmq.pop):
            with pytest.raises(QueueNotFound):
                act("emails")
        with pytest.raises(QueueNotFound):
            rsmq.send_many("emails", ["a"])
        with pytest.raises(QueueNotFound):
            rsmq.change_visibility("emails", rsmq_id(1), 5)


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
    rsmq.create_queue("emails", delay=2, maxsize=-1)
    with stage.under("two, without names, whose ids say when they were sent"):
        rsmq.send_many("emails", ["one", "zw\u00f6lf"])
    rsmq.set_queue_attributes("emails", maxsize=1024)
    with stage.under("as long as it may be"):
        rsmq.send_many("emails", ["x" * 1024])
    with stage.under("with a delay of its own"):
        rsmq.send_many("emails", ["three"], delay=0)


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
    stage.client.zadd(store.keys.zset, {message_of(1).message.id: 6}, xx=True)
    with stage.under("its machine was lost"):
        assert len(store.take(ME, count=5)) == 1
    stage.client.hset(store.keys.consumers, f"consumer:{ME}", '{"quarantine": true}')
    stage.client.zadd(store.keys.zset, {message_of(1).message.id: 7}, xx=True)
    with stage.under("it ran alone, and its machine was lost"):
        assert len(store.take(ME, count=5)) == 1
    stage.client.hset(store.keys.control, "paused", "1")
    with stage.under("paused"):
        assert store.take(ME, count=5) == []


def receive_as_rsmq(stage: Stage) -> None:
    rsmq = queues(stage)
    rsmq.create_queue("emails", vt=5)
    ids = rsmq.send_many("emails", ["one", "two", "three"])
    stage.client.hset(f"{stage.namespace}:r:emails:mq:control", "paused", "1")
    with stage.under("as RSMQ does it: a pause does not matter, and nobody is remembered"):
        rsmq.receive("emails")
    with stage.under("for a time of its own"):
        rsmq.receive("emails", vt=60)
    with stage.under("received before"):
        assert rsmq.change_visibility("emails", ids[0], 0)
        assert rsmq.pop("emails")
    with stage.under("the first time"):
        assert rsmq.pop("emails")
    with stage.under("nothing can be seen"):
        assert rsmq.pop("emails") is None
    with stage.under("one that is there, and one that is not"):
        assert rsmq._delete_all("emails", [ids[1], ids[0]]) == 1


def change(stage: Stage) -> None:
    store, rsmq = stage.rsmq(VT=20), queues(stage)
    store.publish([message_of(1), message_of(2)])
    taken = store.take(ME, count=2)
    stage.settle(store, HandBack(lost=True), taken[:1])
    with stage.under("later than the other: nobody is told; and of no message"):
        assert rsmq.change_visibility("emails", rsmq_id(2), 90)
        assert not rsmq.change_visibility("emails", rsmq_id(3), 90)
    with stage.under("the first, so that another is first now"):
        assert rsmq.change_visibility("emails", rsmq_id(1), 95)
    with stage.under("held by a consumer, with notes"):
        assert rsmq._delete_all("emails", [rsmq_id(1), rsmq_id(2)]) == 2


def members(stage: Stage) -> None:
    store = stage.rsmq(VT=20)
    stage.taken(store, message_of(1))
    membership: Members = stage.members(store)
    with stage.under("of a queue in RSMQ's format"):
        assert membership.beat("s1", {"pid": 1}, {ME: {}})
        membership.leave([ME, OTHER], supervisor="s1")
