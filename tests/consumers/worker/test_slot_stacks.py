"""Where handlers are: threads, coroutines and what they await, without the frames that lead to each handler."""

import asyncio
import sys
import threading
import time

import pytest
from asgiref.sync import sync_to_async

from mq_django import registry
from mq_django.consumers.worker.stacks import SlotStacks, short_path
from mq_django.core.stacks import MAX_FRAMES, Frame
from mq_django.middleware import around_handling
from tests.consumers.rig import running
from tests.waiting import wait_until

pytestmark = pytest.mark.versions

HERE = "tests/consumers/worker/test_slot_stacks.py"
#: The innermost call of Event.wait().
WAIT = "Condition.wait"


@pytest.fixture
def go():
    found = threading.Event()
    yield found
    found.set()


@pytest.fixture
def rig(mq_settings, go):
    with running(threads=2) as found:
        yield found
        go.set()


def take(rig, count=1, *, total=1, last="", kinds=()):
    """Return the stacks when so many are where a test wants them, and all that it wants have frames, of these kinds.

    Threads go on while their stacks are taken one after another: a first stack may be of the time before the handler.
    """
    slots = SlotStacks(rig.threads, rig.loop, rig.shared_state)

    def ready():
        found = slots.take()
        there = [one for one in found if one.frames and one.frames[-1].function.endswith(last)]
        shown = sum(bool(one.frames) for one in found)
        is_whole = not kinds or [one.kind for one in found] == kinds
        return found if len(there) >= count and shown >= total and is_whole else []

    return wait_until(ready)


def functions(stack):
    return [frame.function.rpartition(".")[2] for frame in stack.frames]


def test_nothing_runs(rig):
    assert SlotStacks(rig.threads, rig.loop, rig.shared_state).take() == []


def test_a_thread_shows_its_handler_and_what_it_calls_and_nothing_around_it(rig, go):
    def export(message):
        chunk()

    def chunk():
        secret = "hunter2"  # noqa: F841 - no value of a variable may be shown
        go.wait()  # password = "rumpelstiltskin"

    rig.put(export, message_id="m1", name="export")
    (found,) = take(rig, last=WAIT)
    assert (found.kind, found.queue, found.id, found.name) == ("thread", "default", "m1", "export")
    assert 0 <= found.ms < 60_000
    assert functions(found) == ["export", "chunk", "wait", "wait"]
    export_at, chunk_at, *inside = found.frames
    assert export_at.file == HERE
    assert export_at.code == "chunk()"
    assert chunk_at.code == "go.wait()  # password = [redacted]"
    assert {frame.file for frame in inside} == {"threading.py"}
    assert "hunter2" not in repr(found)


def test_what_has_run_longest_comes_first(rig, go):
    rig.put(lambda _: go.wait(), message_id="first")
    take(rig, last=WAIT)
    rig.put(lambda _: go.wait(), message_id="second")
    assert [one.id for one in take(rig, 2, last=WAIT)] == ["first", "second"]


def test_middleware_is_shown(mq_settings, go):
    mq_settings(MIDDLEWARE=[f"{__name__}.slow"])
    Slow.go = go
    registry._kinds["default"] = frozenset((False,))
    try:
        with running(threads=1) as rig:
            rig.put(lambda _: None)
            (found,) = take(rig, last=WAIT)
            assert functions(found)[0] == "middleware"
            go.set()
    finally:
        registry._kinds.clear()


class Slow:
    go = None


@around_handling
def slow(handle):
    def middleware(handling):
        Slow.go.wait()
        return handle(handling)

    return middleware


def test_a_deep_recursion_keeps_its_innermost_frames(rig, go):
    def deep(depth):
        return go.wait() if not depth else deep(depth - 1)

    rig.put(lambda _: deep(500))
    (found,) = take(rig, last=WAIT)
    assert len(found.frames) == MAX_FRAMES
    assert found.left_out == 500 + 4 - MAX_FRAMES
    assert functions(found)[-3:] == ["deep", "wait", "wait"]


def test_a_coroutine_shows_what_it_awaits_and_of_several_tasks_one(rig, go):
    async def export(message):
        await chunk()

    async def chunk():
        await asyncio.gather(*(child() for _ in range(3)))

    async def child():
        while not go.is_set():
            await asyncio.sleep(0.01)

    rig.put(export, message_id="m1", is_async=True)
    (found,) = take(rig, last="sleep")
    assert (found.kind, found.id, found.others) == ("coroutine", "m1", 2)
    assert functions(found) == ["export", "chunk", "child", "sleep"]
    assert [frame.file for frame in found.frames] == [HERE, HERE, HERE, "asyncio/tasks.py"]
    assert found.frames[2].code == "await asyncio.sleep(0.01)"


def test_two_tasks_that_await_each_other_end(rig, go):
    tasks = []

    async def export(message):
        tasks.append(asyncio.current_task())
        await asyncio.create_task(child())

    async def child():
        while not go.is_set():
            await asyncio.wait(tasks, timeout=0.01)

    rig.put(export, is_async=True)
    (found,) = take(rig, last="_wait")
    assert functions(found)[:2] == ["export", "child"]


def test_a_coroutine_that_blocks_the_loop_shows_where(rig, go):
    async def export(message):
        await helper()

    async def helper():
        block()

    def block():
        go.wait()

    rig.put(export, is_async=True)
    (found,) = take(rig, last=WAIT)
    assert found.kind == "coroutine"
    assert functions(found) == ["export", "helper", "block", "wait", "wait"]


def test_a_task_that_no_handler_awaits_is_shown_while_it_blocks_the_loop(rig, go):
    async def export(message):
        async with asyncio.TaskGroup() as group:
            group.create_task(child())

    async def child():
        go.wait()

    rig.put(export, is_async=True)
    handler, task = take(rig, total=2, last=WAIT)
    assert (handler.kind, functions(handler)[0]) == ("coroutine", "export")
    assert (task.kind, task.id, functions(task)) == ("task", "", ["child", "wait", "wait"])


def test_what_a_coroutine_runs_in_another_thread_is_shown(rig, go):
    async def export(message):
        await sync_to_async(query)()

    def query():
        go.wait()

    rig.put(export, is_async=True)
    handler, other = take(rig, last=WAIT, kinds=["coroutine", "sync"])
    assert functions(handler)[:1] == ["export"]
    assert (other.id, functions(other)) == ("", ["query", "wait", "wait"])


def test_many_at_once_are_taken_while_they_start_and_end(rig, go):
    slots, errors = SlotStacks(rig.threads, rig.loop, rig.shared_state), []

    async def brief(message):
        await asyncio.sleep(0)

    def feed():
        while not go.is_set():
            for number in range(20):
                rig.put(lambda _: time.sleep(0.0001), message_id=f"t{number}")
                rig.put(brief, is_async=True, message_id=f"c{number}")
            time.sleep(0.005)
            rig.settler._take()

    feeder = threading.Thread(target=feed)
    feeder.start()
    for _ in range(300):
        for one in slots.take():
            errors += [frame for frame in one.frames if "consumers/worker/executor" in frame.file]
    go.set()
    feeder.join(60)
    wait_until(lambda: not rig.loop.held)
    assert errors == []


def test_code_without_a_file_is_shown_without_lines(rig, go):
    namespace = {"go": go}
    exec("def export(message):\n    go.wait()\n", namespace)
    rig.put(namespace["export"])
    (found,) = take(rig, last=WAIT)
    assert found.frames[0] == Frame("<string>", 2, "export", "")


def test_a_path_does_not_name_folders_of_the_machine(monkeypatch):
    monkeypatch.setattr(sys, "path", ["", "/", "relative", "/srv/shop", "/srv/shop/lib/"])
    shown = {
        "/srv/shop/.venv/lib/python3.12/site-packages/django/db/models/query.py": "django/db/models/query.py",
        "/usr/lib/python3/dist-packages/redis/client.py": "redis/client.py",
        "/srv/shop/orders/tasks.py": "orders/tasks.py",
        "/srv/shop/lib/money.py": "money.py",
        "/elsewhere/secret-name/x.py": "x.py",
        "relative/x.py": "x.py",
        "<frozen runpy>": "<frozen runpy>",
        "": "",
    }
    assert {path: short_path(path) for path in shown} == shown
