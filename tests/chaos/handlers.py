"""What the messages of a run do: jobs that have an effect, and poison of every kind."""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from django.db import transaction

from mq_django import handler
from mq_django.core.messages import Message
from tests.chaos import points
from tests.chaos.observing import id_of, note
from tests.chaos.settings import CLUSTER, PARTNER, QUEUE, STREAMS, TRANSACTIONS, queues

#: Seconds that poison may run.
TIMEOUT = 1.0

_deaths = count()


class Failed(Exception):
    """A job did not work this time."""


@handler(QUEUE, "job")
def job(message: Message) -> None:
    """Work for a while, and have the effect in the middle, so that a fault finds it on either side."""
    half = message.data.get("ms", 0) / 2000
    if message.attempt <= message.data.get("fails", 0):
        time.sleep(half)
        raise Failed(message.data["id"])
    time.sleep(half)
    note("effect", id=message.data["id"], attempt=message.attempt)
    points.reached("effect")
    time.sleep(half)


@handler(QUEUE, "raise")
def raise_(message: Message) -> None:
    raise Failed(message.data["id"])


@handler(QUEUE, "memory")
def memory(message: Message) -> None:
    raise MemoryError(message.data["id"])


@handler(QUEUE, "exit")
def exit_(message: Message) -> None:
    sys.exit(3)


@handler(QUEUE, "die")
def die(message: Message) -> None:
    _will_hit_this_process("die", message)
    os._exit(3)


@handler(QUEUE, "loop", timeout=TIMEOUT)
def loop(message: Message) -> None:
    while True:
        pass


@handler(QUEUE, "hold", timeout=TIMEOUT)
def hold(message: Message) -> None:
    """Wait where no exception can reach: only a new process helps."""
    _will_hit_this_process("hold", message)
    lock = threading.Lock()
    lock.acquire()
    lock.acquire(timeout=60)


@handler(QUEUE, "book")
def book(message: Message) -> None:
    """Have the effect at the commit: it is missing when another handler's transaction is around this one."""
    with transaction.atomic():
        transaction.on_commit(lambda: note("effect", id=message.data["id"], attempt=message.attempt))


@handler(QUEUE, "open")
def open_(message: Message) -> None:
    """Leave a transaction open."""
    transaction.atomic().__enter__()


@handler(QUEUE, "autocommit")
def autocommit(message: Message) -> None:
    """Leave autocommit off."""
    transaction.set_autocommit(False)


@handler(QUEUE, "wait")
async def wait(message: Message) -> None:
    await asyncio.sleep(message.data.get("ms", 0) / 1000)
    note("effect", id=message.data["id"], attempt=message.attempt)


@handler(QUEUE, "stop-loop")
async def stop_loop(message: Message) -> None:
    note("effect", id=message.data["id"], attempt=message.attempt)
    asyncio.get_running_loop().stop()


@handler(QUEUE, "exit-loop")
async def exit_loop(message: Message) -> None:
    note("effect", id=message.data["id"], attempt=message.attempt)
    asyncio.get_running_loop().call_soon(sys.exit)


@handler(QUEUE, "next")
def next_(message: Message) -> None:
    """Run in the order of the key: fail as often as told, or work like a job."""
    with _noted(message):
        job(message)


@handler(QUEUE, "late", timeout=TIMEOUT)
def late(message: Message) -> None:
    """Run in the order of the key, and for too long the first time."""
    with _noted(message):
        while message.attempt == 1:
            time.sleep(0.01)
        job(message)


@handler(QUEUE, "fatal")
def fatal(message: Message) -> None:
    """Run in the order of the key, and end the process the first time."""
    with _noted(message):
        if message.attempt == 1:
            die(message)
        job(message)


@contextmanager
def _noted(message: Message) -> Iterator[None]:
    """Note when a handler begins and ends, as exactly as it can know."""
    told = {"id": message.data["id"], "thread": threading.get_ident()}
    note("entered", **told)
    how = "returned"
    try:
        yield
    except BaseException as error:
        how = type(error).__name__
        raise
    finally:
        note("left", how=how, **told)


def _will_hit_this_process(kind: str, message: Message) -> None:
    note(
        "fault",
        fault=f"{kind}-{id_of(message)}-{os.getpid()}-{next(_deaths)}",
        kind=kind,
        began=time.monotonic(),
        pids=[os.getpid()],
    )


for _queue in set(queues()) - {QUEUE} if os.environ.get(CLUSTER) else ():
    handler(_queue, "job")(job)
    handler(_queue, "next")(next_)

if os.environ.get(PARTNER):
    # Else the queue has no breaker.
    from tests.chaos import calling

    calling.register()

if os.environ.get(STREAMS):
    # Else the queue keeps none.
    from tests.chaos import telling

    telling.register()

if os.environ.get(TRANSACTIONS):
    # It has handlers for queues that only these consumers have.
    from tests.chaos import booking as booking
