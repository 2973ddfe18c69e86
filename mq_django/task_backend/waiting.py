"""Wait for the results of tasks."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from queue import Empty, SimpleQueue

from asgiref.sync import sync_to_async

from mq_django.core.times import Duration
from mq_django.stores.results import Result
from mq_django.task_backend.awaiting import IN_TEST, Awaited, refuse_event_loop
from mq_django.task_backend.compat import AnyResult
from mq_django.transport import test_mode

_Ended = tuple[str, Result | None]


def wait(result: AnyResult | str, *, timeout: Duration, in_handler: bool = False) -> AnyResult:
    """Wait until a task has ended, and return its result.

        result = wait(add.enqueue(2, 3), timeout=10)
        assert result.return_value == 5

    A task that fails raises nothing here: the `status` of its result is FAILED, and `errors` has its exceptions. That
    is also so for one that was cancelled or has expired. A task that is tried again has not ended.

    Args:
        result: what `enqueue()` has returned, or its `id`.
        timeout: a timedelta or seconds. 0: look once.
        in_handler: allow it inside a handler, where it blocks a place of the consumer. If all places wait for tasks
            that need one of them, they wait until the timeout.

    Returns:
        The result as it is at the end of the task.

    Raises:
        WaitTimeout: the task has not ended within the timeout. It goes on.
        InvalidWait: `timeout` or `result` cannot be.
        CannotWait: this is a handler; the task is enqueued only when the open transaction of this thread commits; its
            queue keeps no results; or its backend never runs it.
        SynchronousOnlyOperation: this thread runs an event loop, which has to await await_().
        TaskResultDoesNotExist: there is no result, it has expired, or this process has no task of its path.
        StoreError: Redis cannot be reached when the wait begins. Later failures of Redis are waited out.
        ConfigurationError: `MQ_DJANGO` cannot be used.
    """
    refuse_event_loop("await_")
    return wait_all([result], timeout=timeout, in_handler=in_handler)[0]


def wait_all(results: Iterable[AnyResult | str], *, timeout: Duration, in_handler: bool = False) -> list[AnyResult]:
    """Wait until all tasks have ended, and return their results in the same order.

    Args:
        results: what `enqueue()` or `enqueue_many()` has returned, or ids.
        timeout: a timedelta or seconds, for all together.
        in_handler: as for wait().

    Returns:
        The results; those of failed tasks, too.

    Raises:
        WaitTimeout: not all have ended within the timeout. Its `missing` has the ids of those that have not.
        InvalidWait, CannotWait, TaskResultDoesNotExist, StoreError, ConfigurationError: as wait().
        SynchronousOnlyOperation: this thread runs an event loop, which has to await await_all().
    """
    refuse_event_loop("await_all")
    awaited = Awaited(results, timeout, in_handler=in_handler)
    found = {result.id: result for result in _ended(awaited, awaited.check())}
    return [found[message_id] for message_id in awaited.ids]


def as_completed(
    results: Iterable[AnyResult | str], *, timeout: Duration, in_handler: bool = False
) -> Iterator[AnyResult]:
    """Return an iterator over the results of tasks, each as soon as its task has ended.

    All arguments are checked at once. The watching begins with the first step of the iterator.

    Args:
        results: what `enqueue()` or `enqueue_many()` has returned, or ids. Each is yielded once.
        timeout: a timedelta or seconds from now, for all together.
        in_handler: as for wait().

    Returns:
        An iterator. It raises WaitTimeout when the time is over, with the ids of the missing ones in `missing`.

    Raises:
        InvalidWait, CannotWait, TaskResultDoesNotExist, StoreError, ConfigurationError: as wait().
        SynchronousOnlyOperation: this thread runs an event loop, which has to use aas_completed().
    """
    refuse_event_loop("aas_completed")
    awaited = Awaited(results, timeout, in_handler=in_handler)
    return _ended(awaited, awaited.check())


async def await_(result: AnyResult | str, *, timeout: Duration, in_handler: bool = False) -> AnyResult:
    """Wait like wait(), on an event loop.

    Args:
        result, timeout, in_handler: as for wait().

    Returns:
        The result as it is at the end of the task.

    Raises:
        WaitTimeout, InvalidWait, CannotWait, TaskResultDoesNotExist, StoreError, ConfigurationError: as wait().
    """
    return (await await_all([result], timeout=timeout, in_handler=in_handler))[0]


async def await_all(
    results: Iterable[AnyResult | str], *, timeout: Duration, in_handler: bool = False
) -> list[AnyResult]:
    """Wait like wait_all(), on an event loop.

    Args:
        results, timeout, in_handler: as for wait_all().

    Returns:
        The results in the order in which they were given.

    Raises:
        WaitTimeout, InvalidWait, CannotWait, TaskResultDoesNotExist, StoreError, ConfigurationError: as wait_all().
    """
    awaited = Awaited(results, timeout, in_handler=in_handler)
    found = {result.id: result async for result in _aended(awaited)}
    return [found[message_id] for message_id in awaited.ids]


def aas_completed(
    results: Iterable[AnyResult | str], *, timeout: Duration, in_handler: bool = False
) -> AsyncIterator[AnyResult]:
    """Return an asynchronous iterator over the results of tasks, each as soon as its task has ended.

        async for result in aas_completed(results, timeout=60):
            ...

    Args:
        results, timeout, in_handler: as for as_completed().

    Returns:
        An asynchronous iterator. Its first step raises what as_completed() raises when it looks.

    Raises:
        InvalidWait: `timeout` or a result cannot be.
        CannotWait: this is a handler.
    """
    return _aended(Awaited(results, timeout, in_handler=in_handler))


def _ended(awaited: Awaited, ended: list[AnyResult]) -> Iterator[AnyResult]:
    """Yield the results that have ended, and the others when they do."""
    yield from ended
    events: SimpleQueue[_Ended] = SimpleQueue()

    def on_end(message_id: str, found: Result | None) -> None:
        events.put((message_id, found))

    try:
        yield from awaited.start(on_end)
        while not awaited.is_over:
            try:
                message_id, found = events.get(timeout=0.0 if test_mode.handle_ready else awaited.left())
            except Empty:
                raise awaited.timed_out(IN_TEST if test_mode.handle_ready else "") from None
            result = awaited.ended(message_id, found) if found else awaited.find_again(message_id, on_end)
            if result is not None:
                yield result
    finally:
        awaited.stop(on_end)


async def _aended(awaited: Awaited) -> AsyncIterator[AnyResult]:
    """Yield the results that have ended, and the others when they do."""
    loop, events = asyncio.get_running_loop(), asyncio.Queue[_Ended]()

    def on_end(message_id: str, found: Result | None) -> None:
        loop.call_soon_threadsafe(events.put_nowait, (message_id, found))

    def begin() -> list[AnyResult]:
        # In the thread that has the open transactions of this coroutine.
        return [*awaited.check(), *awaited.start(on_end)]

    try:
        for result in await sync_to_async(begin)():
            yield result
        while not awaited.is_over:
            try:
                async with asyncio.timeout(0.0 if test_mode.handle_ready else awaited.left()):
                    message_id, found = await events.get()
            except TimeoutError:
                raise awaited.timed_out(IN_TEST if test_mode.handle_ready else "") from None
            if found is not None:
                yield awaited.ended(message_id, found)
            elif (again := await sync_to_async(awaited.find_again)(message_id, on_end)) is not None:
                yield again
    finally:
        awaited.stop(on_end)
