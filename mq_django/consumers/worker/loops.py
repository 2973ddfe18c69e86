"""Where handlers run that are coroutine functions: an event loop."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextvars import Context, copy_context

from asgiref.sync import sync_to_async

from mq_django.consumers.shared_state import Receipt, SharedState
from mq_django.consumers.worker.databases import Databases
from mq_django.consumers.worker.grace import Grace
from mq_django.consumers.worker.pools import JOIN_LOOK, Pool, WorkItem, make_caches
from mq_django.core.logs import get_logger
from mq_django.core.messages import Message
from mq_django.core.outcomes import HandBack
from mq_django.errors import HandlerTimeout
from mq_django.registry import Handler
from mq_django.stores.base import Settlement

logger = get_logger(__name__)

#: Coroutines that run at once.
MAX_COROUTINES = 100
#: Seconds that a coroutine may block the loop before its process is replaced.
SILENT = 5.0
#: The longest time between two looks that counts: in more than that the whole process did not run.
MAX_GAP = 0.5


class CoroutineLane:
    """One of the coroutines that run at once."""

    databases: Databases

    def __init__(self, number: int, is_alone: Callable[[], bool]) -> None:
        self.number = number
        self.is_alone = is_alone
        self.job: WorkItem | None = None
        self.task: asyncio.Task[None] | None = None

    async def call(self, handler: Handler, message: Message, timeout: float | None) -> object:
        """Call a coroutine function; raise HandlerTimeout when it takes longer than `timeout` seconds."""
        if timeout is None:
            return await handler.call(message)
        try:
            async with asyncio.timeout(timeout) as limit:
                return await handler.call(message)
        except TimeoutError as error:
            if limit.expired():
                raise HandlerTimeout(f"The handler ran longer than its timeout of {timeout:g} s") from error
            raise


class LoopPool(Pool):
    """An event loop in a thread, for handlers that are coroutine functions."""

    def __init__(self, first_lane: int, shared_state: SharedState) -> None:
        super().__init__()
        self._shared_state = shared_state
        self._loop = asyncio.new_event_loop()
        self._lanes = [
            CoroutineLane(number, lambda: len(self._free) == MAX_COROUTINES - 1)
            for number in range(first_lane, first_lane + MAX_COROUTINES)
        ]
        self._free = list(self._lanes)
        self._jobs: deque[WorkItem] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._databases: Databases | None = None
        self._opening = asyncio.Lock()
        self._context = Context()
        #: The loop will begin what waits.
        self._called = False
        self._ended_here = 0
        #: The loop has answered the latest question whether it turns; and the seconds without an answer.
        self._answered, self._silent = True, 0.0
        self._looked = time.monotonic()
        self._quiet = self._ending = False
        #: Jobs that were put and have not ended; fetchers and the loop count, in threads of their own.
        self.held = 0
        self._counting = threading.Lock()
        self.thread = threading.Thread(target=self._run_loop, name="mq_django loop", daemon=True)

    def start(self) -> None:
        """Start the loop's thread."""
        self.thread.start()

    def put(self, job: WorkItem) -> None:
        """Run a job as soon as there is a place."""
        with self._counting:
            self.held += 1
        self._jobs.append(job)
        if self._quiet:
            self.hand_back_waiting()
        elif not self._called:
            self._called = True
            self._call(self._begin_waiting)

    def places(self) -> tuple[int, int]:
        """Return how many coroutines may run at once, and how many more may begin."""
        return MAX_COROUTINES, len(self._free)

    def waiting(self) -> int:
        """Return how many jobs wait for a place."""
        return len(self._jobs)

    def ended(self) -> int:
        """Return how many deliveries have ended here."""
        return self._ended_here

    def turns(self) -> Mapping[str, object]:
        """Return None when the loop's thread has ended although nobody asked; see Liveness."""
        return {} if self._ending or self.thread.is_alive() else {self.thread.name: None}

    def look(self) -> None:
        """Notice that the places are blocked, or that a coroutine blocks the loop."""
        super().look()
        now = time.monotonic()
        passed, self._looked = min(MAX_GAP, now - self._looked), now
        if self._answered and self.held:
            self._answered, self._silent = False, 0.0
            self._call(self._answer)
        elif not self._answered:
            before, self._silent = self._silent, self._silent + passed
            if before <= SILENT < self._silent:
                self._blame()

    def is_blocked(self) -> bool:
        """Tell whether a coroutine has blocked the loop for so long that nothing that runs on it will end."""
        return self._silent > SILENT

    def receipts(self) -> Collection[Receipt]:
        """Return what runs on the loop, as the shared state knows it."""
        jobs = [lane.job for lane in self._lanes]
        return {job.executor.receipt(job.delivery) for job in jobs if job is not None}

    def _answer(self) -> None:
        self._answered = True

    def _blame(self) -> None:
        """Let the handler that blocks the loop count as one that is late and cannot be interrupted."""
        task = asyncio.current_task(self._loop)
        running = [(lane, lane.job) for lane in self._lanes if lane.job is not None]
        # A task that the handler has made itself belongs to no lane.
        blocking = [(lane, job) for lane, job in running if lane.task is task] or running
        handlers = ", ".join(sorted({job.handler.where for _, job in blocking}))
        logger.error(
            "The event loop has stood still for %.0f s in %s: coroutines must not block", self._silent, handlers
        )
        if task is not None and len(blocking) == 1:
            lane, job = blocking[0]
            job.executor.overdue(lane.number, job.delivery, since=time.monotonic() - self._silent)

    def _running(self) -> str:
        jobs = [lane.job for lane in self._lanes]
        return ", ".join(sorted({job.handler.where for job in jobs if job is not None})) or "nothing"

    def _call(self, callback: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback)  # type: ignore[arg-type] # a method without arguments
        except RuntimeError:
            # Somebody has closed the loop. The consumer will notice, and gives back what it holds.
            logger.debug("The event loop is closed")

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        make_caches()
        self._context = copy_context()
        try:
            while not self._ending and not self._loop.is_closed():
                self._run_until_stopped()
        finally:
            # What has outlived the grace ends with its process.
            if all(task.done() for task in self._tasks):
                self._loop.close()

    def _run_until_stopped(self) -> None:
        """Run the loop. SystemExit in any task or callback ends it, and so does loop.stop(): it goes on."""
        try:
            self._loop.run_forever()
        except (SystemExit, KeyboardInterrupt):
            logger.exception("A coroutine ended the event loop, which goes on; it runs %s", self._running())
        else:
            if not self._ending:
                logger.error("A coroutine stopped the event loop, which goes on; it runs %s", self._running())

    def _begin_waiting(self) -> None:
        self._called = False
        while self._free:
            try:
                job = self._jobs.popleft()
            except IndexError:
                return
            lane = self._free.pop()
            lane.job = job
            # A context of its own, and not a copy of that of the coroutine which ended a moment ago.
            lane.task = task = self._loop.create_task(self._run(lane, job), context=self._context.copy())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, lane: CoroutineLane, job: WorkItem) -> None:
        delivery, handler, executor = job
        try:
            lane.databases = await self._opened()
            await executor.run_coroutine(lane, delivery, handler)
        except BaseException:
            executor.settle(Settlement(delivery, HandBack()))
            raise
        finally:
            self._shared_state.idle(lane.number)
            lane.job = lane.task = None
            self._free.append(lane)
            self._ended_here += 1
            self._begin_waiting()
            await self._leave()

    async def _leave(self) -> None:
        """Count a job as ended, and before that close connections that are too old when it was the last."""
        databases = self._databases
        try:
            if self.held == 1 and databases is not None and databases.is_obsolete(time.monotonic()):
                await sync_to_async(databases.refresh)()
        finally:
            with self._counting:
                self.held -= 1
            self._ran()

    async def _opened(self) -> Databases:
        """Return the connections of the thread in which `sync_to_async` runs what coroutines ask of a database."""
        if self._databases is None:
            async with self._opening:
                if self._databases is None:
                    self._databases = await sync_to_async(Databases.of_this_thread)()
        return self._databases

    def hand_back_waiting(self) -> None:
        """Give back what has not begun."""
        while True:
            try:
                job = self._jobs.popleft()
            except IndexError:
                return
            job.executor.settle(Settlement(job.delivery, HandBack()))
            with self._counting:
                self.held -= 1

    def stop(self) -> None:
        """Begin nothing more; what waits is given back at once."""
        self._quiet = True
        self.hand_back_waiting()

    def join(self, grace: Grace) -> bool:
        """Wait for what runs while the grace lasts, and tell whether all has ended.

        What a loop that has ended had begun will not end: nobody waits for it.
        """
        while self.held and self.thread.is_alive() and not grace.over:
            grace.each_look()
            time.sleep(JOIN_LOOK)
        ended = not self.held
        self._ending = True
        if self.thread.is_alive():
            self._call(self._loop.stop)
            self.thread.join(1.0)
        elif not self._loop.is_closed() and ended:
            self._loop.close()
        return ended
