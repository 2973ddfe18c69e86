"""Run a coroutine function in a thread of a consumer, on an event loop of its own.

Its database operations run in the thread, so that they are in the transaction of the thread, and those of no other
coroutine are.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol

from asgiref.sync import async_to_sync

from mq_django.core.interrupts import place
from mq_django.errors import HandlerTimeout

#: Seconds between two checks whether the message was cancelled: the thread itself waits, and cannot be interrupted.
LOOK_EVERY = 0.1


class WaitingThread(Protocol):
    """The thread that waits for the coroutine: see `Interruptible`."""

    #: Somebody has cancelled what runs here.
    cancelled: bool
    #: The number of blocks in which it is not interrupted.
    guards: int

    def end_timeout(self) -> None:
        """Let the timeout not interrupt the thread."""

    def guard(self) -> None:
        """See Interruptible.guard()."""

    def unguard(self) -> None:
        """See Interruptible.unguard()."""


def call_in_thread(function: Callable[[Any], Awaitable[Any]], argument: object, timeout: float | None) -> Any:
    """Call a coroutine function, and return its result.

    Args:
        function: that handles a message, or the messages of a batch.
        argument: the message, or a list of messages.
        timeout: in seconds; None: none.

    Raises:
        HandlerTimeout: it took longer than its timeout.
        BaseException: that of the function.
    """
    thread: Any = place.get()
    if thread is None:
        return async_to_sync(_run)(function, argument, timeout, None)
    # An interrupt of the thread would leave the coroutine running.
    thread.guard()
    thread.end_timeout()
    try:
        return async_to_sync(_run)(function, argument, timeout, thread)
    finally:
        thread.unguard()


async def _run(
    function: Callable[[Any], Awaitable[Any]],
    argument: object,
    timeout: float | None,
    thread: WaitingThread | None,
) -> Any:
    watch = None if thread is None else asyncio.create_task(_cancel_with(thread, asyncio.current_task()))
    try:
        async with asyncio.timeout(timeout) as limit:
            return await function(argument)
    except TimeoutError as error:
        if limit.expired():
            raise HandlerTimeout(f"The handler ran longer than its timeout of {timeout:g} s") from error
        raise
    finally:
        if watch is not None:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch


async def _cancel_with(thread: WaitingThread, task: "asyncio.Task[Any] | None") -> None:
    """Cancel a task when the message is cancelled, outside of blocks in which it is not interrupted."""
    while not (thread.cancelled and thread.guards <= 1):
        await asyncio.sleep(LOOK_EVERY)
    if task is not None:
        task.cancel()
