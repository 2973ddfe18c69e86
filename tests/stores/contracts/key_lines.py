"""The line of a key: read in each of its states, and going on without its head."""

from collections.abc import Iterator
from typing import Any

from mq_django.core.limits import key_hash
from mq_django.core.outcomes import ACK, Bury, Retry, SetAside
from mq_django.stores.base import Settlement
from mq_django.stores.damage import DamageCheck
from mq_django.stores.line_heads import look_command, skip_head
from mq_django.stores.stream_store import StreamStore
from tests.stores.contracts.stage import Stage, message_of
from tests.stores.everything import ME, OTHER

LINE = key_hash("a")


def scenes() -> Iterator[Any]:
    """Yield every scene."""
    yield from (looked_at, of_strange_tokens, skipped, checked)


def look(stage: Stage, store: StreamStore, count: int = 5) -> None:
    stage.wire().trip([look_command(store.config, LINE, count=count, max_bytes=100)])


def ordered(stage: Stage) -> StreamStore:
    store = stage.queue(ORDERED=True, AFTER_BURY="hold")
    store.publish([message_of(number, key="a") for number in (1, 2, 3)])
    return store


def looked_at(stage: Stage) -> None:
    store = ordered(stage)
    with stage.under("nothing was taken yet"):
        look(stage, store)
    for outcome in (Retry(), SetAside(), Bury("no", reason="attempts")):
        (item,) = store.take(ME, count=5)
        with stage.under("its head is with a consumer, and one parked message is asked for"):
            look(stage, store, count=1)
        store.settle(ME, [Settlement(item, outcome, delay_ms=60_000)])
        with stage.under("its head waits"):
            look(stage, store)
        if isinstance(outcome, Retry):
            store.cancel(item.message.id)
        elif isinstance(outcome, SetAside):
            store.release_unhandled(["welcome", item.message.name], limit=5)
            with stage.under("its head is ready"):
                look(stage, store)
            store.settle(ME, [Settlement(found, ACK) for found in store.take(ME, count=5)])


def of_strange_tokens(stage: Stage) -> None:
    store = ordered(stage)
    for token in ("x", "0-x", "0-1-1", "m-nobody", "d-x", "d-1-1"):
        stage.client.zadd(store.keys.permits, {token: LINE})
    stage.client.zadd(store.keys.parked, {"p:7": LINE, "p:8": LINE})
    stage.client.hset(store.keys.waiting, "p:8", "nonsense")
    with stage.under("tokens and members of other programs"):
        look(stage, store, count=10)


def skipped(stage: Stage) -> None:
    store = ordered(stage)
    (item,) = store.take(ME, count=5)
    token = f"0-{item.entry.decode()}"
    with stage.under("its message runs"):
        assert skip_head(store.config, stage.wire(), LINE, token) == "RUNS"
    store.settle(ME, [Settlement(item, Retry(), delay_ms=60_000)])
    with stage.under("the key has no such token"):
        assert skip_head(store.config, stage.wire(), LINE, token) == "CHANGED"
    with stage.under("the token is that of another key"):
        assert skip_head(store.config, stage.wire(), LINE + 1, f"m-{item.message.id}") == "CHANGED"
    with stage.under("its message waits for its next attempt"):
        assert skip_head(store.config, stage.wire(), LINE, f"m-{item.message.id}") == "SKIPPED"
    (item,) = store.take(ME, count=5)
    store.settle(ME, [Settlement(item, Bury("no", reason="attempts"))])
    ((entry, _),) = stage.client.xrange(store.keys.dead)
    with stage.under("its message is a dead letter"):
        assert skip_head(store.config, stage.wire(), LINE, f"d-{entry.decode()}") == "SKIPPED"


def checked(stage: Stage) -> None:
    store = ordered(stage)
    find = DamageCheck(store.config, stage.wire()).find
    store.take(ME, count=1)
    with stage.under("one is held with its token"):
        assert find() == []
    store.publish([message_of(4), message_of(5, key="b")])
    stage.client.xreadgroup(store.keys.group, OTHER, {store.keys.ready: ">"})
    with stage.under("another program holds one of a key, and one without a key"):
        assert [damage.kind for damage in find()] == ["UNORDERED"]
    with stage.under("and still does"):
        assert find() == []
