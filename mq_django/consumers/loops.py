"""Where handlers run that are coroutine functions: an event loop."""

import asyncio
import threading
import time

from asgiref.sync import sync_to_async
from django.db import close_old_connections

from mq_django.consumers.board import Board
from mq_django.consumers.executor import Executor
from mq_django.consumers.grace import Grace
from mq_django.consumers.pools import CONNECTION_CHECK, JOIN_LOOK, Job
from mq_django.core.messages import Delivery
from mq_django.core.outcomes import HandBack
from mq_django.errors import HandlerTimeout
from mq_django.registry import Handler
from mq_django.stores.base import Settlement

#: Coroutines that run at once.
MAX_COROUTINES = 100


class LoopPool:
    """An event loop in a thread, for handlers that are coroutine functions."""

    def __init__(self, first_lane: int, board: Board) -> None:
        self._board = board
        self._loop = asyncio.new_event_loop()
        self._free = list(range(first_lane, first_lane + MAX_COROUTINES))
        self._slots = asyncio.Semaphore(MAX_COROUTINES)
        self._tasks: set[asyncio.Task[None]] = set()
        self._begun: set[asyncio.Task[None]] = set()
        self._quiet = False
        self._checked = 0.0
        #: Jobs that were put and have not ended; fetchers and the loop count, in threads of their own.
        self.waiting = 0
        self._counting = threading.Lock()
        self.thread = threading.Thread(target=self._run_loop, name="mq_django loop", daemon=True)

    def start(self) -> None:
        """Start the loop's thread."""
        self.thread.start()

    def put(self, job: Job) -> None:
        """Run a job as soon as there is a place."""
        with self._counting:
            self.waiting += 1
        self._loop.call_soon_threadsafe(self._begin, job)

    def room(self) -> int:
        """Return how many more messages to fetch."""
        return max(0, MAX_COROUTINES * 2 - self.waiting)

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            # What has outlived the grace ends with its process.
            if not self._tasks:
                self._loop.close()

    def _begin(self, job: Job) -> None:
        task = self._loop.create_task(self._run(job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, job: Job) -> None:
        delivery, handler, executor = job
        try:
            async with self._slots:
                if self._quiet:
                    executor.settle(Settlement(delivery, HandBack()))
                else:
                    await self._run_in_lane(job)
        except asyncio.CancelledError:
            # Only who waits for a place is cancelled.
            executor.settle(Settlement(delivery, HandBack()))
        except BaseException as error:  # noqa: BLE001 - a delivery that nobody settles would stay pending
            executor.give_up(delivery, handler, error)
        finally:
            with self._counting:
                self.waiting -= 1

    async def _run_in_lane(self, job: Job) -> None:
        delivery, handler, executor = job
        task, lane = asyncio.current_task(), self._free.pop()
        assert task is not None
        self._begun.add(task)
        try:
            await self._call(lane, delivery, handler, executor)
        finally:
            self._begun.discard(task)
            self._board.idle(lane)
            self._free.append(lane)

    async def _call(self, lane: int, delivery: Delivery, handler: Handler, executor: Executor) -> None:
        seconds = executor.timeout(handler)
        started = executor.begin(lane, delivery, seconds)
        if not started:
            return
        if started - self._checked > CONNECTION_CHECK:
            await self._check_connections()
        try:
            async with asyncio.timeout(seconds) as limit:
                returned = await handler.call(delivery.message)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is the delivery's outcome
            if isinstance(error, TimeoutError) and limit.expired():
                error = HandlerTimeout(f"The handler ran longer than its timeout of {seconds:g} s")
            executor.fail(delivery, handler, error, time.monotonic() - started)
            await self._check_connections()
        else:
            executor.end(delivery, handler, returned, time.monotonic() - started)

    async def _check_connections(self) -> None:
        self._checked = time.monotonic()
        await sync_to_async(close_old_connections, thread_sensitive=True)()

    def stop(self) -> None:
        """Begin nothing more; what waits is given back at once."""
        self._quiet = True
        if self.thread.is_alive():
            self._loop.call_soon_threadsafe(self._cancel_waiting)

    def _cancel_waiting(self) -> None:
        for task in self._tasks - self._begun:
            task.cancel()

    def join(self, grace: Grace) -> bool:
        """Wait for what runs while the grace lasts, and tell whether all has ended."""
        while self.waiting and not grace.over:
            grace.each_look()
            time.sleep(JOIN_LOOK)
        ended = not self.waiting
        if self.thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self.thread.join(1.0)
        elif not self._loop.is_closed() and ended:
            self._loop.close()
        return ended
