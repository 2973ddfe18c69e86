"""Where handlers run: threads that never die, timeouts that hit the right one, room that is told truly."""

import asyncio
import threading
import time

import pytest

from mq_django.consumers.processes import Grace
from mq_django.consumers.worker.loops import MAX_COROUTINES
from mq_django.consumers.worker.pools import HAND_BACK_AFTER
from mq_django.core.messages import Ack, HandBack, Retry
from mq_django.errors import HandlerTimeout
from mq_django.registry import Handler
from tests.consumers.rig import running
from tests.waiting import wait_until

pytestmark = pytest.mark.versions


@pytest.fixture
def rig(mq_settings):
    with running(threads=2) as found:
        yield found


def test_a_late_handler_is_interrupted_where_it_is(rig):
    def handler(message):
        while True:
            time.sleep(0.01)

    rig.put(handler, timeout=0.1)
    wait_until(lambda: rig.threads.interrupt_late() or len(rig.settler))
    (outcome,) = rig.outcomes()
    assert isinstance(outcome, Retry)
    assert "HandlerTimeout: The handler ran longer than its timeout of 0.1 s" in outcome.error


def test_an_interrupt_never_hits_the_next_delivery(rig):
    """Handlers that end just when they are late, hundreds of times."""
    stop = threading.Event()

    def interrupt():
        while not stop.is_set():
            rig.threads.interrupt_late()

    def handler(message):
        until = time.monotonic() + 0.001
        while time.monotonic() < until:
            pass

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    innocent = Handler(name="innocent", queue="default", call=lambda message: sum(range(200)))
    try:
        for _ in range(120):
            timed = rig.item(handler, timeout=0.001)
            rig.threads.put(timed)
            rig.threads.put(timed._replace(path=rig.dispatcher.path(innocent)))
        outcomes = []
        while len(outcomes) < 240:
            wait_until(lambda: len(rig.settler))
            outcomes += rig.settler._take()
    finally:
        stop.set()
        interrupter.join()
    assert all(slot.thread.is_alive() for slot in rig.threads.slots)
    retried = sum(isinstance(settlement.outcome, Retry) for settlement in outcomes)
    assert 0 < retried <= 120
    for settlement in outcomes:
        if isinstance(settlement.outcome, Retry):
            assert "HandlerTimeout" in settlement.outcome.error


def test_a_handler_that_swallows_the_interrupt_is_not_interrupted_again(rig):
    caught, turns, go = [], [], threading.Event()

    def handler(message):
        while not go.is_set():
            try:
                time.sleep(0.001)
                turns.append(1)
            except HandlerTimeout:
                caught.append(1)
                turns.clear()

    rig.put(handler, timeout=0.05)
    wait_until(lambda: rig.threads.interrupt_late() or caught)
    wait_until(lambda: rig.threads.interrupt_late() or len(turns) > 50)
    go.set()
    rig.outcomes()
    assert caught == [1]


def test_room_is_what_can_be_run_soon(rig):
    wait_until(lambda: not any(slot.busy for slot in rig.threads.slots))
    assert rig.threads.demand("emails", 1.0) == 2  # slow handlers: the idle slots
    assert rig.threads.demand("emails", 0.001) == 2 + 40  # 20 ms of work for two slots
    assert rig.threads.demand("emails", 1e-9) == 2 + 500


def test_without_room_the_fetcher_is_woken_when_there_is(rig):
    woken = threading.Event()
    rig.threads.wake_fetchers = woken.set
    gate = threading.Event()
    for _ in range(2):
        rig.put(lambda message: gate.wait(60))
    wait_until(lambda: all(slot.busy for slot in rig.threads.slots))
    assert rig.threads.demand("emails", 1.0) == 0
    # That of an idle queue, whose messages might be fast, does not wait for it in its place.
    assert rig.threads.demand("idle", 0.001) > 0
    assert not woken.is_set()
    gate.set()
    assert woken.wait(60)


def test_what_waits_behind_slow_handlers_goes_back(rig):
    gate = threading.Event()
    for _ in range(5):
        rig.put(lambda message: gate.wait(60))
    wait_until(lambda: len(rig.shared_state.running()) == 2)
    rig.threads.check()
    assert len(rig.settler) == 0
    wait_until(lambda: rig.threads.check() or len(rig.settler), timeout=HAND_BACK_AFTER + 10)
    assert rig.outcomes(3) == [HandBack()] * 3
    assert rig.threads.demand("emails", 0.0001) == 0
    gate.set()
    wait_until(lambda: rig.threads.check() or rig.threads.demand("emails", 0.0001) > 2)


def test_stopping_ends_the_slots_after_what_they_run(rig):
    gate = threading.Event()
    rig.put(lambda message: gate.wait(60))
    wait_until(rig.shared_state.running)
    rig.threads.stop()
    rig.threads.check()
    assert not rig.threads.join(Grace(0.05))
    gate.set()
    assert rig.threads.join(Grace(60))
    assert rig.shared_state.running() == []


def test_coroutines_run_side_by_side(rig):
    barrier = []

    async def handler(message):
        barrier.append(1)
        while len(barrier) < 50:
            await asyncio.sleep(0.001)

    for _ in range(50):
        rig.put(handler, is_async=True)
    assert all(isinstance(outcome, Ack) for outcome in rig.outcomes(50))
    wait_until(lambda: not rig.loop.held)
    assert rig.shared_state.running() == []


def test_a_late_coroutine_is_interrupted(rig):
    async def handler(message):
        await asyncio.sleep(60)

    rig.put(handler, is_async=True, timeout=0.05)
    (outcome,) = rig.outcomes()
    assert "HandlerTimeout" in outcome.error


def test_more_coroutines_than_places_wait(rig):
    running = []
    gate = asyncio.Event()

    async def handler(message):
        running.append(1)
        await gate.wait()

    for _ in range(MAX_COROUTINES + 20):
        rig.put(handler, is_async=True)
    wait_until(lambda: len(running) == MAX_COROUTINES)
    assert rig.loop.waiting() == 20
    assert rig.loop.demand("emails", 1.0) == 0
    rig.loop.stop()
    assert rig.outcomes(20) == [HandBack()] * 20
    rig.loop._loop.call_soon_threadsafe(gate.set)
    assert len(rig.outcomes(MAX_COROUTINES)) == MAX_COROUTINES
    assert rig.loop.join(Grace(60))


def test_waiting_is_counted_right_from_several_threads(rig):
    async def handler(message):
        pass

    def put():
        for _ in range(250):
            rig.put(handler, is_async=True)

    threads = [threading.Thread(target=put) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_until(lambda: len(rig.settler) == 1000)
    wait_until(lambda: rig.loop.held == 0)
