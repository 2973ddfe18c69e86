"""The event loop that runs handlers that are coroutine functions."""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any, Protocol

from asgiref.sync import async_to_sync, sync_to_async

from mq_django.consumers.shared_state import Receipt, SharedState
from mq_django.consumers.worker import lanes
from mq_django.consumers.worker.databases import Databases
from mq_django.consumers.worker.lanes import Argument, Grace, WorkItem
from mq_django.consumers.worker.pools import JOIN_CHECK_EVERY, Pool, make_caches
from mq_django.core import running_handler
from mq_django.core.logs import get_logger
from mq_django.core.running_handler import place
from mq_django.errors import HandlerTimeout
from mq_django.registry import Handler

# A place of an event loop, which runs handlers that are coroutine functions, one after another.


class CoroutineLane:
    """A place for one of the coroutines that run at once."""

    databases: Databases

    def __init__(self, number: int, is_alone: Callable[[], bool]) -> None:
        self.number = number
        self.is_alone = is_alone
        self.job: WorkItem | None = None
        self.task: asyncio.Task[None] | None = None
        #: Somebody has cancelled what it runs; the blocks in which it is not interrupted.
        self.cancelled = self._given_up = False
        self._guards = 0
        self._is_calling = False
        #: The context of all its tasks.
        self._context: Context | None = None

    def context(self, base: Context) -> Context:
        """Return a fresh context for a task, in which the handler finds this place."""
        if self._context is None:
            self._context = base.copy()
            self._context.run(place.set, self)
        return self._context.copy()

    async def call(self, handler: Handler, argument: Argument, timeout: float | None) -> object:
        """Call a coroutine function; raise HandlerTimeout when it takes longer than `timeout` seconds."""
        self._given_up, self._guards, self._is_calling = False, 0, True
        try:
            return await self._call(handler, argument, timeout)
        finally:
            self._is_calling = False
            if self.cancelled and self.task is not None:
                # What it awaits next belongs to the consumer.
                self.task.uncancel()

    def running(self) -> WorkItem | None:
        """Return what it runs, while the handler itself runs."""
        return self.job if self._is_calling else None

    def has_cancelled(self, *, force: bool) -> bool:
        """Return whether what it runs was cancelled already, with `force` by force."""
        return self._given_up if force else self.cancelled

    def cancel(self, job: WorkItem, *, force: bool) -> None:
        """Cancel the task of a job if that still runs; with `force` have its process replaced if it goes on."""
        task = self.task
        if task is not None:
            with suppress(RuntimeError):  # a handler has closed the loop
                task.get_loop().call_soon_threadsafe(self._cancel, job, force)

    def _cancel(self, job: WorkItem, force: bool) -> None:
        task = self.task
        if self.job is not job or task is None or not self._is_calling:
            return
        if force and not self._given_up:
            self._given_up = True
            job.executor.overdue(self.number, job.delivery, since=time.monotonic())
        if not self.cancelled:
            self.cancelled = True
            if not self._guards:
                task.cancel()

    def guard(self) -> None:
        """Begin a block in which the handler is not interrupted: see `uninterrupted`."""
        self._guards += 1

    def unguard(self) -> None:
        """End a block, and interrupt the handler if it was cancelled meanwhile."""
        self._guards -= 1
        if self._guards or not self.cancelled or not self._is_calling or self.task is None:
            return
        try:
            is_own = asyncio.current_task() is self.task
        except RuntimeError:
            is_own = False
        if is_own:
            raise asyncio.CancelledError
        # A task of the handler's own, or a thread that it waits for.
        self.task.get_loop().call_soon_threadsafe(self._cancel_task, self.task)

    def seal(self) -> None:
        """Let nothing cancel the task from now on: see `seal`."""
        self._is_calling = False

    def _cancel_task(self, task: "asyncio.Task[None]") -> None:
        if self.task is task and self._is_calling:
            task.cancel()

    @staticmethod
    async def _call(handler: Handler, argument: Argument, timeout: float | None) -> object:
        if timeout is None:
            return await handler.call(argument)
        try:
            async with asyncio.timeout(timeout) as limit:
                return await handler.call(argument)
        except TimeoutError as error:
            if limit.expired():
                raise HandlerTimeout(f"The handler ran longer than its timeout of {timeout:g} s") from error
            raise


logger = get_logger(__name__)

#: The most coroutines that run at once.
MAX_COROUTINES = 100
#: Seconds for which a coroutine may block the loop before the process is replaced.
MAX_BLOCKED = 5.0
#: At most this many seconds between two checks count: in a longer gap the whole process did not run.
MAX_GAP = 0.5


def _new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop. asyncio logs which selector it has, and logging of the project may raise."""
    log = logging.getLogger("asyncio")
    was_disabled, log.disabled = log.disabled, True
    try:
        return asyncio.new_event_loop()
    finally:
        log.disabled = was_disabled


class LoopPool(Pool):
    """An event loop in a thread, for handlers that are coroutine functions."""

    def __init__(self, first_lane: int, shared_state: SharedState) -> None:
        super().__init__()
        self._shared_state = shared_state
        self._loop = _new_event_loop()
        self.lanes = [
            CoroutineLane(number, lambda: len(self._free) == MAX_COROUTINES - 1)
            for number in range(first_lane, first_lane + MAX_COROUTINES)
        ]
        self._free = list(self.lanes)
        self._jobs: deque[WorkItem] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._databases: Databases | None = None
        self._databases_lock = asyncio.Lock()
        self._context = Context()
        #: A call of _start_waiting() is scheduled on the loop.
        self._scheduled = False
        self._ended_count = 0
        #: Whether the loop has answered the latest ping, and the seconds without an answer.
        self._answered, self._silent = True, 0.0
        self._looked = time.monotonic()
        self._quiet = self._ending = False
        #: Jobs that were put and have not ended. Counted by several threads.
        self.held = 0
        self._held_lock = threading.Lock()
        self.thread = threading.Thread(target=self._run_loop, name="mq_django loop", daemon=True)

    def start(self) -> None:
        """Start the loop's thread."""
        lanes.close_in_children(self._close_in_child)
        self.thread.start()

    def _close_in_child(self) -> None:
        # The loop cannot close itself where it seems to run. These are the names of asyncio's own loops.
        for name in ("_selector", "_ssock", "_csock"):
            getattr(self._loop, name).close()

    def put(self, job: WorkItem) -> None:
        """Run a job as soon as a place is free."""
        with self._held_lock:
            self.held += 1
        self._jobs.append(job)
        if self._quiet:
            self.hand_back_waiting()
        elif not self._scheduled:
            self._scheduled = True
            self._call(self._start_waiting)

    def places(self) -> tuple[int, int]:
        """Return how many coroutines may run at once, and how many of these places are free."""
        return MAX_COROUTINES, len(self._free)

    def waiting(self) -> int:
        """Return how many jobs wait for a place."""
        return len(self._jobs)

    def ended(self) -> int:
        """Return how many deliveries have ended here."""
        return self._ended_count

    def progress(self) -> Mapping[str, object]:
        """Return None for the loop's thread if it has ended without being asked to; see Liveness."""
        return {} if self._ending or self.thread.is_alive() else {self.thread.name: None}

    def look(self) -> None:
        """Check whether all places are blocked, and whether a coroutine blocks the loop."""
        super().look()
        now = time.monotonic()
        passed, self._looked = min(MAX_GAP, now - self._looked), now
        if self._answered and self.held:
            self._answered, self._silent = False, 0.0
            self._call(self._answer)
        elif not self._answered:
            before, self._silent = self._silent, self._silent + passed
            if before <= MAX_BLOCKED < self._silent:
                self._report_blocked()

    def is_blocked(self) -> bool:
        """Return whether a coroutine has blocked the loop for so long that nothing on it will end."""
        return self._silent > MAX_BLOCKED

    def receipts(self) -> Collection[Receipt]:
        """Return the receipts of the running deliveries."""
        jobs = [lane.job for lane in self.lanes]
        return {each for job in jobs if job is not None for each in job.executor.receipts(job.delivery)}

    def current_task(self) -> "asyncio.Task[Any] | None":
        """Return the task that runs now; None while the loop waits."""
        return asyncio.current_task(self._loop)

    def _answer(self) -> None:
        self._answered = True

    def _report_blocked(self) -> None:
        """Mark the delivery whose handler blocks the loop as late, so that the supervisor replaces the process."""
        task = self.current_task()
        running = [(lane, lane.job) for lane in self.lanes if lane.job is not None]
        # A task that a handler has created itself belongs to no lane.
        blocking = [(lane, job) for lane, job in running if lane.task is task] or running
        handlers = ", ".join(sorted({job.handler.where for _, job in blocking}))
        logger.error("The event loop was blocked for %.0f s by %s: coroutines must not block", self._silent, handlers)
        if task is not None and len(blocking) == 1:
            lane, job = blocking[0]
            job.executor.overdue(lane.number, job.delivery, since=time.monotonic() - self._silent)

    def _running(self) -> str:
        jobs = [lane.job for lane in self.lanes]
        return ", ".join(sorted({job.handler.where for job in jobs if job is not None})) or "nothing"

    def _call(self, callback: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback)  # type: ignore[arg-type] # a method without arguments
        except RuntimeError:
            # A handler has closed the loop. The consumer will detect that and hand back what it holds.
            logger.debug("The event loop is closed")

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        make_caches()
        running_handler.enter()
        self._context = copy_context()
        try:
            while not self._ending and not self._loop.is_closed():
                self._run_until_stopped()
        finally:
            # Tasks that exceed the grace period end with the process.
            if all(task.done() for task in self._tasks):
                self._loop.close()

    def _run_until_stopped(self) -> None:
        """Run the loop until it ends. SystemExit in a task or callback, or loop.stop(), may end it early."""
        try:
            self._loop.run_forever()
        except (SystemExit, KeyboardInterrupt):
            logger.exception("A coroutine ended the event loop, which was restarted; running: %s", self._running())
        else:
            if not self._ending:
                logger.error("A coroutine stopped the event loop, which was restarted; running: %s", self._running())

    def _start_waiting(self) -> None:
        self._scheduled = False
        while self._free:
            try:
                job = self._jobs.popleft()
            except IndexError:
                return
            lane = self._free.pop()
            lane.job = job
            # A fresh context, not a copy of that of the coroutine that has just ended.
            lane.task = task = self._loop.create_task(self._run(lane, job), context=lane.context(self._context))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, lane: CoroutineLane, job: WorkItem) -> None:
        delivery, handler, executor = job
        try:
            lane.databases = await self._opened()
            await executor.run_coroutine(lane, delivery, handler)
        except (asyncio.CancelledError, SystemExit, KeyboardInterrupt):
            executor.hand_back(delivery)
            raise
        except BaseException as error:  # noqa: BLE001 - the delivery has an outcome
            # A batch has put itself in the place of the job.
            (lane.job or job).executor.rescue(delivery, handler, error)
        finally:
            self._shared_state.idle(lane.number)
            lane.job = lane.task = None
            self._free.append(lane)
            self._ended_count += 1
            self._start_waiting()
            await self._leave()

    async def _leave(self) -> None:
        """Close connections that are too old if this was the last job, then count it as ended."""
        databases = self._databases
        try:
            if self.held == 1 and databases is not None and databases.is_obsolete(time.monotonic()):
                await sync_to_async(databases.refresh)()
        finally:
            with self._held_lock:
                self.held -= 1
            self.on_low()

    async def _opened(self) -> Databases:
        """Return the connections of the thread in which `sync_to_async` runs database operations."""
        if self._databases is None:
            async with self._databases_lock:
                if self._databases is None:
                    self._databases = await sync_to_async(Databases.of_this_thread)()
        return self._databases

    def hand_back_waiting(self) -> None:
        """Hand back the messages that have not started."""
        while True:
            try:
                job = self._jobs.popleft()
            except IndexError:
                return
            job.executor.hand_back(job.delivery)
            with self._held_lock:
                self.held -= 1

    def stop(self) -> None:
        """Start no more jobs, and hand back those that wait."""
        self._quiet = True
        self.hand_back_waiting()

    def join(self, grace: Grace) -> bool:
        """Wait for running jobs within the grace period, and return whether all have ended.

        If the loop itself has ended, its jobs cannot end, and this does not wait.
        """
        while self.held and self.thread.is_alive() and not grace.over:
            grace.on_check()
            time.sleep(JOIN_CHECK_EVERY)
        ended = not self.held
        self._ending = True
        if self.thread.is_alive():
            self._call(self._loop.stop)
            self.thread.join(1.0)
        elif not self._loop.is_closed() and ended:
            self._loop.close()
        return ended


# Run a coroutine function in a thread of a consumer, on an event loop of its own.
#
# Its database operations run in the thread, so that they are in the transaction of the thread, and those of no other
# coroutine are.

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
