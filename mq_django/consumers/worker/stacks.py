"""Where the handlers of a consumer are now: the stack of each, without values of variables."""

import asyncio
import linecache
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import dropwhile
from pathlib import Path
from types import AsyncGeneratorType, CodeType, CoroutineType, FrameType, GeneratorType
from typing import Any, NamedTuple

from asgiref.sync import SyncToAsync

from mq_django.conf import QueueConfig
from mq_django.consumers.shared_state import SharedState
from mq_django.consumers.worker.call_path import WorkItem
from mq_django.consumers.worker.loops import CoroutineSlot, LoopPool
from mq_django.consumers.worker.pools import HandlerThread, ThreadPool
from mq_django.core.stacks import MAX_FRAMES, Frame, Stack, StackKind, redacted, stacks_text
from mq_django.stores.control import StackRequests
from mq_django.transport.connections import open_transport

#: The most frames of a stack that are looked at: a recursion may have any depth.
MAX_DEPTH = 10_000
#: The most tasks that are followed from one that awaits another.
MAX_AWAITED = 20
#: Folders of installed packages.
PACKAGES = ("/site-packages/", "/dist-packages/")

#: The code of asgiref that calls a function in another thread.
_SYNC_CALL = getattr(getattr(SyncToAsync, "thread_handler", None), "__code__", None)
_SYNC_FILE = getattr(_SYNC_CALL, "co_filename", "")

_PACKAGE = Path(__file__).parents[2]
#: Files whose frames lead to a handler and are the same in each stack.
_MACHINERY = frozenset((str(_PACKAGE / "middleware.py"), str(_PACKAGE / "task_backend" / "running.py")))
_CONSUMERS = f"{_PACKAGE / 'consumers'}/"


class _Spot(NamedTuple):
    """A call in a stack: its code, and the number of its line."""

    code: CodeType
    line: int


class _Trace(NamedTuple):
    """The calls of a stack, the innermost one last, and how many further tasks its last task awaits."""

    spots: list[_Spot]
    others: int = 0


class SlotStacks:
    """Takes the stacks of what the slots of a consumer run.

    Args:
        threads, loop: where handlers run.
        shared_state: says what each slot runs, and since when.
    """

    def __init__(self, threads: ThreadPool, loop: LoopPool, shared_state: SharedState) -> None:
        self._threads = threads
        self._loop = loop
        self._shared_state = shared_state

    def take(self) -> list[Stack]:
        """Return the stack of each slot that runs something, what has run longest first.

        A handler that ends meanwhile is left out. Last come a task that runs on the event loop and that no handler
        awaits, and what coroutines run in other threads.
        """
        now, found = time.monotonic(), list[Stack]()
        current, seen = self._loop.current_task(), set[Any]()
        slots: Sequence[HandlerThread | CoroutineSlot] = [*self._threads.slots, *self._loop.slots]
        for running in sorted(self._shared_state.running(), key=lambda item: item.since):
            slot = slots[running.slot]
            job = slot.job
            if job is None or running.receipt not in job.receipts():
                continue
            if isinstance(slot, HandlerThread):
                trace = _Trace(_calls(_frame_of(slot.thread.ident)))
            else:
                trace = self._of_task(slot.task, current, seen)
            if slot.job is job:
                kind: StackKind = "thread" if isinstance(slot, HandlerThread) else "coroutine"
                found.append(_stack(kind, job, max(0, round((now - running.since) * 1000)), trace))
        if current is not None and current not in seen:
            found.append(_stack("task", None, 0, self._of_task(current, current, seen)))
        found += [_stack("sync", None, 0, trace) for trace in self._of_sync_threads()]
        return [one for one in found if one.id or one.frames]

    def _of_sync_threads(self) -> Iterator[_Trace]:
        """Yield the calls of each thread in which sync_to_async runs something for a coroutine."""
        slots = {slot.thread.ident for slot in self._threads.slots}
        for thread, frame in sys._current_frames().items():  # noqa: SLF001
            calls = _calls(frame) if thread not in slots else []
            inside = dropwhile(lambda spot: spot.code is not _SYNC_CALL, calls)
            if trace := list(dropwhile(lambda spot: spot.code.co_filename == _SYNC_FILE, inside)):
                yield _Trace(trace)

    def _of_task(self, task: "asyncio.Task[Any] | None", current: object, seen: set[Any]) -> _Trace:
        """Return the calls of a task, and of what it awaits: coroutines, and other tasks."""
        spots, others = list[_Spot](), 0
        for _ in range(MAX_AWAITED):
            if task is None or task in seen:
                break
            seen.add(task)
            coroutine = task.get_coro()
            if task is current and (calls := self._calls_of_loop(coroutine)):
                return _Trace(spots + calls, others)
            spots += _awaited_calls(coroutine)
            task, more = _awaited_task(task)
            others += more
        return _Trace(spots, others)

    def _calls_of_loop(self, coroutine: object) -> list[_Spot]:
        """Return the calls of a coroutine that does not await anything now: the innermost ones of the loop's thread."""
        frame = _frame_of(self._loop.thread.ident)
        return _calls(frame, root=coroutine.cr_frame) if isinstance(coroutine, CoroutineType) else []


def _frame_of(thread: int | None) -> FrameType | None:
    """Return the innermost frame of a thread."""
    # The standard library documents this name, which is for such purposes.
    return None if thread is None else sys._current_frames().get(thread)  # noqa: SLF001


def _calls(frame: FrameType | None, *, root: FrameType | None = None) -> list[_Spot]:
    """Return the calls of a thread; with `root` those from this one on, and none if it is not among them any more."""
    spots = list[_Spot]()
    while frame is not None and len(spots) < MAX_DEPTH:
        spots.append(_Spot(frame.f_code, frame.f_lineno or 0))
        if frame is root:
            break
        frame = frame.f_back
    return [] if root is not None and frame is None else spots[::-1]


def _awaited_calls(awaited: object) -> list[_Spot]:
    """Return the calls of a coroutine that is suspended: each awaits the next."""
    spots = list[_Spot]()
    while len(spots) < MAX_DEPTH:
        frame, following = _suspended(awaited)
        if frame is None:
            break
        spots.append(_Spot(frame.f_code, frame.f_lineno or 0))
        awaited = following
    return spots


def _suspended(awaited: object) -> tuple[FrameType | None, object]:
    """Return the frame of a coroutine or a generator, and what it awaits. Other awaitables have none."""
    match awaited:
        case CoroutineType():
            return awaited.cr_frame, awaited.cr_await
        case GeneratorType():
            return awaited.gi_frame, awaited.gi_yieldfrom
        case AsyncGeneratorType():
            return awaited.ag_frame, awaited.ag_await
    return None, None


def _awaited_task(task: "asyncio.Task[Any]") -> "tuple[asyncio.Task[Any] | None, int]":
    """Return a task that another one awaits, and how many more if it awaits several, as with gather()."""
    # asyncio has no public name for it before Python 3.14.
    future = getattr(task, "_fut_waiter", None)
    if isinstance(future, asyncio.Task):
        return future, 0
    several = getattr(future, "_children", ()) if isinstance(future, asyncio.Future) else ()
    tasks = [found for found in several if isinstance(found, asyncio.Task) and not found.done()]
    return (tasks[0], len(tasks) - 1) if tasks else (None, 0)


def _stack(kind: StackKind, job: WorkItem | None, ms: int, trace: _Trace) -> Stack:
    calls = list(_without_machinery(trace.spots))
    shown = calls[-MAX_FRAMES:]
    for filename in {code.co_filename for code, _ in shown}:
        # It may have been changed since another stack was taken.
        linecache.checkcache(filename)
    frames = [
        redacted(Frame(short_path(code.co_filename), line, code.co_qualname, linecache.getline(code.co_filename, line)))
        for code, line in shown
    ]
    message = None if job is None else job.delivery.message
    queue, message_id, name = ("", "", "") if message is None else (message.queue, message.id, message.name)
    left_out = len(calls) - len(frames)
    return Stack(kind, *(queue, message_id, name), ms, frames, left_out, trace.others)


def _without_machinery(spots: Sequence[_Spot]) -> Iterator[_Spot]:
    """Yield the calls of a handler, of middleware, and of what they call."""
    ours = [_is_machinery(spot.code.co_filename) for spot in spots]
    # What comes before are the frames of a thread or of an event loop.
    first = ours.index(True) if True in ours else 0
    yield from (spot for spot, is_ours in list(zip(spots, ours, strict=True))[first:] if not is_ours)


def _is_machinery(filename: str) -> bool:
    return filename.startswith(_CONSUMERS) or filename in _MACHINERY


def short_path(filename: str) -> str:
    """Return the path of a source file relative to the project, the installed packages, or the standard library."""
    if filename.startswith("<"):
        # Code without a file, such as "<string>".
        return filename
    for packages in PACKAGES:
        if packages in filename:
            return filename.rpartition(packages)[2]
    # The longest one, because a virtual environment may be inside of a project.
    roots = [f"{path.rstrip('/')}/" for path in sys.path if path.startswith("/") and path != "/"]
    root = max((root for root in roots if filename.startswith(root)), key=len, default="")
    return filename.removeprefix(root) if root else Path(filename).name


# Answer requests for the stacks of what a consumer runs.


class StackAnswers:
    """The answers to requests that come through one queue.

    Args:
        requests: of the queue.
        consumer: the id of this consumer.
        take: returns the stacks, of the messages of all queues.
    """

    def __init__(self, requests: StackRequests, consumer: str, take: Callable[[], Sequence[Stack]]) -> None:
        self._requests = requests
        self._consumer = consumer
        self._take = take
        #: The time of the request that was answered last.
        self._answered: int | None = None

    def answer(self) -> None:
        """Answer if there is a new request.

        Raises:
            StoreError: Redis cannot be reached, or refuses.
        """
        asked = self._requests.asked(self._consumer)
        if asked is not None and asked != self._answered:
            self._answered = asked
            self._requests.answer(self._consumer, asked, stacks_text(self._take()))


def open_answers(
    queues: Sequence[QueueConfig], consumer: str, take: Callable[[], Sequence[Stack]]
) -> list[StackAnswers]:
    """Return what answers the requests through each queue."""
    transports = [open_transport("chores", config.connection) for config in queues]
    requests = [StackRequests(config, transport) for config, transport in zip(queues, transports, strict=True)]
    return [StackAnswers(one, consumer, take) for one in requests]
