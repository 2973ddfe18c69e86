"""Where handlers run, and how much they have room for: threads. For coroutines see `loops`."""

import abc
import ctypes
import threading
import time
from collections.abc import Callable, Mapping
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import NamedTuple

from django.core.cache import caches
from django.db import connections

from mq_django.consumers.shared_state import SharedState
from mq_django.consumers.worker.databases import Databases
from mq_django.consumers.worker.executor import Executor
from mq_django.consumers.worker.grace import Grace
from mq_django.core.logs import get_logger
from mq_django.core.messages import Delivery, Message
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
#: Seconds without an end after which a pool whose places are all taken counts as blocked.
BLOCKED = 0.1
#: Seconds after which what waits in a blocked pool goes back, so that idle consumers get it: the first time, and at
#: most. While nobody is idle it comes back, and would travel to and fro.
PATIENCE, MAX_PATIENCE = 0.5, 4.0
#: Seconds between two looks at whether the last handlers have ended.
JOIN_LOOK = 0.01


def make_caches() -> None:
    """Make the thread's cache clients, so that the contexts of all its messages share them and their connections."""
    for alias in caches:
        try:
            caches[alias]
        except Exception:
            # Whoever needs it gets the error.
            logger.debug("Cache %s cannot be made", alias, exc_info=True)


class WorkItem(NamedTuple):
    """A delivery with what runs it."""

    delivery: Delivery
    handler: Handler
    executor: Executor


class HandlerThread:
    """One thread that runs handlers, one after another."""

    databases: Databases

    def __init__(
        self, number: int, jobs: "SimpleQueue[WorkItem | None]", shared_state: SharedState, on_low: Callable[[], None]
    ) -> None:
        self.number = number
        self._jobs = jobs
        self._shared_state = shared_state
        self._on_low = on_low
        #: The latest moment of the running handler on the monotonic clock, or None.
        self._deadline: float | None = None
        self._deadline_lock = threading.Lock()
        self.busy = False
        #: How many deliveries have ended here.
        self.ended = 0
        self.thread = threading.Thread(target=self._loop, name=f"mq_django lane {number}", daemon=True)

    def _loop(self) -> None:
        get = self._jobs.get_nowait
        self.databases = Databases.of_this_thread()
        make_caches()
        self.busy = True
        try:
            while True:
                try:
                    job = get()
                except Empty:
                    job = self._wait()
                if job is None:
                    return
                # A context of its own: locale, time zone and context variables end with the message.
                copy_context().run(job.executor.run, self, job.delivery, job.handler)
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

    def call(self, handler: Handler, message: Message, timeout: float | None) -> object:
        """Call a handler; raise HandlerTimeout when it takes longer than `timeout` seconds."""
        if timeout is None:
            return handler.call(message)
        try:
            self._deadline = time.monotonic() + timeout
            try:
                return handler.call(message)
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


class Pool(abc.ABC):
    """Places where handlers run, in front of one queue of jobs."""

    def __init__(self) -> None:
        self.wake_fetchers: Callable[[], None] = lambda: None
        self._fetcher_waits = False
        self._low = 0
        #: All places are taken, and nothing has ended for a moment: what is fetched for them only waits.
        self.blocked = False
        #: The same for so long that nothing should wait here.
        self._slow = False
        self._ended = -1
        self._since = self._hand_back_at = 0.0
        self._patience = PATIENCE

    @abc.abstractmethod
    def places(self) -> tuple[int, int]:
        """Return how many places there are, and how many of them are free."""

    @abc.abstractmethod
    def waiting(self) -> int:
        """Return how many jobs wait for a place."""

    @abc.abstractmethod
    def ended(self) -> int:
        """Return how many deliveries have ended here."""

    @abc.abstractmethod
    def hand_back_waiting(self) -> None:
        """Give back what has not begun."""

    def room(self, seconds: float) -> int:
        """Return how many more messages to fetch, if one takes `seconds`; 0 means: you will be woken."""
        # Wished for before it is looked at: a place that becomes free in between either sees the wish or is seen.
        self._fetcher_waits = True
        places, free = self.places()
        prefetch = 0 if self._slow else min(MAX_PREFETCH, int(places * HORIZON / max(seconds, 1e-6)))
        self._low = prefetch - prefetch * REFILL // 100
        room = free + prefetch - self.waiting()
        if room * 100 <= prefetch * REFILL:
            return 0
        self._fetcher_waits = False
        return room

    def _ran(self) -> None:
        if self._fetcher_waits and self.waiting() <= self._low:
            self._fetcher_waits = False
            self.wake_fetchers()

    def look(self) -> None:
        """Notice that the places are blocked, and give back at times what waits: others may be idle."""
        now, blocked, ended = time.monotonic(), self.blocked, self.ended()
        if ended != self._ended or self.places()[1]:
            self._ended, self._since, self._patience = ended, now, PATIENCE
            self._hand_back_at = now + PATIENCE
        self.blocked = now - self._since > BLOCKED
        self._slow = now - self._since > PATIENCE
        if now > self._hand_back_at:
            # Fetched again only after the next look: whoever is idle comes first.
            self.blocked = False
            self._patience = min(MAX_PATIENCE, self._patience * 2)
            self._hand_back_at = now + self._patience
            self.hand_back_waiting()
        if self.blocked and not blocked:
            self.wake_fetchers()


class ThreadPool(Pool):
    """The lanes of a consumer that are threads."""

    def __init__(self, threads: int, shared_state: SharedState) -> None:
        super().__init__()
        self._jobs: SimpleQueue[WorkItem | None] = SimpleQueue()
        #: Runs a job as soon as a thread is free.
        self.put: Callable[[WorkItem], None] = self._jobs.put
        self._ending = False
        self.lanes = [HandlerThread(number, self._jobs, shared_state, self._ran) for number in range(threads)]

    def start(self) -> None:
        """Start the threads."""
        for lane in self.lanes:
            lane.thread.start()

    def places(self) -> tuple[int, int]:
        """Return how many threads there are, and how many of them are free."""
        return len(self.lanes), sum(not lane.busy for lane in self.lanes)

    def waiting(self) -> int:
        """Return how many jobs wait for a thread."""
        return self._jobs.qsize()

    def ended(self) -> int:
        """Return how many deliveries have ended here."""
        return sum(lane.ended for lane in self.lanes)

    def interrupt_late(self) -> None:
        """Interrupt handlers that have run longer than their timeout."""
        now = time.monotonic()
        for lane in self.lanes:
            lane.interrupt_if_late(now)

    def hand_back_waiting(self) -> None:
        """Give back what no thread has begun."""
        while not self._ending:
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return
            if job is not None:
                job.executor.settle(Settlement(job.delivery, HandBack()))

    def stop(self) -> None:
        """Give back what has not begun, and end each thread after the handler it runs."""
        self.hand_back_waiting()
        self._ending = True
        for _ in self.lanes:
            self._jobs.put(None)

    def turns(self) -> Mapping[str, object]:
        """Return None for each thread that has ended although nobody asked; see Liveness."""
        dead = [] if self._ending else [lane for lane in self.lanes if not lane.thread.is_alive()]
        return {lane.thread.name: None for lane in dead}

    def join(self, grace: Grace) -> bool:
        """Wait for the threads while the grace lasts, and tell whether all have ended."""
        while any(lane.thread.is_alive() for lane in self.lanes) and not grace.over:
            grace.each_look()
            time.sleep(JOIN_LOOK)
        return not any(lane.thread.is_alive() for lane in self.lanes)
