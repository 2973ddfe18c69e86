"""Threads and coroutines do not wait for each other."""

import asyncio
import threading
import time
from types import SimpleNamespace

import pytest

from mq_django import registry
from mq_django.consumers.worker.fetchers import MAX_WAITING
from mq_django.consumers.worker.pools import BLOCKED
from mq_django.core.keys import GROUP
from mq_django.core.messages import HandBack
from mq_django.registry import _batches, _handlers, _kinds, handler, kinds
from tests.consumers.rig import Rig
from tests.waiting import wait_until


@pytest.fixture
def rig(mq_settings):
    known = dict(_handlers)
    found = Rig(threads=2)
    found.gate = threading.Event()
    found.start()
    yield found
    found.gate.set()
    found.close()
    _handlers.clear()
    _handlers.update(known)
    _kinds.clear()
    _batches.clear()


def register(queue, *, threads=False, loop=False):
    if threads:
        handler(queue, "f")(lambda message: None)
    if loop:

        async def coroutine(message):
            pass

        handler(queue, "c")(coroutine)


def block_threads(rig):
    """Let both threads run handlers that take long, and notice it."""
    for _ in rig.threads.slots:
        rig.put(lambda message: rig.gate.wait(20))
    wait_until(lambda: rig.threads.check() or rig.threads.blocked)


def test_a_queue_knows_the_kinds_of_its_handlers(rig):
    register("functions", threads=True)
    register("coroutines", loop=True)
    register("both", threads=True)
    before = kinds("functions"), kinds("coroutines"), kinds("both")
    register("both", loop=True)
    # Tasks of this test project belong to every queue.
    everywhere = kinds("nothing")
    assert before == (everywhere | {False}, everywhere | {True}, everywhere | {False})
    assert kinds("both") == {False, True}


def test_a_queue_of_one_kind_needs_room_in_its_pool_only(rig, monkeypatch):
    block_threads(rig)
    demand = rig.demand_of("default")
    for kind, expected in ((False, 0), (True, 102)):
        monkeypatch.setattr("mq_django.consumers.worker.fetchers.kinds", lambda queue: frozenset({kind}))  # noqa: B023
        assert demand.messages(1.0, 0) == expected


def test_behind_slow_threads_a_mixed_queue_is_still_read(rig, monkeypatch):
    monkeypatch.setattr("mq_django.consumers.worker.fetchers.kinds", lambda queue: frozenset({False, True}))
    block_threads(rig)
    demand = rig.demand_of("default")
    # What the loop has room for, again and again.
    assert demand.messages(1.0, 0) == 102
    # Of large messages so many may wait, and of the largest one.
    assert [demand.messages(1.0, 0, ahead) for ahead in (20, 0)] == [20, 1]
    for _ in range(MAX_WAITING - 1):
        rig.put(lambda message: None)
    assert [demand.messages(1.0, MAX_WAITING - 1, ahead) for ahead in (MAX_WAITING, 20)] == [1, 0]
    rig.put(lambda message: None)
    assert demand.messages(1.0, 0) == 0


def test_messages_of_another_queue_that_wait_do_not_stop_one_whose_messages_are_large(rig, monkeypatch):
    monkeypatch.setattr("mq_django.consumers.worker.fetchers.kinds", lambda queue: frozenset({False, True}))
    block_threads(rig)
    for _ in range(40):
        rig.put(lambda message: None)
    demand = rig.demand_of("default")
    # The bound by bytes is for what this queue itself has fetched.
    assert [demand.messages(1.0, in_hand, 16) for in_hand in (0, 10, 40)] == [16, 6, 0]


def test_behind_slow_coroutines_a_mixed_queue_is_still_read(rig, monkeypatch):
    monkeypatch.setattr("mq_django.consumers.worker.fetchers.kinds", lambda queue: frozenset({False, True}))

    async def slow(message):
        while not rig.gate.is_set():
            await asyncio.sleep(0.01)

    for _ in range(100):
        rig.put(slow, is_async=True)
    wait_until(lambda: rig.loop.check() or rig.loop.blocked)
    assert rig.demand_of("default").messages(1.0, 0) == 2


def test_idle_consumers_get_what_a_blocked_one_hands_back(rig, publish, redis_client, monkeypatch):
    """Redis serves the read first that has waited longest."""
    monkeypatch.setattr("mq_django.consumers.worker.fetchers.BLOCK_MS", 3600_000)
    monkeypatch.setattr("mq_django.consumers.worker.fetchers.kinds", lambda queue: frozenset({False, True}))
    rig.store.create_groups()
    rig.fetcher.run_once()
    block_threads(rig)
    ready, read = rig.store.keys.ready, threading.Thread(target=rig.fetcher.run_once)
    read.start()
    blocked = "blocked_clients"
    wait_until(lambda: redis_client.info("clients")[blocked] == 1)
    found = []
    idle = threading.Thread(
        target=lambda: found.extend(redis_client.xreadgroup(GROUP, "idle", {ready: ">"}, block=60_000))
    )
    idle.start()
    wait_until(lambda: redis_client.info("clients")[blocked] == 2)

    wait_until(lambda: not read.is_alive())
    publish()
    idle.join(60)
    assert len(found) == 1


def test_while_messages_end_nothing_is_blocked(rig, monkeypatch):
    now, ends = [1000.0], threading.Semaphore(0)
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=time.sleep)
    monkeypatch.setattr("mq_django.consumers.worker.pools.time", clock)
    for _ in range(22):
        rig.put(lambda message: ends.acquire(timeout=250))

    for ended in range(1, 21):
        now[0] += 0.9 * BLOCKED
        ends.release()
        wait_until(lambda ended=ended: rig.threads.ended() == ended and not rig.threads.capacity()[1])
        rig.threads.check()
        assert not rig.threads.blocked
    now[0] += 1.1 * BLOCKED
    rig.threads.check()
    assert rig.threads.blocked
    ends.release(2)


def test_what_waits_goes_back_more_and_more_rarely(rig):
    block_threads(rig)
    for _ in range(2):
        rig.put(lambda message: None)
        wait_until(lambda: rig.threads.check() or len(rig.settler))
        # Whoever is idle may take it first.
        assert not rig.threads.blocked
        assert rig.outcomes() == [HandBack()]
    assert rig.threads._hand_back_after == 2.0


def test_the_fetchers_are_woken_when_a_pool_is_blocked(rig):
    woken = threading.Event()
    rig.threads.wake_fetchers = woken.set
    block_threads(rig)
    assert woken.wait(60)


def waits(rig, count):
    """Let so many messages wait for a call with a batch that nobody starts."""
    put, rig.threads.put = rig.threads.put, lambda job: None
    collector = rig.batches.collector(registry.find("default", "b"))
    collector.add([rig.item(print)[:2] for _ in range(count)])
    rig.threads.put = put


def test_each_free_thread_gets_a_batch(rig):
    demand, found = rig.demand_of("default"), {}
    for batch in (10, 200, 5000):
        _handlers.pop(("default", "b"), None)
        handler("default", "b", batch=batch)(print)
        found[batch] = demand.messages(1.0, 0)
    assert found == {10: 20, 200: 400, 5000: 500}


def test_what_waits_for_its_call_needs_no_more_room(rig):
    handler("default", "b", batch=100)(print)
    waits(rig, 50)
    assert rig.demand_of("default").messages(1.0, 50) == 150


def test_messages_that_come_alone_have_room_beside_those_that_wait_for_their_batch(rig):
    handler("default", "b", batch=100, linger=60)(print)
    waits(rig, 199)
    assert rig.demand_of("default").messages(1.0, 199) == 2


def test_while_all_threads_run_the_next_batch_is_fetched(rig):
    handler("default", "b", batch=100)(print)
    for _ in rig.threads.slots:
        rig.put(lambda message: rig.gate.wait(20))
    wait_until(lambda: not rig.threads.capacity()[1])
    demand = rig.demand_of("default")
    assert demand.messages(1.0, 200) == 100
    waits(rig, 100)
    assert demand.messages(1.0, 300) == 0
    # Behind handlers that take long, nothing waits that others could handle.
    wait_until(lambda: rig.threads.check() or rig.threads._slow)
    assert demand.messages(1.0, 200) == 0


def test_a_process_holds_no_more_than_its_shared_state_has_room_for(rig):
    handler("default", "b", batch=100)(print)
    demand = rig.demand_of("default")
    assert [demand.messages(1.0, in_hand) for in_hand in (200, 290, 300, 400)] == [100, 10, 0, 0]


def test_a_fetcher_that_has_no_room_until_outcomes_are_settled_is_woken(rig):
    handler("default", "b", batch=100)(print)
    woken = []
    rig.threads.wake_fetchers = lambda: woken.append(True)
    handler("emails", "b", batch=100)(print)
    for queue, in_hand, demand in (("default", 300, 0), ("emails", 0, 200)):
        assert rig.demand_of(queue).messages(1.0, in_hand) == demand
    rig.threads.check()
    assert woken
