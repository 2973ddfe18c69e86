"""Delayed messages become ready when they are due, whatever another queue's keys hold."""

import time

import pytest

from mq_django.conf import get_config
from mq_django.consumers.supervisor import promoter as module
from mq_django.consumers.supervisor.promoter import Promoter
from mq_django.errors import ConnectionLost
from mq_django.stores import open_store
from mq_django.transport import scripts
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Session

#: Seconds: longer than a test takes.
POLL, POLL_UNSUBSCRIBED = 3600.0, 720.0


@pytest.fixture(autouse=True)
def _rare_looks(monkeypatch):
    monkeypatch.setattr(module, "POLL", POLL)
    monkeypatch.setattr(module, "POLL_UNSUBSCRIBED", POLL_UNSUBSCRIBED)


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
    publish(queue="b", delay=900)
    pause = promoter.run_once()
    assert [(number, promoted.moved) for number, promoted in seen] == [(0, 1), (1, 0)]
    assert 600 < pause <= 900.001


@pytest.mark.parametrize(("is_subscribed", "fallback"), [(True, POLL), (False, POLL_UNSUBSCRIBED)])
def test_with_nothing_due_it_looks_again_after_a_while(promoter, is_subscribed, fallback):
    promoter.is_subscribed = is_subscribed
    assert promoter.run_once() == pytest.approx(fallback, abs=60)


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


@pytest.fixture
def together(mq_settings, seen, monkeypatch):
    """A promoter that looks at its queues together."""
    mq_settings(QUEUES={"a": {}, "b": {}, "c": {}})
    session = Session(get_client("chores"))
    stores = [open_store(config, session) for config in get_config().queues.values()]
    found = Promoter(
        dict(enumerate(stores)),
        transport=session,
        is_subscribed=lambda: True,
        seen=lambda number, promoted: seen.append((number, promoted.moved)),
    )
    yield found
    session.release()


def names(commands):
    return [scripts.name_of(command) for command in commands]


@pytest.mark.single_server(why="on a cluster each queue is asked alone")
def test_quiet_queues_are_looked_at_with_one_command(together, seen, sent_commands):
    pause = together.run_once()
    assert names(sent_commands) == ["waiting_promote"]
    assert seen == [(0, 0), (1, 0), (2, 0)]
    assert pause == pytest.approx(POLL, abs=60)
    together._checks.at(1, 0.0)
    for number in (0, 2):
        together._checks.at(number, time.monotonic() + POLL / 4)
    together.run_once()
    # One that is due soon stays with the others.
    assert names(sent_commands) == ["waiting_promote"] * 2
    assert seen[3:] == [(0, 0), (1, 0), (2, 0)]


def test_what_a_look_finds_due_is_promoted_at_once(together, publish, seen, redis_client):
    publish(queue="b", delay=0)
    publish(queue="c", delay=900)
    pause = together.run_once()
    assert sorted(seen) == [(0, 0), (1, 1), (2, 0)]
    assert redis_client.xlen(get_config().queue("b").keys.ready) == 1
    assert 600 < pause <= 900.001
    together._checks.at(2, 0.0)
    seen.clear()
    together.run_once()
    # It is known when this one is due: no look comes before it.
    assert seen == [(2, 0)]


def test_a_queue_that_cannot_be_looked_at_holds_up_no_other(together, publish, seen, redis_client, caplog):
    redis_client.set(get_config().queue("a").keys.priority, "x")
    publish(queue="b", delay=0)
    together.run_once()
    assert sorted(seen) == [(1, 1), (2, 0)]
    assert [record.getMessage() for record in caplog.records if "of a failed" in record.getMessage()]


def test_a_look_changes_nothing(together, publish, redis_client):
    publish(queue="a", delay=60)
    keys = get_config().queue("a").keys
    before = {key: redis_client.dump(key) for key in (keys.due, keys.waiting)}
    together.run_once()
    assert {key: redis_client.dump(key) for key in before} == before
