"""The event loop that runs handlers that are coroutine functions."""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any

from asgiref.sync import sync_to_async

from mq_django.consumers import processes
from mq_django.consumers.processes import Grace
from mq_django.consumers.shared_state import Receipt, SharedState
from mq_django.consumers.worker.call_path import Slot, WorkItem
from mq_django.consumers.worker.databases import Databases
from mq_django.consumers.worker.pools import JOIN_CHECK_EVERY, Pool, make_caches
from mq_django.core import running_handler
from mq_django.core.logs import get_logger
from mq_django.core.running_handler import interruptible
from mq_django.errors import HandlerTimeout

# A slot of an event loop, which runs handlers that are coroutine functions, one after another.


class CoroutineSlot(Slot):
    """A slot for one of the coroutines that run at once.

    Args:
        number: see Slot.
        pool: that it belongs to.
    """

    def __init__(self, number: int, pool: "LoopPool | None" = None) -> None:
        super().__init__(number)
        self._pool = pool
        self.task: asyncio.Task[None] | None = None
        #: The context of all its tasks.
        self._context: Context | None = None

    def context(self, base: Context) -> Context:
        """Return a fresh context for a task, in which the handler finds this slot."""
        if self._context is None:
            self._context = base.copy()
            self._context.run(interruptible.set, self)
        return self._context.copy()

    def is_alone(self) -> bool:
        """Return whether nothing else runs on the loop."""
        return self._pool is None or self._pool.capacity()[1] == MAX_COROUTINES - 1

    async def call(self, function: Callable[[Any], Any], argument: object, timeout: float | None) -> Any:
        """See Slot.call()."""
        self.guards, self._is_calling = 0, True
        try:
            if timeout is None:
                return await function(argument)
            try:
                async with asyncio.timeout(timeout) as limit:
                    return await function(argument)
            except TimeoutError as error:
                if limit.expired():
                    raise HandlerTimeout(f"The handler ran longer than its timeout of {timeout:g} s") from error
                raise
        finally:
            self._is_calling = False
            if self.cancelled and self.task is not None:
                # What it awaits next belongs to the consumer.
                self.task.uncancel()

    def cancel(self, job: WorkItem, *, force: bool) -> None:
        """See Slot.cancel()."""
        task = self.task
        if task is not None:
            with suppress(RuntimeError):  # a handler has closed the loop
                task.get_loop().call_soon_threadsafe(self._cancel, job, force)

    def _cancel(self, job: WorkItem, force: bool) -> None:
        task = self.task
        if self.job is not job or task is None or not self._is_calling:
            return
        if self._note_cancelled(job, force=force):
            task.cancel()

    def guard(self) -> None:
        """Begin a block in which the handler is not interrupted: see `uninterrupted`."""
        self.guards += 1

    def unguard(self) -> None:
        """End a block, and interrupt the handler if it was cancelled meanwhile."""
        self.guards -= 1
        if self.guards or not self.cancelled or not self._is_calling or self.task is None:
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

    def __init__(self, first_slot: int, shared_state: SharedState) -> None:
        super().__init__()
        self._shared_state = shared_state
        self._loop = _new_event_loop()
        self.slots = [CoroutineSlot(number, self) for number in range(first_slot, first_slot + MAX_COROUTINES)]
        self._free = list(self.slots)
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
        #: The running deliveries, if the loop is blocked by a task which a handler has created itself.
        self.suspects: Collection[Receipt] = ()
        self._quiet = self._ending = False
        #: Jobs that were put and have not ended. Counted by several threads.
        self.held = 0
        self._held_lock = threading.Lock()
        self.thread = threading.Thread(target=self._run_loop, name="mq_django loop", daemon=True)

    def start(self) -> None:
        """Start the loop's thread."""
        processes.close_in_children(self._close_in_child)
        self.thread.start()

    def _close_in_child(self) -> None:
        # The loop cannot close itself where it seems to run. These are the names of asyncio's own loops.
        for name in ("_selector", "_ssock", "_csock"):
            getattr(self._loop, name).close()

    def put(self, job: WorkItem) -> None:
        """Run a job as soon as a slot is free."""
        with self._held_lock:
            self.held += 1
        self._jobs.append(job)
        if self._quiet:
            self.hand_back_waiting()
        elif not self._scheduled:
            self._scheduled = True
            self._call(self._start_waiting)

    def capacity(self) -> tuple[int, int]:
        """Return how many coroutines may run at once, and how many of these slots are free."""
        return MAX_COROUTINES, len(self._free)

    def waiting(self) -> int:
        """Return how many jobs wait for a slot."""
        return len(self._jobs)

    def ended(self) -> int:
        """Return how many deliveries have ended here."""
        return self._ended_count

    def progress(self) -> Mapping[str, object]:
        """Return None for the loop's thread if it has ended without being asked to; see Liveness."""
        return {} if self._ending or self.thread.is_alive() else {self.thread.name: None}

    def check(self) -> None:
        """Check whether all slots are blocked, and whether a coroutine blocks the loop."""
        super().check()
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
        jobs = [slot.job for slot in self.slots]
        return {each for job in jobs if job is not None for each in job.receipts()}

    def current_task(self) -> "asyncio.Task[Any] | None":
        """Return the task that runs now; None while the loop waits."""
        return asyncio.current_task(self._loop)

    def _answer(self) -> None:
        self._answered, self.suspects = True, ()

    def _report_blocked(self) -> None:
        """Mark the delivery whose handler blocks the loop as late, so that the supervisor replaces the process.

        If that is not known, all that run are suspects: the process leaves, and each of them runs alone.
        """
        task, now = self.current_task(), time.monotonic()
        running = [(slot, slot.job) for slot in self.slots if slot.job is not None]
        # A task that a handler has created itself belongs to no slot.
        blocking = [(slot, job) for slot, job in running if slot.task is task] or running
        handlers = ", ".join(sorted({job.path.handler.where for _, job in blocking}))
        logger.error("The event loop was blocked for %.0f s by %s: coroutines must not block", self._silent, handlers)
        # A batch that waits for a row has no deliveries yet.
        if task is not None and len(blocking) == 1 and blocking[0][1].members:
            slot, job = blocking[0]
            job.path.mark(slot, job, now - self._silent, now)
        elif task is not None and len(blocking) > 1:
            self.suspects = self.receipts()

    def _running(self) -> str:
        jobs = [slot.job for slot in self.slots]
        return ", ".join(sorted({job.path.handler.where for job in jobs if job is not None})) or "nothing"

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
            slot = self._free.pop()
            slot.job = job
            # A fresh context, not a copy of the context of the coroutine that has just ended.
            slot.task = task = self._loop.create_task(self._run(slot, job), context=slot.context(self._context))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, slot: CoroutineSlot, job: WorkItem) -> None:
        try:
            slot.databases = await self._opened()
            await job.path.run(slot, job)
        except (asyncio.CancelledError, SystemExit, KeyboardInterrupt):
            job.path.hand_back(slot.job or job)
            raise
        except BaseException as error:  # noqa: BLE001 - the delivery has an outcome
            # A batch has put its present call in the place of the job.
            job.path.rescue(slot.job or job, error)
        finally:
            self._shared_state.idle(slot.number)
            slot.job = slot.task = None
            self._free.append(slot)
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
            job.path.hand_back(job)
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
