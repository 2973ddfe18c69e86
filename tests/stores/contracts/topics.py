"""Topics: published, subscribed, moved, trimmed, looked at."""

from collections.abc import Iterator
from typing import Any

from mq_django.core.offsets import BEGINNING, END
from mq_django.core.outcomes import ACK, HandBack, Retry, SetAside
from mq_django.inspector.log_rows import LogRange, log_rows
from mq_django.stores.damage import DamageCheck
from mq_django.stores.topic_stats import count_between, topic_stats
from mq_django.transport import scripts
from tests.stores.contracts.frozen import NOW, NOW_MS
from tests.stores.contracts.stage import Stage, message_of
from tests.stores.everything import ME


def scenes() -> Iterator[Any]:
    """Yield every scene."""
    yield from (publish, subscribe, fetch, seek, check, skip, trim, trim_in_the_way, alarm, look, page, count)
    yield unsubscribe


def publish(stage: Stage) -> None:
    log = stage.topic()
    with stage.under("two names"):
        log.publish([message_of(1), message_of(2, "report"), message_of(1, key="k")])
    stage.client.zadd(log.keys.published, {"old": 5, "older": 4, "oldest": 3})
    with stage.under("each id once, and old ones are forgotten"):
        assert log.publish([message_of(3, once=True), message_of(3, once=True)]) == [message_of(3).message.id, None]
    stage.client.zadd(log.keys.published, {message_of(3).message.id: NOW_MS - 300_000})
    with stage.under("an id whose window is over"):
        assert log.publish([message_of(3, once=True)]) == [message_of(3).message.id]


def subscribe(stage: Stage) -> None:
    log = stage.topic()
    with stage.under("to a topic that is not there"):
        assert log.subscribe("billing", BEGINNING)
    log.publish([message_of(1)])
    with stage.under("at the end"):
        assert log.subscribe("other", END)
    with stage.under("that is there"):
        assert not log.subscribe("other", BEGINNING)
    store = stage.group("third")
    stage.client.delete(log.keys.log, log.keys.control)
    with stage.under("whose topic is not the one it was"):
        store.create_groups()
    with stage.under("to an empty topic, at the end"):
        stage.client.delete(log.keys.log)
        log.subscribe("late", END)


def fetch(stage: Stage) -> None:
    store, log = stage.group(), stage.topic()
    with stage.under("nothing is there"):
        assert store.take(ME, count=5) == []
    log.publish([message_of(1), message_of(2), message_of(3)])
    with stage.under("two of the log"):
        taken = store.take(ME, count=2)
    stage.settle(store, HandBack(), taken)
    store.publish([message_of(4)])
    stage.settle(store, HandBack(), store.take(ME, count=1))
    with stage.under("what the group keeps itself, and then the log"):
        assert len(store.take(ME, count=5)) == 4
    stage.client.hset(store.keys.control, "paused", "1")
    with stage.under("paused"):
        assert store.take(ME, count=5) == []
    stage.client.delete(store.keys.control, log.keys.log)
    store.publish([message_of(5)])
    with stage.under("without its log"):
        assert len(store.take(ME, count=5)) == 1


def seek(stage: Stage) -> None:
    store, log = stage.group(), stage.topic()
    stage.taken(store, *(message_of(number) for number in range(1, 5)))
    with stage.under("to the beginning, with something pending"):
        log.seek("billing", BEGINNING)
    with stage.under("to the end"):
        log.seek("billing", END)
    entries = [entry.decode() for entry, _ in stage.client.xrange(log.keys.log)]
    with stage.under("to an entry"):
        log.seek("billing", entries[2])
    with stage.under("to what is no entry: the group stays where it is"):
        args = ["billing", "no entry", "", ""]
        stage.wire().trip([scripts.command("topic_seek", keys=[log.keys.log, store.keys.control], args=args)])
    stage.client.hset(store.keys.control, "log-generation", NOW_MS + 5)
    with stage.under("from a generation that is in the future"):
        log.seek("billing", entries[1])


def check(stage: Stage) -> None:
    store, log = stage.group(), stage.topic()
    find, name = DamageCheck(store.config, stage.wire()).find, log.keys.log
    log.publish([message_of(number) for number in range(1, 7)])
    stage.settle(store, ACK, store.take(ME, count=1))
    store.take(ME, count=1)
    with stage.under("a group that holds its second message"):
        assert find() == []
    with stage.under("sought by us"):
        log.seek("billing", BEGINNING)
    store.take(ME, count=1)
    find()
    stage.client.xgroup_setid(name, "billing", "$")
    with stage.under("another program moved the group"):
        assert {each.kind for each in find()} <= {"MOVED"}
    log.seek("billing", BEGINNING)
    store.take(ME, count=1)
    find()
    stage.client.xtrim(name, maxlen=2, approximate=False)
    with stage.under("it trimmed unread messages"):
        assert {each.kind for each in find()} <= {"LOST"}
    stage.client.xgroup_destroy(name, "billing")
    with stage.under("it removed the group"):
        assert find() == []
    with stage.under("a group that continues where it was"):
        store.create_groups()
    stage.client.xadd(name, {"a": "b"}, "4000000000000-0")
    with stage.under("an id far in the future"):
        assert [each.kind for each in find()] == ["AHEAD"]


def skip(stage: Stage) -> None:
    store, log = stage.group(), stage.topic()
    log.publish([message_of(1), message_of(2), message_of(3)])
    with stage.under("two of three"):
        assert store.purge(limit=2) == 2
    stage.client.xgroup_setid(log.keys.log, "billing", "$")
    with stage.under("nothing is left"):
        assert store.purge(limit=2) == 0


def old(stage: Stage, log: Any, count: int) -> None:
    """Put entries in that are a second apart, the last an hour old."""
    for number in range(count):
        ms = NOW_MS - 3_600_000 - (count - number) * 1000
        stage.client.xadd(log.keys.log, {"type": "t", "data": number}, f"{ms}-0")


def trim(stage: Stage) -> None:
    log = stage.topic(RETENTION_COUNT=3)
    log.subscribe("billing", BEGINNING)
    log.subscribe("done", END)
    old(stage, log, 350)
    stage.client.xgroup_setid(log.keys.log, "done", "$")
    with stage.under("down to a number: a group loses what it has not read"):
        assert log.trim().removed == 300
    with stage.under("less than a node of the stream is left: it stays"):
        assert log.trim().removed == 0
    log = stage.topic(RETENTION=1800)
    for number in range(150):
        stage.client.xadd(log.keys.log, {"type": "t", "data": number}, f"{NOW_MS - 1000}-{number + 1}")
    with stage.under("by time"):
        log.trim()
    log = stage.topic(RETENTION=None, RETENTION_BYTES=1000)
    stage.clear()
    old(stage, log, 600)
    with stage.under("by memory, and there is more"):
        assert log.trim().more


def trim_in_the_way(stage: Stage) -> None:
    store = stage.group(RETENTION_COUNT=3)
    log = stage.topic(RETENTION_COUNT=3)
    old(stage, log, 250)
    held = store.take(ME, count=200)
    stage.settle(store, ACK, held[:150])
    with stage.under("something pending is in the way"):
        found = log.trim()
        assert found.held


def alarm(stage: Stage) -> None:
    log = stage.topic()
    log.subscribe("billing", BEGINNING)
    with stage.under("raised, the same, cleared, the same; and of a group that is not there"):
        found = [log.set_alarm("billing", percent) for percent in (90, 95, None, None)]
        assert [*found, log.set_alarm("unknown", 90)] == ["RAISED", "SAME", "CLEARED", "SAME", "MISSING"]
    with stage.under("the turn to look, and before it is due again"):
        assert [log.claim_check(10), log.claim_check(10)] == [True, False]
    stage.client.hset(log.keys.control, "looked", NOW_MS - 10_000)
    with stage.under("the turn to look, when it is due again"):
        assert log.claim_check(10)
    stage.client.hset(log.keys.control, "looked", NOW_MS + 10_000)
    with stage.under("the turn to look, when the clock was set back"):
        assert log.claim_check(10)


def look(stage: Stage) -> None:
    log = stage.topic()
    with stage.under("nothing is there"):
        topic_stats([log.config], [stage.wire()], minutes=3)
    store = stage.group()
    stage.taken(store, message_of(1), message_of(2))
    log.publish([message_of(3)])
    log.subscribe("other", END)
    log.set_alarm("billing", 90)
    stage.client.hset(store.keys.control, "lost", 5)
    stage.client.hset(log.keys.minutes(int(NOW) // 3600 - 1), "59|published|", 7)
    with stage.under("two groups, with what was published in this hour and the one before"):
        topic_stats([log.config], [stage.wire()], minutes=65)


def page(stage: Stage) -> None:
    log = stage.topic()
    log.publish([message_of(1), message_of(2), message_of(3)])
    with stage.under("two, oldest first, without what is long"):
        assert list(log_rows(log.config, stage.wire(), LogRange(since=BEGINNING, until=END, max_bytes=4), limit=2))
    first = stage.client.xrange(log.keys.log)[0][0].decode()
    with stage.under("after one, newest first"):
        backwards = LogRange(since=BEGINNING, until=END, newest_first=True)
        list(log_rows(log.config, stage.wire(), backwards, after=f"{NOW_MS}-2", limit=2))
    with stage.under("counted after one"):
        assert count_between(log.keys, stage.wire(), first, "+") == (2, False)
    with stage.under("counted up to one"):
        assert count_between(log.keys, stage.wire(), "0-0", first) == (1, False)


def count(stage: Stage) -> None:
    log = stage.topic()
    old(stage, log, 250)
    args = [stage.client.xrange(log.keys.log)[9][0], 120, "+"]
    with stage.under("no more than asked for"):
        stage.wire().trip([scripts.command("topic_count", keys=[log.keys.log], args=args)])


def unsubscribe(stage: Stage) -> None:
    store, log = stage.group(), stage.topic()
    log.subscribe("other", BEGINNING)
    one, two, three = stage.taken(store, message_of(1), message_of(2), message_of(3))
    stage.settle(store, Retry(), [one], delay_ms=1000)
    stage.settle(store, SetAside(), [two])
    stage.settle(store, HandBack(), [three])
    with stage.under("with all it keeps"):
        assert log.unsubscribe("billing", now=NOW)
    with stage.under("is not there"):
        assert not log.unsubscribe("unknown", now=NOW)
