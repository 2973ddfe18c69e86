"""Thousands due at the same instant, and the sleep until the next due time."""

import tracemalloc

from mq_django.conf import get_config
from mq_django.consumers.supervisor.promoter import BATCH, Promoter
from mq_django.consumers.supervisor.services import Listener
from mq_django.stores import open_store
from mq_django.transport.connections import get_client, open_session
from mq_django.transport.sessions import Session
from tests import places
from tests.waiting import wait_until

MANY = 10_000


def let_wait(client, keys, count, *, due_ms, first=0):
    """Seed messages as the smallest producer does, all due at one moment."""
    for start in range(first, first + count, 10_000):
        names = [f"m{number}" for number in range(start, min(start + 10_000, first + count))]
        pipeline = client.pipeline(transaction=False)
        pipeline.hset(keys.waiting, mapping=dict.fromkeys(names, '{"type":"note","data":1}'))
        pipeline.zadd(keys.due, dict.fromkeys(names, due_ms))
        pipeline.execute()


def test_a_promoter_s_memory_does_not_grow_with_what_waits(mq_settings, redis_client):
    config = get_config().queue("default")
    session = Session(get_client("chores"))
    promoter = Promoter({0: open_store(config, session)}, is_subscribed=lambda: True, seen=lambda *_: None)
    promoter.run_once()
    later = places.now_ms(redis_client) + 3_600_000

    def peak():
        tracemalloc.start()
        promoter.expect(0)
        promoter.run_once()
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak()
    empty = peak()
    let_wait(redis_client, config.keys, MANY, due_ms=later)
    let_wait(redis_client, config.keys, 10 * BATCH, due_ms=1, first=MANY)
    crowded = peak()
    session.release()
    assert 0 < redis_client.xlen(config.keys.ready) <= BATCH
    assert crowded < empty + 50_000


def test_the_sleep_until_the_next_due_time_is_ended_by_an_earlier_one(mq_settings, publish, redis_client, monkeypatch):
    monkeypatch.setattr("mq_django.consumers.supervisor.promoter.POLL", 3600.0)
    config = get_config().queue("default")
    publish(delay=3600)
    session = Session(get_client("chores"))
    looks = []
    promoter = Promoter(
        {0: open_store(config, session)},
        is_subscribed=lambda: listener.is_subscribed,
        seen=lambda _, promoted: looks.append(promoted),
    )
    listener = Listener(open_session("consume"), {config.keys.wake: 0}, lambda number, _: promoter.expect(number))
    try:
        listener.start()
        wait_until(lambda: listener.is_subscribed)
        promoter.start()
        wait_until(lambda: looks)
        # It sleeps now, for the seconds of the fallback.
        publish(delay=0.001)
        wait_until(lambda: redis_client.exists(config.keys.ready))
    finally:
        for service in (listener, promoter):
            service.stop()
            assert service.join(60)
        session.release()
    assert redis_client.zcard(config.keys.due) == 1
