"""Where handlers run: threads. For coroutine functions see `mq_django.consumers.loops`."""

import ctypes
import math
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import NamedTuple

from django.db import close_old_connections, connections

from mq_django.consumers.board import Board
from mq_django.consumers.executor import Executor
from mq_django.consumers.grace import Grace
from mq_django.core.logs import get_logger
from mq_django.core.messages import Delivery
from mq_django.core.outcomes import HandBack
from mq_django.errors import HandlerTimeout
from mq_django.registry import Handler
from mq_django.stores.base import Settlement

logger = get_logger(__name__)

#: Seconds of work that may lie ready in front of the threads: enough to hide a round trip, little enough that slow
#: work spreads evenly over consumers.
HORIZON = 0.02
#: Messages that may lie ready, however fast they are.
MAX_PREFETCH = 500
#: How much of what may lie ready is fetched at least, in percent. A fetch for every message that ends would be a round
#: trip a message; and with this much at once, the outcomes of fast messages travel with a fetch before they are so many
#: that they make a trip of their own.
REFILL = 30
#: Seconds after which what waits behind handlers goes back, so that idle consumers get it.
PATIENCE = 0.5
#: Seconds between two looks at a thread's database connections. A failed handler is followed by one at once.
CONNECTION_CHECK = 1.0
#: Seconds between two looks at whether the last handlers have ended.
JOIN_LOOK = 0.01


class Job(NamedTuple):
    """A delivery with what runs it."""

    delivery: Delivery
    handler: Handler
    executor: Executor


class Lane:
    """One thread that runs handlers, one after another."""

    def __init__(self, number: int, jobs: "SimpleQueue[Job | None]", board: Board, on_low: Callable[[], None]) -> None:
        self._number = number
        self._jobs = jobs
        self._board = board
        self._on_low = on_low
        self._checked = 0.0
        #: The latest moment of the running handler on the monotonic clock, or None.
        self._deadline: float | None = None
        self._deadline_lock = threading.Lock()
        self.busy = False
        self.thread = threading.Thread(target=self._loop, name=f"mq_django lane {number}", daemon=True)

    def _loop(self) -> None:
        get = self._jobs.get_nowait
        self.busy = True
        try:
            while True:
                try:
                    job = get()
                except Empty:
                    job = self._wait()
                if job is None:
                    return
                try:
                    self.run(job)
                except BaseException as error:  # noqa: BLE001 - a lane that ended would be missed for good
                    job.executor.give_up(job.delivery, job.handler, error)
                self._on_low()
        finally:
            self._board.idle(self._number)
            connections.close_all()

    def _wait(self) -> Job | None:
        self.busy = False
        self._board.idle(self._number)
        self._check_connections()
        self._on_low()
        job = self._jobs.get()
        self.busy = True
        return job

    def _check_connections(self) -> None:
        close_old_connections()
        self._checked = time.monotonic()

    def run(self, job: Job) -> None:
        """Run a job and hand its outcome over."""
        delivery, handler, executor = job
        timeout = executor.timeout(handler)
        started = executor.begin(self._number, delivery, timeout)
        if not started:
            return
        if started - self._checked > CONNECTION_CHECK:
            self._check_connections()
        try:
            returned = handler.call(delivery.message) if timeout is None else self._within(timeout, handler, delivery)
        except BaseException as error:  # noqa: BLE001 - SystemExit in a handler must not end the lane
            executor.fail(delivery, handler, error, time.monotonic() - started)
            self._check_connections()
        else:
            executor.end(delivery, handler, returned, time.monotonic() - started)

    def _within(self, timeout: float, handler: Handler, delivery: Delivery) -> object:
        try:
            self._deadline = time.monotonic() + timeout
            try:
                return handler.call(delivery.message)
            finally:
                # An interrupt that was sent before the lock was free arrives before this function returns.
                with self._deadline_lock:
                    self._deadline = None
        except HandlerTimeout as error:
            raise HandlerTimeout(f"The handler ran longer than its timeout of {timeout:g} s") from error

    def interrupt_if_late(self, now: float) -> None:
        """Raise HandlerTimeout in the running handler when its time is over."""
        # Under the lock, so that the error never reaches a lane that has gone on to its next delivery.
        with self._deadline_lock:
            if self._deadline is not None and now > self._deadline and self.thread.ident:
                self._deadline = None
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self.thread.ident), ctypes.py_object(HandlerTimeout)
                )


class ThreadPool:
    """The lanes of a consumer, in front of one queue of jobs."""

    def __init__(self, threads: int, board: Board) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        #: Runs a job as soon as a thread is free.
        self.put: Callable[[Job], None] = self._jobs.put
        self._board = board
        self._ending = False
        self._wanted = False
        self._low = 0
        #: Every thread has been busy with one handler for a while: nothing should wait behind them.
        self._slow = False
        self.wake_fetchers: Callable[[], None] = lambda: None
        self.lanes = [Lane(number, self._jobs, board, self._ran) for number in range(threads)]

    def start(self) -> None:
        """Start the threads."""
        for lane in self.lanes:
            lane.thread.start()

    def room(self, seconds: float) -> int:
        """Return how many more messages to fetch, if one takes `seconds`; 0 means: you will be woken."""
        prefetch = 0 if self._slow else min(MAX_PREFETCH, int(len(self.lanes) * HORIZON / max(seconds, 1e-6)))
        # Wished for before it is looked at: a lane that runs dry in between either sees the wish or is seen.
        self._low = prefetch - prefetch * REFILL // 100
        self._wanted = True
        idle = sum(not lane.busy for lane in self.lanes)
        room = idle + prefetch - self._jobs.qsize()
        if room * 100 <= prefetch * REFILL:
            return 0
        self._wanted = False
        return room

    def _ran(self) -> None:
        if self._wanted and self._jobs.qsize() <= self._low:
            self._wanted = False
            self.wake_fetchers()

    def interrupt_late(self) -> None:
        """Interrupt handlers that have run longer than their timeout."""
        now = time.monotonic()
        for lane in self.lanes:
            lane.interrupt_if_late(now)

    def hand_back_stranded(self) -> None:
        """Give back what waits behind handlers that take long: others may be idle."""
        if self._ending or not all(lane.busy for lane in self.lanes):
            self._slow = False
            return
        latest = max((item.since for item in self._board.running()), default=math.inf)
        self._slow = time.monotonic() - latest > PATIENCE
        if self._slow and self._jobs.qsize():
            self.hand_back_waiting()

    def hand_back_waiting(self) -> None:
        """Give back what no thread has begun."""
        while True:
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return
            if job is not None:
                job.executor.settle(Settlement(job.delivery, HandBack()))

    def stop(self) -> None:
        """End each thread after the handler it runs."""
        self._ending = True
        for _ in self.lanes:
            self._jobs.put(None)

    def join(self, grace: Grace) -> bool:
        """Wait for the threads while the grace lasts, and tell whether all have ended."""
        while any(lane.thread.is_alive() for lane in self.lanes) and not grace.over:
            grace.each_look()
            time.sleep(JOIN_LOOK)
        return not any(lane.thread.is_alive() for lane in self.lanes)
