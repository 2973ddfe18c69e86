"""Wait for the results of tasks."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings

from mq_django.conf import QueueConfig, get_config
from mq_django.core import running_handler
from mq_django.core.clock import Duration
from mq_django.core.partitions import number_in_id
from mq_django.core.texts import class_name, line, repr_of, text_of
from mq_django.errors import CannotWait, InvalidWait, WaitTimeout
from mq_django.producers.asynchronous import asynchronous, refuse_event_loop
from mq_django.producers.sinks import awaiting_commit
from mq_django.producers.watcher import Ended, ResultWatcher, checked_timeout, watchers
from mq_django.stores.results import Result, part_with
from mq_django.task_backend.backend import TaskBackend, api_of, find_anywhere
from mq_django.task_backend.compat import AnyResult, TaskResultDoesNotExist, task_backends
from mq_django.task_backend.sending import is_by_outbox, task_result
from mq_django.task_backend.task_options import has_arguments
from mq_django.transport import test_mode
from mq_django.transport.connections import open_transports

# Find the result of a task by its id, without knowing the task.


def get_result(result_id: str) -> AnyResult:
    """Return the result of an enqueued task, whatever its task, queue and backend.

    Looks in all queues of this project, in one round trip to each server, and then asks the other backends in TASKS.

    Args:
        result_id: the `id` of the result that `enqueue()` returned.

    Returns:
        The result as it is now.

    Raises:
        TaskResultDoesNotExist: there is no result, it has expired, or this process has no task of its path.
        StoreError: Redis cannot be reached, or refuses the command.
        ConfigurationError: `MQ_DJANGO` cannot be used.
    """
    text = text_of(result_id)
    found = find_anywhere(text)
    if found is not None:
        return found
    for alias in getattr(settings, "TASKS", {}):
        backend = task_backends[alias]
        if isinstance(backend, TaskBackend):
            continue
        # The DummyBackend finds its results, though it does not say so.
        with suppress(TaskResultDoesNotExist, NotImplementedError):
            return backend.get_result(text)
    raise TaskResultDoesNotExist(line(text[:300]))


aget_result = asynchronous(get_result)

# The results that a call waits for: checks, reads, and watching.

#: The most ids that the text of an error names.
MAX_NAMED = 10
#: Seconds between two searches for a result whose message no relay of the outbox has published: at first, and later.
FIRST_PAUSE, LONGEST_PAUSE = 0.005, 1.0

IN_HANDLER = (
    "Waiting inside a handler can block a consumer for ever: the task that is waited for may need the slot of the "
    "handler that waits. Publish what comes next from the other task, or pass in_handler=True if other consumers run it"
)
NOT_COMMITTED = (
    "Task {} is enqueued when the open transaction commits, so waiting for it inside can only time out. Wait after "
    "atomic(){}; in a test call mq.commit() before"
)
#: Has no effect on a row of the outbox.
OR_AT_ONCE = ", or enqueue it with using(on_commit=False)"
NOTHING_RUNS_IT = "{} runs nothing that could be waited for: its task {} would stay {}"
NO_RESULTS = "Queue {!r} keeps no results, so nobody can wait for task {}: its RESULT_TTL is 0"
EVENT_LOOP = ", which waiting would block: await {}() instead"
IN_TEST = "; it is not ready, and in a test with mq_django.testing time passes only by mq.advance()"


class Awaited:
    """The results that a call waits for.

    Args:
        results: results of `enqueue()`, and ids.
        timeout: for all of them together, from now on.
        in_handler: allow it inside a handler.

    Raises:
        InvalidWait: `timeout` or a result cannot be.
        CannotWait: this is a handler.
    """

    def __init__(self, results: Iterable[AnyResult | str], timeout: Duration, *, in_handler: bool) -> None:
        self._seconds = checked_timeout(timeout).total_seconds()
        if running_handler.is_in_handler() and not in_handler:
            raise CannotWait(IN_HANDLER)
        if isinstance(results, str | bytes) or not isinstance(results, Iterable):
            raise InvalidWait(f"Give a list of results or ids, not {repr_of(results)}")
        given: list[Any] = list(results)
        #: The id of each, in the order in which they were given.
        self.ids = [_id_of(each) for each in given]
        self._given = dict(zip(self.ids, given, strict=True))
        #: Those that have not ended, by id.
        self._open: dict[str, AnyResult] = {}
        self._watched: list[tuple[ResultWatcher, QueueConfig, list[str]]] = []
        #: The ids of those that may be in an outbox, and the seconds until the next search for them.
        self._unpublished: set[str] = set()
        self._pause = FIRST_PAUSE
        self._ends = time.monotonic() + self._seconds

    @property
    def is_over(self) -> bool:
        """Return whether all have ended."""
        return not self._open

    def patience(self) -> float:
        """Return the seconds after which timed_out() or search_again() is called, if no result has ended."""
        if test_mode.handle_ready:
            return 0.0
        left = max(0.0, self._ends - time.monotonic())
        return min(left, self._pause) if self._unpublished else left

    def search_again(self, on_end: Ended) -> bool:
        """Have results searched for that were in an outbox. Return False if there are none, or no time is left."""
        if not self._unpublished or time.monotonic() >= self._ends:
            return False
        for *_, ids in self._watched:
            ids[:] = [message_id for message_id in ids if message_id not in self._unpublished]
        for message_id in self._unpublished:
            on_end(message_id, None)
        self._unpublished.clear()
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        return True

    def check(self) -> list[AnyResult]:
        """Find the tasks, and return those that have ended already.

        Raises:
            CannotWait: waiting for one of them could only time out.
            TaskResultDoesNotExist: there is no result of an id.
            StoreError: Redis cannot be reached, or refuses a command.
        """
        not_committed, ended = awaiting_commit(), list[AnyResult]()
        for message_id in self._given:
            if message_id in not_committed:
                is_row = not_committed[message_id]
                raise CannotWait(NOT_COMMITTED.format(message_id, "" if is_row else OR_AT_ONCE))
        for message_id, given in self._given.items():
            result = get_result(message_id) if isinstance(given, str) else given
            if result.is_finished:
                ended.append(result)
                continue
            _queue_of(result)
            self._open[message_id] = result
        return ended

    def start(self, on_end: Ended) -> list[AnyResult]:
        """Watch the results that have not ended: see ResultWatcher.watch().

        While a test uses `mq_django.testing`, handle what is ready instead, and return what has ended by that.
        """
        if test_mode.handle_ready is not None and self._open:
            return self._handle(test_mode.handle_ready)
        partitions: dict[str, tuple[QueueConfig, list[str]]] = {}
        for message_id, result in self._open.items():
            partition = _partition_of(get_config().queues[result.task.queue_name], message_id)
            partitions.setdefault(partition.name, (partition, []))[1].append(message_id)
        for partition, ids in partitions.values():
            self._watch(partition, ids, on_end)
        return []

    def ended(self, message_id: str, found: Result) -> AnyResult:
        """Return a result that has ended, as a TaskResult.

        Raises:
            TaskResultDoesNotExist: another program has written it.
        """
        given = self._open.pop(message_id)
        if not has_arguments(found.data):
            raise TaskResultDoesNotExist(message_id)
        api = api_of(given.task)
        assert api is not None
        return task_result(found, given.task, api, message_id)

    def find_again(self, message_id: str, on_end: Ended) -> AnyResult | None:
        """Look in all queues for a result that is not where it was, and return it, or watch it there.

        Raises:
            TaskResultDoesNotExist: it is in no queue, and in no outbox.
        """
        task = self._open[message_id].task
        comes_by_outbox = is_by_outbox(task)
        try:
            result = get_result(message_id)
        except TaskResultDoesNotExist:
            # It does not find the rows of single calls.
            if not comes_by_outbox or get_config().queue(task.queue_name).outbox:
                raise
            self._unpublished.add(message_id)
            return None
        if result.is_finished:
            del self._open[message_id]
            return result
        partition = _partition_with(_queue_of(result), message_id)
        if any(partition.name == config.name and message_id in ids for _, config, ids in self._watched):
            # It would be missing there again.
            if not comes_by_outbox:
                raise TaskResultDoesNotExist(message_id)
            self._unpublished.add(message_id)
            return None
        self._open[message_id] = result
        self._watch(partition, [message_id], on_end)
        return None

    def stop(self, on_end: Ended) -> None:
        """End the watching."""
        for each, config, ids in self._watched:
            each.forget(config, ids, on_end)

    def timed_out(self) -> WaitTimeout:
        """Return the error that names the results that have not ended."""
        why = IN_TEST if test_mode.handle_ready else ""
        ids = [message_id for message_id in dict.fromkeys(self.ids) if message_id in self._open]
        more = f" and {len(ids) - MAX_NAMED} more" if len(ids) > MAX_NAMED else ""
        count = "1 result has" if len(ids) == 1 else f"{len(ids)} results have"
        text = f"{count} not ended within {self._seconds:g} s: {', '.join(ids[:MAX_NAMED])}{more}{why}"
        error = WaitTimeout(text)
        error.missing = ids
        return error

    def _watch(self, config: QueueConfig, ids: Sequence[str], on_end: Ended) -> None:
        found = watchers.of(config.connection)
        self._watched.append((found, config, list(ids)))
        found.watch(config, ids, on_end)

    def _handle(self, handle_ready: Callable[[], object]) -> list[AnyResult]:
        handle_ready()
        ended = [result for result in map(get_result, list(self._open)) if result.is_finished]
        for result in ended:
            del self._open[result.id]
        return ended


def _id_of(given: Any) -> str:
    if isinstance(given, str) and given:
        return given
    if all(hasattr(given, name) for name in ("id", "task", "is_finished")):
        return str(given.id)
    raise InvalidWait(f"Give the result that enqueue() returned, or its id, not {repr_of(given)}")


def _queue_of(result: AnyResult) -> QueueConfig:
    """Return the queue of a result.

    Raises:
        CannotWait: nobody can wait for it.
    """
    task = result.task
    if api_of(task) is None:
        backend = class_name(type(task.get_backend()))
        raise CannotWait(NOTHING_RUNS_IT.format(backend, result.id, result.status))
    config = get_config().queue(task.queue_name)
    if not config.keeps_results:
        raise CannotWait(NO_RESULTS.format(config.name, result.id))
    return config


def _partition_of(config: QueueConfig, message_id: str) -> QueueConfig:
    """Return the queue, or the one of its partitions that the id names; if it is not there, it is looked for later."""
    if number_in_id(message_id) is None:
        return _partition_with(config, message_id)
    return config.partitions_for_id(message_id)[0]


def _partition_with(config: QueueConfig, message_id: str) -> QueueConfig:
    """Return the queue, or the one of its partitions that has a result."""
    partitions = config.partitions_for_id(message_id)
    transports = open_transports("produce", [partition.connection for partition in partitions])
    return part_with(transports, partitions, message_id)


_Ended = tuple[str, Result | None]


def wait_result(result: AnyResult | str, *, timeout: Duration, in_handler: bool = False) -> AnyResult:
    """Wait until a task has ended, and return its result.

        result = wait_result(add.enqueue(2, 3), timeout=10)
        assert result.return_value == 5

    A task that fails raises nothing here: the `status` of its result is FAILED, and `errors` has its exceptions. That
    is also so for one that was cancelled or has expired. A task that is tried again has not ended.

    Args:
        result: what `enqueue()` has returned, or its `id`.
        timeout: a timedelta or seconds. 0: look once.
        in_handler: allow it inside a handler, where it blocks a slot of the consumer. If all slots wait for tasks
            that need one of them, they wait until the timeout.

    Returns:
        The result as it is at the end of the task.

    Raises:
        WaitTimeout: the task has not ended within the timeout. It goes on.
        InvalidWait: `timeout` or `result` cannot be.
        CannotWait: this is a handler; the task is enqueued only when the open transaction of this thread commits; its
            queue keeps no results; or its backend never runs it.
        SynchronousOnlyOperation: this thread runs an event loop, which has to await await_result().
        TaskResultDoesNotExist: there is no result, it has expired, or this process has no task of its path.
        StoreError: Redis cannot be reached when the wait begins. Later failures of Redis are waited out.
        ConfigurationError: `MQ_DJANGO` cannot be used.
    """
    refuse_event_loop(EVENT_LOOP.format("await_result"))
    return wait_results([result], timeout=timeout, in_handler=in_handler)[0]


def wait_results(results: Iterable[AnyResult | str], *, timeout: Duration, in_handler: bool = False) -> list[AnyResult]:
    """Wait until all tasks have ended, and return their results in the same order.

    Args:
        results: what `enqueue()` or `enqueue_many()` has returned, or ids.
        timeout: a timedelta or seconds, for all together.
        in_handler: as for wait_result().

    Returns:
        The results, also of failed tasks.

    Raises:
        WaitTimeout: not all have ended within the timeout. Its `missing` has the ids of those that have not.
        InvalidWait, CannotWait, TaskResultDoesNotExist, StoreError, ConfigurationError: as wait_result().
        SynchronousOnlyOperation: this thread runs an event loop, which has to await await_results().
    """
    refuse_event_loop(EVENT_LOOP.format("await_results"))
    awaited = Awaited(results, timeout, in_handler=in_handler)
    found = {result.id: result for result in _ended(awaited, awaited.check())}
    return [found[message_id] for message_id in awaited.ids]


def iter_results(
    results: Iterable[AnyResult | str], *, timeout: Duration, in_handler: bool = False
) -> Iterator[AnyResult]:
    """Return an iterator over the results of tasks, each as soon as its task has ended.

    All arguments are checked at once. The watching begins with the first step of the iterator.

    Args:
        results: what `enqueue()` or `enqueue_many()` has returned, or ids. Each is yielded once.
        timeout: a timedelta or seconds from now, for all together.
        in_handler: as for wait_result().

    Returns:
        An iterator. It raises WaitTimeout when the time is over, with the ids of the missing ones in `missing`.

    Raises:
        InvalidWait, CannotWait, TaskResultDoesNotExist, StoreError, ConfigurationError: as wait_result().
        SynchronousOnlyOperation: this thread runs an event loop, which has to use aiter_results().
    """
    refuse_event_loop(EVENT_LOOP.format("aiter_results"))
    awaited = Awaited(results, timeout, in_handler=in_handler)
    return _ended(awaited, awaited.check())


async def await_result(result: AnyResult | str, *, timeout: Duration, in_handler: bool = False) -> AnyResult:
    """Wait like wait_result(), on an event loop.

    Args:
        result, timeout, in_handler: as for wait_result().

    Returns:
        The result as it is at the end of the task.

    Raises:
        WaitTimeout, InvalidWait, CannotWait, TaskResultDoesNotExist, StoreError, ConfigurationError: as wait_result().
    """
    return (await await_results([result], timeout=timeout, in_handler=in_handler))[0]


async def await_results(
    results: Iterable[AnyResult | str], *, timeout: Duration, in_handler: bool = False
) -> list[AnyResult]:
    """Wait like wait_results(), on an event loop.

    Args:
        results, timeout, in_handler: as for wait_results().

    Returns:
        The results in the order in which they were given.

    Raises:
        WaitTimeout, InvalidWait, CannotWait, TaskResultDoesNotExist, StoreError, ConfigurationError: as wait_results().
    """
    awaited = Awaited(results, timeout, in_handler=in_handler)
    found = {result.id: result async for result in _aended(awaited)}
    return [found[message_id] for message_id in awaited.ids]


def aiter_results(
    results: Iterable[AnyResult | str], *, timeout: Duration, in_handler: bool = False
) -> AsyncIterator[AnyResult]:
    """Return an asynchronous iterator over the results of tasks, each as soon as its task has ended.

        async for result in aiter_results(results, timeout=60):
            ...

    Args:
        results, timeout, in_handler: as for iter_results().

    Returns:
        An asynchronous iterator. Its first step raises what iter_results() raises when it looks.

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
                message_id, found = events.get(timeout=awaited.patience())
            except Empty:
                if awaited.search_again(on_end):
                    continue
                raise awaited.timed_out() from None
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
                async with asyncio.timeout(awaited.patience()):
                    message_id, found = await events.get()
            except TimeoutError:
                if awaited.search_again(on_end):
                    continue
                raise awaited.timed_out() from None
            if found is not None:
                yield awaited.ended(message_id, found)
            elif (again := await sync_to_async(awaited.find_again)(message_id, on_end)) is not None:
                yield again
    finally:
        awaited.stop(on_end)
