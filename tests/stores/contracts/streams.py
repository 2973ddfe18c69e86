"""Queues in streams: published, fetched, purged, and who consumes them."""

from collections.abc import Iterator
from typing import Any

from mq_django.core.outcomes import ACK, HandBack, SetAside
from mq_django.stores.control import Control
from mq_django.stores.damage import DamageCheck
from tests.stores.contracts.stage import Stage, message_of
from tests.stores.contracts.waits import claims, everywhere
from tests.stores.everything import ME, OTHER


def scenes() -> Iterator[Any]:
    """Yield every scene."""
    yield from (subscribe, subscribe_again, publish, fetch, purge, control, check, members, members_of_strangers)


def subscribe(stage: Stage) -> None:
    store = stage.queue()
    stage.clear()
    with stage.under("for the first time"):
        store.create_groups()
    stage.client.xadd(store.keys.urgent, {"a": "b"}, "1-1")
    with stage.under("urgent is there, too"):
        store.create_groups()
    with stage.under("of a queue with limits"):
        stage.queue(RATE_LIMIT="5/s")


def subscribe_again(stage: Stage) -> None:
    store = stage.queue()
    DamageCheck(store.config, stage.wire()).find()
    stage.client.xgroup_destroy(store.keys.ready, "mq")
    with stage.under("another program removed the group"):
        store.create_groups()


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


def purge(stage: Stage) -> None:
    for place in ("", "ready", "delayed", "unhandled", "parked"):
        store = everywhere(stage)
        stage.settle(store, HandBack(), store.take(ME, count=1))
        store.publish([claims(9, unique="ready")])
        with stage.under(f"what is {place or 'anywhere'}"):
            assert store.purge(limit=10, place=place)
        stage.clear()
    store = stage.queue()
    store.publish([message_of(1), message_of(2), message_of(3)])
    store.take(ME, count=1)
    with stage.under("one, and what is held stays"):
        assert store.purge(limit=1) == 1


def control(stage: Stage) -> None:
    found = Control(stage.queue().config, stage.wire())
    with stage.under("while it is paused, and while it is not"):
        assert [found.pause(), found.pause(), found.resume(), found.resume()] == [True, False, True, False]
    with stage.under("by somebody, for a reason"):
        assert [found.pause(who="ann", reason="deploy"), found.pause(who="bob"), found.resume()] == [True, False, True]


def check(stage: Stage) -> None:
    store = stage.queue()
    find, ready = DamageCheck(store.config, stage.wire()).find, store.keys.ready
    with stage.under("nothing is there"):
        assert find() == []
    store.publish([message_of(number) for number in range(6)])
    store.take(ME, count=1)
    with stage.under("one is held, and five are ready"):
        assert find() == []
    stage.client.xgroup_setid(ready, "mq", "$")
    with stage.under("another program moved the group, seen once"):
        assert find() == []
    with stage.under("and seen twice"):
        assert [each.kind for each in find()] == ["SKIPPED"]
    stage.client.xgroup_setid(ready, "mq", "0")
    store.take(ME, count=2)
    stage.client.xtrim(ready, maxlen=2, approximate=False)
    with stage.under("it trimmed what is held, and more"):
        assert {each.kind for each in find()} <= {"REMOVED", "TRIMMED"}
    stage.client.xadd(ready, {"a": "b"}, "4000000000000-0")
    with stage.under("an id far in the future"):
        assert [each.kind for each in find()] == ["AHEAD"]
    stage.client.delete(ready)
    with stage.under("it deleted the stream"):
        assert [each.kind for each in find()] == ["DELETED"]


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
    with stage.under("what a stranger holds"):
        assert membership.claim("stranger", ME) == 2
