"""One handler that does what its message says, and notes it."""

import asyncio
import ctypes
import os
import stat
import sys
import time
from contextlib import suppress
from typing import Any

from django.conf import settings

from mq_django import Message, Retry, handler, is_cancelled, progress, resumable, stream, subscriber, uninterrupted
from mq_django.consumers import service
from mq_django.consumers.worker import loops
from mq_django.stores.stream_store import StreamStore
from tests.consumers.project.history import note
from tests.consumers.project.models import Row


def act(message: Message) -> object:
    """Do the steps of a message, each `[verb, argument]`, and note the begin and the effect."""
    note("start", id=message.id, queue=message.queue, attempt=message.attempt)
    outcome: object = None
    for verb, argument in (message.data or {}).get("do", []):
        outcome = STEPS[verb](argument, message)
    note("effect", id=message.id, queue=message.queue, attempt=message.attempt)
    return outcome


def _once(step: list[object], message: Message) -> object:
    """Do a step in the first attempt only."""
    return STEPS[step[0]](step[1], message) if message.attempt == 1 else None


def _hold_the_gil(seconds: float, _: Message) -> None:
    # PyDLL keeps the GIL, as CDLL does not.
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


def _stubborn(seconds: float, _: Message) -> None:
    """Ignore every interrupt."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            time.sleep(min(0.05, max(0.0, until - time.monotonic())))
        except Exception:  # noqa: BLE001
            note("ignored")


def _raise(text: str, _: Message) -> None:
    raise ValueError(text)


def _stick(_: object, __: Message) -> None:
    """Let this process's fetchers hang in their next read, and be taken for stuck soon."""
    # Longer than every loop's longest round.
    service.STUCK = 7.0
    for name in ("take", "fetch", "settle_and_take"):
        setattr(StreamStore, name, lambda *_, **__: time.sleep(3600))


def _wait_for(path: str, _: Message) -> None:
    while not os.path.exists(path):  # noqa: PTH110
        time.sleep(0.01)


def _fork_back(code: int, _: Message) -> None:
    """Fork a child that returns from the handler, or raises when the code is not 0; wait for its end."""
    if pid := os.fork():
        note("child", code=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    elif code:
        raise ValueError("in the child")


def _block_loop(_: object, __: Message) -> None:
    loops.MAX_BLOCKED = 0.3  # in this process, where nothing else will run
    time.sleep(3600)


async def _block_in_a_task(message: Message) -> None:
    _block_loop(None, message)


def _truncate_descriptors(_: object, __: Message) -> None:
    """Truncate every file that has no name, as whoever cleans up what it inherited may do."""
    for number in _descriptors():
        told = os.fstat(number)
        if stat.S_ISREG(told.st_mode) and not told.st_nlink:
            with suppress(OSError):
                os.ftruncate(number, 0)


def _close_descriptors(_: object, __: Message) -> None:
    """Close everything but the standard streams, as a daemon does at its start."""
    os.closerange(3, max(_descriptors()) + 1)


def _descriptors() -> list[int]:
    found = [number for number in range(3, 512) if _is_open(number)]
    note("descriptors", count=len(found))
    return found


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _fork(seconds: float, _: Message) -> None:
    """Leave a process behind that has everything open that this one has."""
    if not os.fork():
        time.sleep(seconds)
        os._exit(0)


def _nap(seconds: float, _: Message) -> None:
    """Sleep in steps, so that an interrupt arrives at once."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.01)


def _cooperate(_: object, message: Message) -> None:
    with uninterrupted():
        while not is_cancelled():
            time.sleep(0.01)
        note("guarded", id=message.id)


def _report(told: list[object], _: Message) -> None:
    """Report progress, and wait until a file exists."""
    done, total, text, path = told
    progress(done, total, text)  # type: ignore[arg-type] # from JSON
    if path:
        _wait_for(str(path), _)


def _stream(told: list[Any], message: Message) -> None:
    """Stream so many numbers, one each so many seconds."""
    count, seconds = told
    for number in range(count):
        stream(number)
        time.sleep(seconds)


def _walk(seconds: float, message: Message) -> None:
    """Walk over all rows, and note each."""
    for row in resumable(Row.objects.all(), chunk=50):
        note("row", id=message.id, row=row.pk)
        progress(row.pk, Row.objects.count())
        time.sleep(seconds)


async def _walk_async(seconds: float, message: Message) -> None:
    async for row in resumable(Row.objects.all(), chunk=50):
        note("row", id=message.id, row=row.pk)
        await asyncio.sleep(seconds)


STEPS = {
    "nap": _nap,
    "cooperate": _cooperate,
    "report": _report,
    "stream": _stream,
    "walk": _walk,
    "fork": _fork,
    "fork_back": _fork_back,
    "block": _block_loop,
    "truncate_descriptors": _truncate_descriptors,
    "close_descriptors": _close_descriptors,
    "sleep": lambda seconds, _: time.sleep(seconds),
    "spin": lambda seconds, _: _spin(seconds),
    "gil": _hold_the_gil,
    "stubborn": _stubborn,
    "raise": _raise,
    "exit": lambda code, _: os._exit(code),
    "sysexit": lambda code, _: sys.exit(code),
    "kill": lambda number, _: os.kill(os.getpid(), number),
    "memory": lambda _, __: _out_of_memory(),
    "retry": lambda seconds, _: Retry(delay=seconds),
    "wait": _wait_for,
    "once": _once,
    "stick": _stick,
}


def _spin(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def _out_of_memory() -> None:
    raise MemoryError


async def act_async(message: Message) -> None:
    """Do what act() does, but sleep on the event loop."""
    note("start", id=message.id, queue=message.queue, attempt=message.attempt)
    for verb, argument in message.data.get("do", []):
        if verb == "sleep":
            await asyncio.sleep(argument)
        elif verb == "walk":
            await _walk_async(argument, message)
        elif verb == "gather":
            await asyncio.gather(_block_in_a_task(message))
        else:
            STEPS[verb](argument, message)
    note("effect", id=message.id, queue=message.queue, attempt=message.attempt)


def act_on_many(messages: list[Message]) -> None:
    """Do what act() does for each message, and note which ones came together."""
    note("call", ids=[message.id for message in messages], attempts=[message.attempt for message in messages])
    for message in messages:
        act(message)


async def act_on_many_async(messages: list[Message]) -> None:
    note("call", ids=[message.id for message in messages], attempts=[message.attempt for message in messages])
    for message in messages:
        await act_async(message)


for _queue in ("default", "emails", "a", "b", "c"):
    handler(_queue, "act")(act)
    handler(_queue, "aact")(act_async)
    # A step within it takes longer.
    handler(_queue, "timed", timeout=2.0)(act)

if "news" in settings.MQ_DJANGO.get("TOPICS", {}):
    subscriber("news", group="readers")(act)

if "batches" in settings.MQ_DJANGO["QUEUES"]:
    handler("batches", "many", batch=20)(act_on_many)
    handler("batches", "amany", batch=20)(act_on_many_async)
    handler("batches", "lingering", batch=20, linger=1.0)(act_on_many)
    handler("batches", "stubborn", batch=20, timeout=1.0)(act_on_many)
