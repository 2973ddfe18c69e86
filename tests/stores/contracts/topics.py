"""Topics: published, subscribed, fetched, moved."""

from collections.abc import Iterator
from typing import Any

from mq_django.core.messages import ACK, HandBack
from mq_django.core.offsets import BEGINNING, END
from mq_django.transport import scripts
from tests.stores.contracts.frozen import NOW_MS
from tests.stores.contracts.stage import Stage, message_of
from tests.stores.everything import ME


def scenes() -> Iterator[Any]:
    """Yield every scene."""
    yield from (publish, subscribe, subscribe_again, fetch, seek)


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


def subscribe_again(stage: Stage) -> None:
    store, log = stage.group(), stage.topic()
    log.publish([message_of(number) for number in range(1, 7)])
    stage.settle(store, ACK, store.take(ME, count=1))
    stage.client.xgroup_destroy(log.keys.log, "billing")
    with stage.under("the group has gone, and starts at the beginning"):
        store.create_groups()


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
        stage.transport().pipeline([scripts.command("topic_seek", keys=[log.keys.log, store.keys.control], args=args)])
    stage.client.hset(store.keys.control, "log-generation", NOW_MS + 5)
    with stage.under("from a generation that is in the future"):
        log.seek("billing", entries[1])
