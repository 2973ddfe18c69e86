"""What a fetcher takes, when it takes nothing, and what it finds again after trouble."""

import threading

import pytest

from mq_django import queues
from mq_django.consumers.shared_state import HANDLED
from mq_django.consumers.worker.fetchers import FIRST
from mq_django.core.keys import GROUP
from mq_django.core.messages import Ack, Bury, SetAside
from mq_django.errors import ConnectionLost
from mq_django.stores import open_store
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled, Session
from tests.consumers.rig import Rig
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture
def rig(mq_settings):
    found = Rig(threads=2, act=lambda message: None)
    found.store.create_groups()
    yield found
    found.close()


def turn(rig, times=1):
    for _ in range(times):
        pause = rig.fetcher.run_once()
    return pause


def waiting(rig):
    return rig.threads._jobs.qsize()


def test_it_asks_for_no_more_than_there_is_room_for(rig, publish):
    for _ in range(100):
        publish()
    rig.settler.seconds = 0.01
    turn(rig)
    assert waiting(rig) == 2 + 4
    assert turn(rig) > 0
    assert waiting(rig) == 6


def test_it_fetches_no_more_bytes_than_it_may(rig, publish, monkeypatch):
    monkeypatch.setattr("mq_django.consumers.worker.fetchers.FETCH_BYTES", 10_000)
    for _ in range(30):
        publish("x" * 4000)
    rig.settler.seconds = 1e-6
    rig.reader._measure(rig.store.take("others", count=1))
    turn(rig)
    assert len(rig.settler.in_hand) == 2
    # And no more wait than two beside those that can start.
    turn(rig, 5)
    assert len(rig.settler.in_hand) == 2 + 2
    # A message of any size is fetched if it can start.
    monkeypatch.setattr("mq_django.consumers.worker.fetchers.FETCH_BYTES", 1000)
    rig.reader._measure(rig.store.take("others", count=1))
    assert (rig.reader.ahead, rig.reader.at_once(2), rig.reader.at_once(0)) == (0, 1, 0)


def test_it_fetches_few_until_it_knows_how_large_messages_are(rig, publish):
    for _ in range(100):
        publish()
    rig.settler.seconds = 1e-6
    turn(rig)
    assert len(rig.settler.in_hand) == FIRST
    turn(rig)
    assert len(rig.settler.in_hand) == 100


def test_of_slow_work_it_takes_what_is_idle(rig, publish):
    for _ in range(10):
        publish()
    rig.settler.seconds = 1.0
    turn(rig)
    assert waiting(rig) == 2


def test_while_all_threads_are_busy_it_puts_messages_into_the_lines_of_their_keys(mq_settings):
    mq_settings(QUEUES={"default": {"FAIR": True}})
    rig = Rig(threads=2, act=lambda message: None)
    rig.store.create_groups()
    rig.settler.seconds = 60.0
    queues["default"].publish_many([("act", None)] * 700, key="many")
    try:
        turn(rig)
        assert waiting(rig) == 2
        while turn(rig) == 0:
            pass
        assert (rig.store.depths().ready, rig.store.depths().parked) == (0, 698)
    finally:
        rig.close()


def test_paused_or_not_announced_it_takes_nothing(rig, publish):
    publish()
    rig.may_fetch = False
    assert 0 < turn(rig) < 0.2
    assert waiting(rig) == 0


def test_it_waits_at_redis_when_there_is_nothing(rig, publish, monkeypatch):
    monkeypatch.setattr("mq_django.consumers.worker.fetchers.BLOCK_MS", 3600_000)
    turn(rig)
    thread = threading.Thread(target=turn, args=(rig,))
    thread.start()
    wait_until(lambda: rig.session.socket is not None)
    publish()
    thread.join(60)
    assert not thread.is_alive()
    assert waiting(rig) == 1


@pytest.mark.parametrize("limits", [{"RATE_LIMIT": "1/h"}, {"CONCURRENCY": {"key": 1}}], ids=str)
def test_what_waits_for_a_limit_is_not_polled_for(mq_settings, publish, limits):
    mq_settings(QUEUES={"default": limits})
    rig = Rig(threads=4, act=lambda message: None)
    rig.store.create_groups()
    for _ in range(20):
        publish(key="a")
    turn(rig, 2)
    rig.fetcher.start()
    try:
        # Redis lets it wait, as for an empty queue.
        wait_until(lambda: rig.session.socket is not None)
        depths = open_store(rig.config, Pooled(get_client("produce"))).depths()
        assert (waiting(rig), depths.pending, depths.ready + depths.parked) == (1, 1, 19)
    finally:
        rig.fetcher.stop()
        assert rig.fetcher.join(60)
        rig.close()


def test_stopped_it_does_not_wait_to_the_end(rig, monkeypatch):
    monkeypatch.setattr("mq_django.consumers.worker.fetchers.BLOCK_MS", 3600_000)
    turn(rig)
    rig.fetcher.start()
    wait_until(lambda: rig.session.socket is not None)
    rig.fetcher.stop()
    assert rig.fetcher.join(60)


def test_what_nobody_here_knows_is_set_aside(rig, publish, caplog):
    publish(name="foreign")
    publish(name="foreign")
    turn(rig)
    assert [type(outcome) for outcome in rig.settled().values()] == [SetAside]
    assert caplog.text.count("No handler for 'foreign'") == 1


def test_of_many_names_a_few_are_logged(rig, publish, caplog):
    for n in range(100):
        publish(name=f"foreign-{n}")
    for _ in range(10):
        turn(rig)
    assert caplog.text.count("No handler for") == 20
    assert caplog.text.count("still more names") == 1
    assert set(map(type, rig.settled().values())) == {SetAside}


def test_what_is_no_message_is_buried_and_the_others_run(rig, publish, redis_client):
    publish()
    redis_client.xadd(rig.store.keys.ready, {b"\xff": b"\xff"})
    redis_client.xadd(rig.store.keys.ready, {"type": "act", "data": "NaN"})
    publish()
    turn(rig)
    assert waiting(rig) == 2
    assert [type(outcome) for outcome in rig.settled().values()] == [Bury, Bury]


def test_data_that_breaks_a_reader_breaks_nobody(rig, publish, redis_client):
    """Depths at which one JSON library parses what the other cannot write."""
    for depth in range(990, 1030):
        redis_client.xadd(rig.store.keys.ready, {"message": '{"type":"act","data":' + "[" * depth + "]" * depth + "}"})
    rig.settler.seconds = 0.0001
    rig.reader.ahead = 40
    turn(rig)
    assert waiting(rig) + len(rig.settler) == 40


def test_what_cannot_be_begun_strands_nothing_of_its_batch(rig, publish, monkeypatch):
    first, broken, last = publish(), publish(), publish()
    known = rig.dispatcher.settler.in_hand
    put = rig.threads.put

    def put_or_raise(job):
        if job.delivery.message.id == broken:
            raise ZeroDivisionError
        put(job)

    monkeypatch.setattr(rig.threads, "put", put_or_raise)
    rig.fetcher._round()
    assert [job.delivery.message.id for job in jobs(rig)] == [first, last]
    assert len(known) == 2

    monkeypatch.undo()
    rig.fetcher._round()
    assert [job.delivery.message.id for job in jobs(rig)] == [broken]


def test_what_was_handed_out_unseen_is_found_after_trouble(rig, publish, caplog):
    ids = [publish() for _ in range(3)]
    # The reply to this read never reached us.
    rig.store.take("me", count=2)
    rig.fetcher.recover(ConnectionLost("reset"))
    turn(rig, 2)
    assert waiting(rig) == 3
    assert "Recovered 2 deliveries of queue default whose reply was lost" in caplog.text
    assert len({job.delivery.message.id for job in jobs(rig)} & set(ids)) == 3


def jobs(rig):
    return [rig.threads._jobs.get_nowait() for _ in range(waiting(rig))]


def test_what_is_settled_while_it_looks_does_not_run_twice(rig, publish, monkeypatch):
    publish()
    turn(rig)
    ask = rig.store.held_by

    def settled_meanwhile(consumer, *, limit):
        held = ask(consumer, limit=limit)
        rig.settler.in_hand.clear()
        return held

    monkeypatch.setattr(rig.store, "held_by", settled_meanwhile)
    rig.fetcher.recover(ConnectionLost("reset"))
    turn(rig)
    assert waiting(rig) == 1


def test_it_looks_again_for_what_an_old_connection_brings_late(rig, publish):
    rig.fetcher.recover(ConnectionLost("reset"))
    turn(rig)
    publish()
    rig.store.take("me", count=1)
    assert rig.reader._checks
    rig.reader._checks = [0.0]
    turn(rig)
    assert waiting(rig) == 1
    assert rig.reader._checks == []


def test_after_another_node_has_its_queue_it_looks(rig, publish):
    """An ack that the old master has executed last is lost, and nobody gets an error."""
    publish()
    (delivery,) = rig.store.take("me", count=1)
    rig.shared_state.ended(HANDLED, 0, delivery.stream, delivery.entry)
    rig.session.moves += 1
    turn(rig, 2)
    assert waiting(rig) == 0
    assert list(rig.settled().values()) == [Ack()]
    assert len(rig.reader._checks) == 4


def test_after_any_failure_it_looks(rig, publish, monkeypatch):
    publish()
    monkeypatch.setattr(rig.dispatcher, "dispatch", broken_once(rig.dispatcher.dispatch))
    monkeypatch.setattr("mq_django.consumers.service.MAX_BACKOFF", 0.01)
    rig.fetcher.start()
    wait_until(lambda: waiting(rig) == 1)
    rig.fetcher.stop()
    assert rig.fetcher.join(60)


def broken_once(dispatch):
    broken = []

    def call(taken):
        if taken and not broken:
            broken.append(1)
            raise TypeError("a bug of ours")
        dispatch(taken)

    return call


def test_a_flushed_stream_gets_its_group_back(rig, publish, redis_client):
    publish()
    turn(rig)
    redis_client.delete(rig.store.keys.ready)
    jobs(rig)
    publish()
    turn(rig, 3)
    assert waiting(rig) == 1
    assert redis_client.xinfo_groups(rig.store.keys.ready)[0]["name"] == GROUP.encode()


def test_it_tells_the_settler_of_the_first_fetch_after_a_wait(rig, publish, monkeypatch):
    told, take = [], rig.settler.settle_and_take

    def noted(*args, after_wait, **options):
        told.append(after_wait)
        return take(*args, **options)

    monkeypatch.setattr(rig.settler, "settle_and_take", noted)
    turn(rig)
    publish()
    turn(rig)
    publish()
    turn(rig, times=2)
    assert told == [False, True, False]


def test_while_it_waits_for_messages_an_outcome_is_settled_at_once(rig, publish, monkeypatch):
    monkeypatch.setattr("mq_django.consumers.worker.settler.MAX_WAIT", 60.0)
    session = Session(get_client("chores"))
    rig.settling.add(rig.settler, open_store(rig.config, session))
    rig.start()
    rig.settling.start()
    rig.fetcher.start()
    try:
        for _ in range(2):
            # The fetcher blocks, and the message comes as the only one.
            wait_until(lambda: rig.settler._fetcher_waits)
            settled = rig.settler.settled
            publish()
            wait_until(lambda: rig.settler.settled == settled + 1, within=30)  # noqa: B023
        assert open_store(rig.config, Pooled(get_client("produce"))).depths().pending == 0
    finally:
        rig.fetcher.stop()
        rig.settling.stop()
        rig.settling.full.set()
        assert rig.fetcher.join(10)
        assert rig.settling.join(10)
        session.release()


@pytest.fixture
def fail_over(rig, redis_client):
    """Return a function that brings a replica in, which has all that the queue had at the fixture's last `copy()`."""

    class Replica:
        def copy(self):
            self.value = redis_client.dump(rig.store.keys.ready)

        def __call__(self):
            redis_client.restore(rig.store.keys.ready, 0, self.value, replace=True)
            rig.fetcher.recover(ConnectionLost("the master is dead"))

    return Replica()


def test_what_runs_and_comes_again_from_a_new_master_runs_once(rig, publish, fail_over, caplog):
    publish()
    fail_over.copy()
    turn(rig)
    fail_over()
    turn(rig, 3)
    assert waiting(rig) == 1
    rig.start()
    wait_until(lambda: len(rig.settler))
    rig.settler.settle(rig.store)
    assert rig.store.depths().depth == 0
    assert "no longer holds it" not in caplog.text
    assert rig.settler.in_hand == {}


def test_what_was_acked_and_comes_again_from_a_new_master_is_acked_again(rig, publish, fail_over, caplog):
    runs = []
    rig.handle("act", lambda message: runs.append(message.id))
    publish()
    fail_over.copy()
    turn(rig)
    rig.start()
    wait_until(lambda: len(rig.settler))
    rig.settler.settle(rig.store)
    fail_over()
    publish(name="foreign")
    turn(rig, 3)
    rig.settler.settle(rig.store)
    assert len(runs) == 1
    # The one that came later is set aside.
    assert rig.store.depths().depth == rig.store.depths().unhandled == 1
    assert "no longer holds it" not in caplog.text


def test_another_message_of_a_new_master_with_a_known_receipt_is_handed_back(rig, publish, redis_client):
    """The clock of a new master may be behind: its entries then get ids that were used before."""
    publish()
    turn(rig)
    (running,) = rig.settler.in_hand
    redis_client.delete(rig.store.keys.ready)
    rig.store.create_groups()
    other = queues["default"].publish("act", "other")
    ((_, fields),) = redis_client.xrange(rig.store.keys.ready)
    redis_client.delete(rig.store.keys.ready)
    redis_client.xgroup_create(rig.store.keys.ready, GROUP, "0", mkstream=True)
    redis_client.xadd(rig.store.keys.ready, fields, id=running[1])
    rig.fetcher.recover(ConnectionLost("the master is dead"))
    turn(rig, 2)
    rig.settler.settle(rig.store)
    turn(rig)
    assert [job.delivery.message.id for job in jobs(rig)][1:] == [other]
