"""Delayed messages become ready when they are due, whatever another queue's keys hold."""

import pytest

from mq_django.conf import get_config
from mq_django.consumers.supervisor.promoter import POLL, POLL_UNSUBSCRIBED, Promoter
from mq_django.errors import ConnectionLost
from mq_django.stores import open_store
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Session


@pytest.fixture
def seen():
    return []


@pytest.fixture
def promoter(mq_settings, seen):
    mq_settings(QUEUES={"a": {}, "b": {}})
    session = Session(get_client("chores"))
    stores = [open_store(config, session) for config in get_config().queues.values()]
    found = Promoter(
        dict(enumerate(stores)),
        is_subscribed=lambda: found.is_subscribed,
        seen=lambda number, promoted: seen.append((number, promoted)),
    )
    found.is_subscribed = True
    yield found
    session.release()


def test_what_is_due_is_ready_and_the_pause_is_until_the_next(promoter, publish, seen):
    publish(queue="a", delay=0)
    publish(queue="b", delay=2)
    pause = promoter.run_once()
    assert [(number, promoted.moved) for number, promoted in seen] == [(0, 1), (1, 0)]
    assert 1.0 < pause <= 2.001


@pytest.mark.parametrize(("is_subscribed", "fallback"), [(True, POLL), (False, POLL_UNSUBSCRIBED)])
def test_with_nothing_due_it_looks_again_after_a_while(promoter, is_subscribed, fallback):
    promoter.is_subscribed = is_subscribed
    assert promoter.run_once() == pytest.approx(fallback, abs=0.5)


def test_told_of_an_earlier_one_it_looks_at_that_queue(promoter, publish, seen):
    promoter.run_once()
    seen.clear()
    publish(queue="b", delay=0)
    promoter.run_once()
    assert seen == []
    promoter.expect(1)
    promoter.run_once()
    assert [(number, promoted.moved) for number, promoted in seen] == [(1, 1)]


def test_after_an_outage_it_looks_at_everything(promoter, seen):
    promoter.run_once()
    seen.clear()
    promoter.recover(ConnectionLost("away"))
    promoter.run_once()
    assert [number for number, _ in seen] == [0, 1]


def test_a_paused_queue_and_unhandled_messages_are_seen(promoter, seen, redis_client):
    redis_client.hset(get_config().queue("a").keys.control, "paused", "1")
    redis_client.zadd(get_config().queue("b").keys.unhandled, {"m": 1})
    promoter.run_once()
    assert [(promoted.paused, promoted.unhandled) for _, promoted in seen] == [(True, 0), (False, 1)]
