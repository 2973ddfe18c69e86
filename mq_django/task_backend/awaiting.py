"""The results that one call waits for: what is checked before, looking, and watching."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

from django.core.exceptions import SynchronousOnlyOperation

from mq_django.conf import QueueConfig, get_config
from mq_django.core import handler_context
from mq_django.core.exceptions import class_name, repr_of
from mq_django.core.partitions import number_in_id
from mq_django.core.times import MAX_DELAY, Duration, read_duration
from mq_django.errors import CannotWait, InvalidWait, WaitTimeout
from mq_django.producers.result_watcher import Ended, ResultWatcher, watcher
from mq_django.producers.sinks import awaiting_commit
from mq_django.stores.awaited_results import part_with
from mq_django.stores.results import Result
from mq_django.task_backend.arguments import has_arguments
from mq_django.task_backend.backend import api_of
from mq_django.task_backend.compat import AnyResult, TaskResultDoesNotExist
from mq_django.task_backend.result_lookup import get_result
from mq_django.task_backend.task_results import task_result
from mq_django.transport import test_mode
from mq_django.transport.connections import open_wires

#: The most ids that the text of an error names.
MAX_NAMED = 10

IN_HANDLER = (
    "Waiting inside a handler can block a consumer for ever: the task that is waited for may need the place of the "
    "handler that waits. Publish what comes next from the other task, or pass in_handler=True if other consumers run it"
)
NOT_COMMITTED = (
    "Task {} is enqueued when the open transaction commits, so waiting for it inside can only time out. Wait after "
    "atomic(), or enqueue it with using(on_commit=False); in a test call mq.commit() before"
)
NOTHING_RUNS_IT = "{} runs nothing that could be waited for: its task {} would stay {}"
NO_RESULTS = "Queue {!r} keeps no results, so nobody can wait for task {}: its RESULT_TTL is 0"
EVENT_LOOP = "This thread runs an event loop, which waiting would block: await {}() instead"
IN_TEST = "; it is not ready, and in a test with mq_django.testing time passes only by mq.advance()"


class Awaited:
    """The results that one call waits for.

    Args:
        results: results of `enqueue()`, and ids.
        timeout: for all of them together, from now on.
        in_handler: allow it inside a handler.

    Raises:
        InvalidWait: `timeout` or a result cannot be.
        CannotWait: this is a handler.
    """

    def __init__(self, results: Iterable[AnyResult | str], timeout: Duration, *, in_handler: bool) -> None:
        self._seconds = _checked(timeout).total_seconds()
        if handler_context.is_in_handler() and not in_handler:
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
        self._ends = time.monotonic() + self._seconds

    @property
    def is_over(self) -> bool:
        """Return whether all have ended."""
        return not self._open

    def left(self) -> float:
        """Return the seconds that are left."""
        return max(0.0, self._ends - time.monotonic())

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
                raise CannotWait(NOT_COMMITTED.format(message_id))
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
        places: dict[str, tuple[QueueConfig, list[str]]] = {}
        for message_id, result in self._open.items():
            place = _place_of(get_config().queues[result.task.queue_name], message_id)
            places.setdefault(place.name, (place, []))[1].append(message_id)
        for place, ids in places.values():
            self._watch(place, ids, on_end)
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
            TaskResultDoesNotExist: it is in no queue.
        """
        result = get_result(message_id)
        if result.is_finished:
            del self._open[message_id]
            return result
        place = _place_with(_queue_of(result), message_id)
        if any(place.name == config.name and message_id in ids for _, config, ids in self._watched):
            # It would be missing there again.
            raise TaskResultDoesNotExist(message_id)
        self._open[message_id] = result
        self._watch(place, [message_id], on_end)
        return None

    def stop(self, on_end: Ended) -> None:
        """End the watching."""
        for each, config, ids in self._watched:
            each.forget(config, ids, on_end)

    def timed_out(self, why: str = "") -> WaitTimeout:
        """Return the error that names the results that have not ended."""
        ids = [message_id for message_id in dict.fromkeys(self.ids) if message_id in self._open]
        more = f" and {len(ids) - MAX_NAMED} more" if len(ids) > MAX_NAMED else ""
        count = "1 result has" if len(ids) == 1 else f"{len(ids)} results have"
        text = f"{count} not ended within {self._seconds:g} s: {', '.join(ids[:MAX_NAMED])}{more}{why}"
        error = WaitTimeout(text)
        error.missing = ids
        return error

    def _watch(self, config: QueueConfig, ids: Sequence[str], on_end: Ended) -> None:
        found = watcher(config.connection)
        self._watched.append((found, config, list(ids)))
        found.watch(config, ids, on_end)

    def _handle(self, handle_ready: Callable[[], object]) -> list[AnyResult]:
        handle_ready()
        ended = [result for result in map(get_result, list(self._open)) if result.is_finished]
        for result in ended:
            del self._open[result.id]
        return ended


def refuse_event_loop(name: str) -> None:
    """Raise SynchronousOnlyOperation if this thread runs an event loop. `name` is that of the coroutine function."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise SynchronousOnlyOperation(EVENT_LOOP.format(name))


def _checked(timeout: object) -> timedelta:
    try:
        found = read_duration(timeout)
    except TypeError as error:
        raise InvalidWait(f"timeout must be {error}, not {repr_of(timeout)}") from error
    if not timedelta(0) <= found <= MAX_DELAY:
        raise InvalidWait(f"timeout must be from 0 to {MAX_DELAY.days} days, not {repr_of(timeout)}")
    return found


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


def _place_of(config: QueueConfig, message_id: str) -> QueueConfig:
    """Return the queue, or the one of its partitions that the id names; if it is not there, it is looked for later."""
    return _place_with(config, message_id) if number_in_id(message_id) is None else config.places_of(message_id)[0]


def _place_with(config: QueueConfig, message_id: str) -> QueueConfig:
    """Return the queue, or the one of its partitions that has a result."""
    places = config.places_of(message_id)
    return part_with(open_wires("produce", [place.connection for place in places]), places, message_id)
