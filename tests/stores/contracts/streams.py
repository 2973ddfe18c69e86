"""Queues in streams: published, fetched, and who consumes them."""

from collections.abc import Iterator
from typing import Any

from mq_django.core.messages import ACK, HandBack, SetAside
from tests.stores.contracts.stage import Stage, message_of
from tests.stores.everything import ME, OTHER


def scenes() -> Iterator[Any]:
    """Yield every scene."""
    yield from (publish, fetch, members, members_of_strangers)


def publish(stage: Stage) -> None:
    store = stage.queue()
    items = [message_of(1), message_of(2, "report"), message_of(3, key="k"), message_of(4, headers={"a": "b"})]
    with stage.under("four, of two names, with different fields"):
        store.publish(items)
    hours, days = (key for key in stage.client.scan_iter(match=f"*{stage.namespace}*counters*"))
    for key in (hours, days):
        stage.client.hset(key, mapping={"n|": 1000})
    with stage.under("of a name beyond a thousand"):
        store.publish([message_of(5, "new"), message_of(6)])


def fetch(stage: Stage) -> None:
    store = stage.queue()
    with stage.under("nothing is there"):
        store.take(ME, count=5)
    store.publish([message_of(1), message_of(2), message_of(3)])
    with stage.under("two of three"):
        taken = store.take(ME, count=2)
    stage.settle(store, HandBack(), taken)
    with stage.under("what was handed back, and then the rest"):
        assert len(store.take(ME, count=5)) == 3


def members(stage: Stage) -> None:
    store = stage.queue()
    stage.taken(store, message_of(1))
    membership = stage.members(store)
    with stage.under("for the first time, of a queue without a generation"):
        found = membership.beat("s1", {"pid": 1}, {ME: {"pid": 2}})
    with stage.under("again"):
        membership.beat("s1", {"pid": 1}, {ME: {"pid": 2}, OTHER: {}}, generation=found.generation)
    with stage.under("for another, who is gone"):
        assert membership.keep_alive("s1")
    with stage.under("a consumer and a supervisor"):
        assert [
            membership.ask(ME, "quiet"),
            membership.ask(ME, "quiet"),
            membership.ask(ME, "stop"),
            membership.ask(ME, "quiet"),
        ] == [
            *("ASKED", "ASKED_BEFORE", "ASKED", "ASKED_BEFORE"),
        ]
        assert [membership.ask("s1", "stop"), membership.ask("s9", "stop")] == ["ASKED", "GONE"]
    with stage.under("one holds something, and the supervisor stays with it"):
        assert membership.leave([ME, OTHER], supervisor="s1") == [ME]
    with stage.under("has beaten since"):
        assert not membership.evict("s1", 1)
    with stage.under("has not"):
        assert membership.evict("s1", 3)
    with stage.under("without a heartbeat"):
        assert membership.evict("s8", -1)
    with stage.under("evicted"):
        assert membership.beat("s1", {"pid": 1}, {ME: {}}, generation=found.generation) is None
    stage.settle(store, ACK, store.held_by(ME, limit=1))
    with stage.under("all is done, and its stream forgets the consumer"):
        assert membership.leave([ME]) == []
    with stage.under("nothing is held, and the supervisor leaves, too"):
        assert membership.leave([OTHER, "unknown"], supervisor="s1") == []


def members_of_strangers(stage: Stage) -> None:
    store = stage.queue()
    membership = stage.members(store)
    membership.beat("s1", {}, {ME: {}})
    store.publish([message_of(1), message_of(2), message_of(3)])
    store.take("stranger", count=2)
    store.take("idle", count=1)
    stage.settle(store, SetAside(), store.held_by("idle", limit=1))
    with stage.under("one stranger holds something, another does not"):
        membership.beat("s1", {}, {ME: {}})
