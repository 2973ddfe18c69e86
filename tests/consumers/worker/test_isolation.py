"""What must run alone goes to a quarantine, and runs there one after another."""

import threading
from functools import partial

import pytest

from mq_django.conf import get_config
from mq_django.consumers.processes import Grace
from mq_django.consumers.shared_state import SharedState
from mq_django.consumers.worker.consumer import Consumer, slots
from mq_django.consumers.worker.dispatcher import Isolation, QuarantineFetcher, backlog_of
from mq_django.core.messages import HandBack
from tests.consumers.rig import Rig


@pytest.fixture
def rig(mq_settings):
    found = Rig(threads=2, act=lambda message: None)
    found.isolation = Isolation("me", found.shared_state, {0: found.store}, [found.settler])
    found.dispatcher._isolate = partial(found.isolation.add, 0)
    found.store.create_groups()
    yield found
    found.close()


def suspect(redis_client, rig, count=1):
    """Deliver messages that were running when a process died."""
    for number in range(count):
        redis_client.xadd(rig.store.keys.ready, {"type": "act", "data": str(number), "alone": "1"})
    return rig.store.take("me", count=count)


def test_a_suspect_waits_for_a_quarantine(rig, redis_client):
    rig.dispatcher.dispatch(suspect(redis_client, rig))
    assert rig.threads._jobs.qsize() == 0
    assert rig.shared_state.wants_quarantine()
    rig.isolation.run_once()
    assert rig.shared_state.wants_quarantine()
    assert len(rig.store.held_by("me", limit=9)) == 1


def test_a_quarantine_gets_what_waits(rig, redis_client):
    rig.dispatcher.dispatch(suspect(redis_client, rig, 3))
    rig.shared_state.set_quarantine("quarantine")
    rig.isolation.run_once()
    assert [item.message.data for item in rig.store.held_by(backlog_of("quarantine"), limit=9)] == [0, 1, 2]
    assert rig.settler.in_hand == {}
    assert rig.isolation.run_once() >= 1.0


def test_without_a_quarantine_in_the_end_it_goes_back(rig, redis_client):
    rig.dispatcher.dispatch(suspect(redis_client, rig, 2))
    rig.isolation.hand_back()
    assert list(rig.settled().values()) == [HandBack()] * 2


def test_a_broken_trip_passes_on_once(rig, redis_client, monkeypatch):
    rig.dispatcher.dispatch(suspect(redis_client, rig))
    rig.shared_state.set_quarantine("quarantine")
    reassign = rig.store.reassign

    def broken(*args):
        reassign(*args)
        monkeypatch.undo()
        raise OSError("after")

    monkeypatch.setattr(rig.store, "reassign", broken)
    rig.isolation.run_once()
    assert len(rig.settler.in_hand) == 1
    rig.isolation.run_once()
    assert len(rig.store.held_by(backlog_of("quarantine"), limit=9)) == 1
    assert rig.settler.in_hand == {}


def test_a_quarantine_runs_one_at_a_time_and_holds_nothing_else(mq_settings, redis_client):
    held, other = [], Rig()

    def act(message):
        held.append([item.message.data for item in other.store.held_by("me", limit=99)])

    async def aact(message):
        act(message)

    quarantine = Rig(threads=1, act=act)
    quarantine.handle("aact", aact, is_async=True)
    quarantine.start()
    quarantine.store.create_groups()
    for number in range(20):
        redis_client.xadd(quarantine.store.keys.ready, {"type": "aact" if number % 2 else "act", "data": str(number)})
    # Some were brought over by a pipeline that broke.
    quarantine.store.take("me", count=2)
    quarantine.store.take(backlog_of("me"), count=18)
    receiver = QuarantineFetcher(
        "me", backlog_of("me"), quarantine.shared_state, [quarantine.store], [quarantine.dispatcher]
    )
    stopped = threading.Event()
    settling = threading.Thread(target=settle, args=(quarantine, stopped))
    settling.start()
    receiver.run_once()
    stopped.set()
    settling.join()
    # Those that were brought over are held with each other.
    assert (len(held), held[2:]) == (20, [[number] for number in range(2, 20)])
    assert quarantine.store.depths().pending == 0
    quarantine.close()
    other.close()


def settle(quarantine, stopped):
    # On a connection of its own, as the quarantine's receiver uses the store.
    other = Rig()
    while not stopped.is_set():
        quarantine.settler.settle(other.store)
    other.close()


def test_what_a_quarantine_without_a_supervisor_gives_back_is_its_backlog_too(mq_settings, redis_client):
    shared_state = SharedState.create(slots(1))
    quarantine = Consumer(
        "me", [get_config().queue("default")], threads=1, shared_state=shared_state, backlog=backlog_of("me")
    )
    store = quarantine._stores[0]
    store.create_groups()
    redis_client.xadd(store.keys.ready, {"type": "act", "data": "1"})
    store.take(backlog_of("me"), count=1)
    # Before it has begun, so that what came stays in its line.
    quarantine._receiver.stop()
    quarantine.start()
    quarantine.inherit_backlog()
    assert quarantine.stop(Grace(60.0))
    assert store.depths().ready + len(store.held_by("me", limit=1)) == 1
    assert store.held_by(backlog_of("me"), limit=1) == []
    shared_state.close()


def test_a_quarantine_that_is_stopped_leaves_the_rest(rig, redis_client):
    suspect(redis_client, rig, 3)
    receiver = QuarantineFetcher("me", backlog_of("me"), rig.shared_state, [rig.store], [rig.dispatcher])
    receiver.stop()
    receiver.run_once()
    assert rig.settler.in_hand == {}
