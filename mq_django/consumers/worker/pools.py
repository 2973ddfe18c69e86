"""The pools that run handlers, and the pool of threads. For coroutines see `loops`."""

import abc
import ctypes
import threading
import time
from collections.abc import Callable, Mapping
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Any

from django.core.cache import caches
from django.db import connections

from mq_django.consumers.processes import Grace
from mq_django.consumers.shared_state import ASYNC_BATCHES, SharedState
from mq_django.consumers.worker.call_path import Slot, WorkItem
from mq_django.consumers.worker.databases import Databases
from mq_django.core import running_handler
from mq_django.core.logs import get_logger
from mq_django.core.running_handler import interruptible
from mq_django.errors import HandlerCancelled, HandlerTimeout

# One thread of a consumer, which runs handlers that are functions, one after another.

logger = get_logger(__name__)

#: Stands for the return value of a handler that has not ended.
_NOTHING = object()


def make_caches() -> None:
    """Create the thread's cache clients, so that all its messages share them and their connections."""
    for alias in caches:
        try:
            caches[alias]
        except Exception:
            # Code that uses the cache gets the error.
            logger.debug("Cannot create cache %s", alias, exc_info=True)


class HandlerThread(Slot):
    """A thread that runs one handler at a time."""

    def __init__(
        self, number: int, jobs: "SimpleQueue[WorkItem | None]", shared_state: SharedState, on_low: Callable[[], None]
    ) -> None:
        super().__init__(number)
        self._jobs = jobs
        self._shared_state = shared_state
        self._on_low = on_low
        #: The deadline of the running handler on the monotonic clock, or None.
        self._deadline: float | None = None
        self._lock = threading.Lock()
        self.busy = False
        #: How many deliveries have ended here.
        self.ended = 0
        self.thread = threading.Thread(target=self._loop, name=f"mq_django slot {number}", daemon=True)

    def _loop(self) -> None:
        get = self._jobs.get_nowait
        interruptible.set(self)
        self.databases = Databases.of_this_thread()
        make_caches()
        running_handler.enter()
        self.busy = True
        try:
            while True:
                try:
                    job = get()
                except Empty:
                    job = self._wait()
                if job is None:
                    return
                # In a copied context, so that locale, time zone and context variables end with the message.
                self.job = job
                try:
                    copy_context().run(job.path.run_in_thread, self, job)
                except BaseException as error:  # noqa: BLE001 - the thread lives, and the delivery has an outcome
                    # A batch has put its present call in the place of the job.
                    self.job.path.rescue(self.job, error)
                self.ended += 1
                self._on_low()
        finally:
            self._shared_state.idle(self.number)
            connections.close_all()

    def _wait(self) -> WorkItem | None:
        self.busy = False
        self._shared_state.idle(self.number)
        if self.databases.held:
            self.databases.refresh()
        self._on_low()
        job = self._jobs.get()
        self.busy = True
        return job

    def call(self, function: Callable[[Any], Any], argument: object, timeout: float | None) -> Any:
        """See Slot.call()."""
        returned: Any = _NOTHING
        self.guards = 0
        try:
            self._deadline = None if timeout is None else time.monotonic() + timeout
            self._is_calling = True
            try:
                returned = function(argument)
            finally:
                # An interrupt that was sent under the lock arrives before this function returns.
                with self._lock:
                    self._is_calling = False
        except HandlerTimeout as error:
            if timeout is None:
                raise
            raise HandlerTimeout(f"The handler ran longer than its timeout of {timeout:g} s") from error
        except HandlerCancelled:
            # What has ended before it is interrupted is handled.
            if returned is _NOTHING:
                raise
        return returned

    def interrupt_if_late(self, now: float) -> None:
        """Raise HandlerTimeout in the running handler if it is past its deadline."""
        # Under the lock, so that the error never reaches the next delivery of this slot.
        with self._lock:
            if self._is_calling and self._deadline is not None and now > self._deadline:
                self._interrupt(HandlerTimeout)

    def cancel(self, job: WorkItem, *, force: bool) -> None:
        """See Slot.cancel()."""
        with self._lock:
            if not self._is_calling or self.job is not job:
                return
            if self._note_cancelled(job, force=force):
                self._interrupt(HandlerCancelled)

    def guard(self) -> None:
        """Begin a block in which the handler is not interrupted: see `uninterrupted`."""
        with self._lock:
            self.guards += 1

    def unguard(self) -> None:
        """End a block, and interrupt the handler if it was cancelled meanwhile."""
        with self._lock:
            self.guards -= 1
            if self.guards or not self.cancelled or not self._is_calling:
                return
            if threading.get_ident() != self.thread.ident:
                self._interrupt(HandlerCancelled)
                return
        raise HandlerCancelled

    def end_timeout(self) -> None:
        """Let the timeout not interrupt the handler, which watches it itself."""
        with self._lock:
            self._deadline = None

    def seal(self) -> None:
        """Let nothing interrupt the handler from now on: see `seal`."""
        # An interrupt that was sent under the lock arrives before this function returns.
        with self._lock:
            self._is_calling = False

    def _interrupt(self, error: type[BaseException]) -> None:
        """Raise an error in the running handler. Called with the lock held."""
        # Once: the next one could arrive after the handler has ended.
        self._deadline = None
        if self.thread.ident:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.thread.ident), ctypes.py_object(error))


#: Seconds of work to prefetch: enough to hide a round trip, and little enough that slow messages spread evenly over
#: consumers.
PREFETCH_SECONDS = 0.02
#: The most messages to prefetch.
MAX_PREFETCH = 500
#: The smallest fetch, in percent of the prefetch. Fetching after every message would cost a round trip each. With this
#: much at once, the outcomes of fast messages are sent with a fetch and need no round trip of their own.
REFILL = 30
#: A pool counts as blocked when all its slots are busy and no handler has ended for this many seconds.
BLOCKED = 0.1
#: Seconds after which the messages that wait for a blocked pool are handed back for idle consumers: the first time, and
#: at most. The pause grows, because without idle consumers this one fetches them again.
HAND_BACK_AFTER, MAX_HAND_BACK_AFTER = 0.5, 4.0
#: Seconds between two checks whether the last handlers have ended.
JOIN_CHECK_EVERY = 0.01


class Pool(abc.ABC):
    """Places that run handlers, and the jobs that wait for them."""

    def __init__(self) -> None:
        self.wake_fetchers: Callable[[], None] = lambda: None
        #: The queues whose fetchers wait until outcomes are settled.
        self._wait_for_settler: set[str] = set()
        #: The queues whose fetchers wait for free slots, each with the number of waiting jobs at which to wake them.
        self._waits: dict[str, int] = {}
        #: The largest of these numbers.
        self._low = 0
        #: All slots are busy, and no handler has ended for BLOCKED seconds: fetched messages would only wait.
        self.blocked = False
        #: Blocked for so long that no messages should wait here.
        self._slow = False
        self._ended = -1
        self._since = self._hand_back_at = 0.0
        self._hand_back_after = HAND_BACK_AFTER

    @abc.abstractmethod
    def capacity(self) -> tuple[int, int]:
        """Return how many slots there are, and how many of them are free."""

    @abc.abstractmethod
    def waiting(self) -> int:
        """Return how many jobs wait for a slot."""

    @abc.abstractmethod
    def ended(self) -> int:
        """Return how many deliveries have ended here."""

    @abc.abstractmethod
    def hand_back_waiting(self) -> None:
        """Hand back the jobs that have not started."""

    def demand(self, queue: str, seconds: float, ahead: int = MAX_PREFETCH) -> int:
        """Return how many more messages to fetch of a queue; with 0 its fetcher will be woken.

        Args:
            seconds: how long one takes.
            ahead: maximum number of messages beyond the ones that can start at once.
        """
        # Noted before the slots are counted: one that becomes free meanwhile is counted or wakes the fetcher.
        self._note_wait(queue, MAX_PREFETCH)
        capacity, free = self.capacity()
        prefetch = 0 if self._slow else min(ahead, int(capacity * PREFETCH_SECONDS / max(seconds, 1e-6)))
        demand = free + prefetch - self.waiting()
        if demand * 100 <= prefetch * REFILL:
            self._note_wait(queue, prefetch - prefetch * REFILL // 100)
            return 0
        self._waits.pop(queue, None)
        return demand

    def demand_for_batches(self, queue: str, batch: int, waiting: int, in_hand: int) -> int:
        """Return how many more messages to fetch of a queue with a handler that gets up to `batch` of them in a call.

        Each free slot gets a batch, and while none is free, the next one is fetched. With 0 the fetcher will be woken.

        Args:
            waiting: how many messages of the queue wait for their call.
            in_hand: how many of its messages are not settled.
        """
        # First, as in demand().
        self._note_wait(queue, MAX_PREFETCH)
        capacity, free = self.capacity()
        calls = free or (0 if self._slow else 1)
        # What has ended and is not settled must be in the shared state, which can hold the batches of all slots.
        most = batch * (min(capacity, ASYNC_BATCHES) + 1) - in_hand
        demand = min(MAX_PREFETCH, batch * calls - waiting) if self.waiting() <= capacity else 0
        if demand * 100 <= min(MAX_PREFETCH, batch) * REFILL:
            # Messages that others handle one by one must not wait behind those that wait for their batch.
            demand = free
        # Nothing else wakes the fetcher when outcomes are settled.
        if demand > most:
            self._wait_for_settler.add(queue)
        else:
            self._wait_for_settler.discard(queue)
        demand = max(0, min(demand, most))
        if demand:
            self._waits.pop(queue, None)
        else:
            self._note_wait(queue, capacity)
        return demand

    def _note_wait(self, queue: str, low: int) -> None:
        self._waits[queue] = low
        self._low = max(self._waits.values(), default=0)

    def on_low(self) -> None:
        """Wake the fetchers if one waits and slots are free."""
        if self._waits and self.waiting() <= self._low:
            self._waits.clear()
            self.wake_fetchers()

    def check(self) -> None:
        """Check whether all slots are blocked, and hand back waiting messages from time to time for idle consumers."""
        now, blocked, ended = time.monotonic(), self.blocked, self.ended()
        if ended != self._ended or self.capacity()[1]:
            self._ended, self._since, self._hand_back_after = ended, now, HAND_BACK_AFTER
            self._hand_back_at = now + HAND_BACK_AFTER
        self.blocked = now - self._since > BLOCKED
        self._slow = now - self._since > HAND_BACK_AFTER
        if now > self._hand_back_at:
            # This consumer fetches again only after the next check, so that idle consumers are served first.
            self.blocked = False
            self._hand_back_after = min(MAX_HAND_BACK_AFTER, self._hand_back_after * 2)
            self._hand_back_at = now + self._hand_back_after
            self.hand_back_waiting()
        if (self.blocked and not blocked) or self._wait_for_settler:
            self._wait_for_settler.clear()
            self.wake_fetchers()


class ThreadPool(Pool):
    """The threads of a consumer."""

    def __init__(self, threads: int, shared_state: SharedState) -> None:
        super().__init__()
        self._jobs: SimpleQueue[WorkItem | None] = SimpleQueue()
        #: Runs a job as soon as a thread is free.
        self.put: Callable[[WorkItem], None] = self._jobs.put
        self._ending = False
        self.slots = [HandlerThread(number, self._jobs, shared_state, self.on_low) for number in range(threads)]

    def start(self) -> None:
        """Start the threads."""
        for slot in self.slots:
            slot.thread.start()

    def capacity(self) -> tuple[int, int]:
        """Return how many threads there are, and how many of them are free."""
        return len(self.slots), sum(not slot.busy for slot in self.slots)

    def waiting(self) -> int:
        """Return how many jobs wait for a thread."""
        return self._jobs.qsize()

    def ended(self) -> int:
        """Return how many deliveries have ended here."""
        return sum(slot.ended for slot in self.slots)

    def interrupt_late(self) -> None:
        """Interrupt handlers that are past their timeout."""
        now = time.monotonic()
        for slot in self.slots:
            slot.interrupt_if_late(now)

    def hand_back_waiting(self) -> None:
        """Hand back the jobs that no thread has started."""
        while not self._ending:
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return
            if job is not None:
                job.path.hand_back(job)

    def stop(self) -> None:
        """Hand back the jobs that have not started, and end each thread after its running handler."""
        self.hand_back_waiting()
        self._ending = True
        for _ in self.slots:
            self._jobs.put(None)

    def progress(self) -> Mapping[str, object]:
        """Return None for each thread that has ended without being asked to; see Liveness."""
        dead = [] if self._ending else [slot for slot in self.slots if not slot.thread.is_alive()]
        return {slot.thread.name: None for slot in dead}

    def join(self, grace: Grace) -> bool:
        """Wait for the threads within the grace period, and return whether all have ended."""
        while any(slot.thread.is_alive() for slot in self.slots) and not grace.over:
            grace.on_check()
            time.sleep(JOIN_CHECK_EVERY)
        return not any(slot.thread.is_alive() for slot in self.slots)
