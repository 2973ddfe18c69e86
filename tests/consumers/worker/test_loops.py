"""No coroutine ends the event loop for good, and one that blocks it is noticed."""

import asyncio
import logging
import sys
import threading
import time

import pytest
from django.utils import translation

from mq_django.consumers.processes import Grace
from mq_django.core.messages import Ack, Retry
from tests.consumers.rig import Rig, running
from tests.waiting import wait_until

pytestmark = pytest.mark.versions


@pytest.fixture
def rig(mq_settings):
    with running(threads=1) as found:
        yield found


async def exits_in_a_task(message):
    await asyncio.create_task(exits())


async def exits():
    sys.exit(3)


async def exits_in_a_group(message):
    async with asyncio.TaskGroup() as group:
        group.create_task(exits())
        group.create_task(asyncio.sleep(0.01))


async def exits_in_a_callback(message):
    asyncio.get_running_loop().call_soon(sys.exit)
    await asyncio.sleep(0.01)


async def stops_the_loop(message):
    asyncio.get_running_loop().stop()


async def closes_the_loop(message):
    asyncio.get_running_loop().close()


async def cancels_itself(message):
    asyncio.current_task().cancel()


KILLERS = [
    exits_in_a_task,
    exits_in_a_group,
    exits_in_a_callback,
    stops_the_loop,
    closes_the_loop,
    cancels_itself,
]


def test_the_loop_goes_on_whatever_a_coroutine_does(rig, caplog):
    async def innocent(message):
        await asyncio.sleep(0.01)

    caplog.set_level(logging.ERROR)
    for killer in KILLERS:
        for call in (innocent, killer) * 3:
            rig.put(call, is_async=True)
        outcomes = rig.outcomes(6)
        assert sum(isinstance(outcome, Ack) for outcome in outcomes) >= 3, killer
        wait_until(lambda: not rig.loop.held)
        assert rig.loop.thread.is_alive()
        assert rig.shared_state.running() == []
        if killer in (exits_in_a_task, stops_the_loop):
            wait_until(lambda: any("event loop, which was restarted" in line for line in caplog.messages))
        caplog.clear()


def test_a_closed_loop_is_found_dead_and_costs_the_stop_no_time(mq_settings):
    rig = Rig(threads=1)
    rig.start()
    rig.loop._ending = True
    rig.loop._loop.call_soon_threadsafe(rig.loop._loop.stop)
    rig.loop.thread.join(5)
    rig.loop._ending = False
    rig.put(cancels_itself, is_async=True)
    assert rig.loop.progress() == {"mq_django loop": None}
    grace = Grace(3600)
    assert not rig.loop.join(grace)
    rig.threads.stop()
    rig.session.close()


def test_a_coroutine_that_blocks_the_loop_is_named_and_counts_as_late(rig, monkeypatch, caplog):
    monkeypatch.setattr("mq_django.consumers.worker.loops.MAX_BLOCKED", 0.2)
    begun, gate = threading.Event(), threading.Event()

    async def blocks(message):
        await asyncio.sleep(0.01)
        begun.set()
        gate.wait(60)

    async def innocent(message):
        await asyncio.sleep(60)

    rig.handle("n", blocks)
    rig.put(innocent, is_async=True)
    rig.put(blocks, is_async=True, where="project.blocks")
    # Before that a loop that does not answer may be one that gets no processor.
    wait_until(begun.is_set)
    late = wait_until(lambda: rig.loop.check() or rig.shared_state.late(time.monotonic()))
    gate.set()
    assert len(late) == 1
    (told,) = [line for line in caplog.messages if "was blocked for" in line]
    assert "project.blocks" in told
    wait_until(lambda: rig.loop.check() or rig.loop._silent == 0.0)
    rig.loop._loop.call_soon_threadsafe(lambda: [task.cancel() for task in rig.loop._tasks])


def test_of_several_each_is_suspected_of_the_task_that_blocks_the_loop(rig, monkeypatch):
    monkeypatch.setattr("mq_django.consumers.worker.loops.MAX_BLOCKED", 0.2)
    begun, gate = threading.Event(), threading.Event()

    async def child():
        begun.set()
        gate.wait(60)

    async def gathers(message):
        await asyncio.sleep(0.01)
        await asyncio.gather(child())

    async def innocent(message):
        await asyncio.sleep(60)

    rig.handle("n", gathers)
    rig.put(innocent, is_async=True)
    rig.put(gathers, is_async=True)
    wait_until(begun.is_set)
    suspects = wait_until(lambda: rig.loop.check() or rig.loop.suspects)
    assert len(suspects) == 2
    assert not rig.shared_state.late(time.monotonic())
    gate.set()
    wait_until(lambda: not rig.loop.suspects)
    rig.loop._loop.call_soon_threadsafe(lambda: [task.cancel() for task in rig.loop._tasks])


def test_a_loop_without_work_is_not_asked(rig):
    rig.loop.check()
    assert rig.loop._answered


def test_context_variables_end_with_the_message(rig):
    found = []

    async def changes(message):
        found.append(translation.get_language())
        translation.activate("de")

    for _ in range(3):
        rig.put(changes, is_async=True)
        assert not isinstance(rig.outcomes()[0], Retry)
    assert len(set(found)) == 1
