"""What must run alone goes to a ward, and runs there one after another."""

import threading

import pytest

from mq_django.conf import get_config
from mq_django.consumers.shared_state import Board
from mq_django.consumers.worker.consumer import Consumer, lanes
from mq_django.consumers.worker.grace import Grace
from mq_django.consumers.worker.isolation import Isolation, QuarantineFetcher, line_of
from mq_django.core.messages import Delivery
from mq_django.core.outcomes import HandBack
from tests.consumers.rig import Rig


@pytest.fixture
def rig(mq_settings):
    found = Rig(threads=2, act=lambda message: None)
    found.isolation = Isolation("me", found.board, [found.store], [found.settler])
    found.dispatcher._isolate = found.isolation.taker(0)
    found.store.create_groups()
    yield found
    found.close()


def suspect(redis_client, rig, count=1):
    """Deliver messages that were running when a process died."""
    for number in range(count):
        redis_client.xadd(rig.store.keys.ready, {"type": "act", "data": str(number), "alone": "1"})
    return rig.store.take("me", count=count)


def test_a_suspect_waits_for_a_ward(rig, redis_client):
    rig.dispatcher.dispatch(suspect(redis_client, rig))
    assert rig.threads._jobs.qsize() == 0
    assert rig.board.wants_ward()
    rig.isolation.run_once()
    assert rig.board.wants_ward()
    assert len(rig.store.held_by("me", limit=9)) == 1


def test_a_ward_gets_what_waits(rig, redis_client):
    rig.dispatcher.dispatch(suspect(redis_client, rig, 3))
    rig.board.set_ward("ward")
    rig.isolation.run_once()
    assert [item.message.data for item in rig.store.held_by(line_of("ward"), limit=9)] == [0, 1, 2]
    assert rig.settler.in_hand == set()
    assert rig.isolation.run_once() >= 1.0


def test_without_a_ward_in_the_end_it_goes_back(rig, redis_client):
    rig.dispatcher.dispatch(suspect(redis_client, rig, 2))
    rig.isolation.hand_back()
    assert list(rig.settled().values()) == [HandBack()] * 2


def test_a_broken_trip_passes_on_once(rig, redis_client, monkeypatch):
    rig.dispatcher.dispatch(suspect(redis_client, rig))
    rig.board.set_ward("ward")
    pass_on = rig.store.pass_on

    def broken(*args):
        pass_on(*args)
        monkeypatch.undo()
        raise OSError("after")

    monkeypatch.setattr(rig.store, "pass_on", broken)
    rig.isolation.run_once()
    assert len(rig.settler.in_hand) == 1
    rig.isolation.run_once()
    assert len(rig.store.held_by(line_of("ward"), limit=9)) == 1
    assert rig.settler.in_hand == set()


def test_a_ward_runs_one_at_a_time(mq_settings, redis_client):
    running, most = [], []

    def act(message):
        running.append(message.data)
        most.append(len(running))
        running.remove(message.data)

    async def aact(message):
        act(message)

    ward = Rig(threads=1, act=act)
    ward.handle("aact", aact, is_async=True)
    ward.start()
    ward.store.create_groups()
    for number in range(20):
        redis_client.xadd(ward.store.keys.ready, {"type": "aact" if number % 2 else "act", "data": str(number)})
    # Some were brought over by a trip that broke.
    ward.store.take("me", count=2)
    ward.store.take(line_of("me"), count=18)
    receiver = QuarantineFetcher("me", line_of("me"), ward.board, [ward.store], [ward.dispatcher])
    settling = threading.Thread(target=settle, args=(ward,))
    settling.start()
    receiver.run_once()
    assert most == [1] * 20
    ward.stopped = True
    settling.join()
    assert ward.store.depths().pending == 0
    ward.close()


def settle(ward):
    # On a connection of its own, as the ward's receiver uses the store.
    other = Rig()
    ward.stopped = False
    while not ward.stopped:
        ward.settler.settle(other.store)
    other.close()


def test_a_ward_holds_nothing_but_what_it_runs(mq_settings, redis_client):
    held = []

    def act(message):
        held.append([item.message.data for item in other.store.held_by("me", limit=9)])

    ward, other = Rig(threads=1, act=act), Rig()
    ward.start()
    ward.store.create_groups()
    for number in range(3):
        redis_client.xadd(ward.store.keys.ready, {"type": "act", "data": str(number)})
    ward.store.take(line_of("me"), count=3)
    settling = threading.Thread(target=settle, args=(ward,))
    settling.start()
    QuarantineFetcher("me", line_of("me"), ward.board, [ward.store], [ward.dispatcher]).run_once()
    ward.stopped = True
    settling.join()
    ward.close()
    other.close()
    assert held == [[0], [1], [2]]


def test_what_a_ward_without_a_supervisor_gives_back_is_its_line_too(mq_settings, redis_client):
    board = Board.create(lanes(1))
    ward = Consumer("me", [get_config().queue("default")], threads=1, board=board, line=line_of("me"))
    store = ward._stores[0]
    store.create_groups()
    redis_client.xadd(store.keys.ready, {"type": "act", "data": "1"})
    store.take(line_of("me"), count=1)
    # Before it has begun, so that what came stays in its line.
    ward._receiver.stop()
    ward.start()
    ward.inherit_line()
    assert ward.stop(Grace(1.0))
    assert store.depths().ready + len(store.held_by("me", limit=1)) == 1
    assert store.held_by(line_of("me"), limit=1) == []
    board.close()


def test_a_ward_that_is_stopped_leaves_the_rest(rig, redis_client):
    suspect(redis_client, rig, 3)
    receiver = QuarantineFetcher("me", line_of("me"), rig.board, [rig.store], [rig.dispatcher])
    receiver.stop()
    receiver.run_once()
    assert rig.settler.in_hand == set()


def test_the_note_travels(rig, redis_client):
    (delivery,) = suspect(redis_client, rig)
    assert isinstance(delivery, Delivery)
    assert delivery.alone
