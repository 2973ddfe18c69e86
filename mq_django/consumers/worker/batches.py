"""Collect the messages that a handler gets in lists."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from mq_django.consumers.service import Service
from mq_django.consumers.shared_state import ASYNC_BATCHES, Receipt
from mq_django.consumers.worker.batch_calls import RunningBatch
from mq_django.consumers.worker.batch_endings import Member
from mq_django.consumers.worker.lanes import LoopLane, RunningState, ThreadLane, WorkItem
from mq_django.core.logs import get_logger
from mq_django.core.messages import Delivery
from mq_django.registry import Handler

# The places in the shared state of the batches that coroutine functions handle.


class BatchRows:
    """Rows of the table of batches, which limit how many coroutine functions with batches run at once.

    Args:
        first: the number of the first of them. Those before belong to threads.
    """

    def __init__(self, first: int) -> None:
        self._free: asyncio.Queue[int] = asyncio.Queue()
        for row in range(first, first + ASYNC_BATCHES):
            self._free.put_nowait(row)

    @asynccontextmanager
    async def free(self) -> AsyncIterator[int]:
        """Wait for a free row, and occupy it for the time of a block."""
        row = await self._free.get()
        try:
            yield row
        finally:
            self._free.put_nowait(row)


# Collect the messages that a handler gets in lists.

logger = get_logger(__name__)

#: The longest pause between two checks for batches whose time is over, in seconds.
CHECK_EVERY = 1.0


class BatchPool(Protocol):
    """A pool, or whatever else runs batches."""

    def put(self, job: WorkItem, /) -> None:
        """Run a job as soon as possible."""

    def on_low(self) -> None:
        """Note that fewer messages wait."""


class Collector:
    """The messages of one handler that wait for their call.

    It puts jobs into a pool, one for each call that can be made. A job that starts takes as many messages as there are
    then, up to the handler's limit: so calls are large while all lanes are busy.
    """

    #: See DeliveryRunner.
    number = -1

    def __init__(self, handler: Handler, pool: BatchPool, state: RunningState, rows: BatchRows) -> None:
        self._handler = handler
        self._pool = pool
        self._state = state
        self._rows = rows
        self._limit = min(handler.batch, state.largest_batch())
        self._waiting: deque[Member] = deque()
        #: The jobs in the pool that have not started. One too many finds no messages.
        self._jobs = 0
        self._is_closed = False
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, members: Sequence[Member]) -> None:
        """Add messages. Then `ready` must be called."""
        self._waiting.extend(members)
        if self._is_closed:
            self._hand_back()

    def ready(self, *, at_once: bool = False) -> float | None:
        """Have the calls made that can be made now; return the seconds until another one can; None: no other waits.

        `at_once`: also of messages that would wait for others.
        """
        with self._lock:
            count, rest = divmod(len(self._waiting), self._limit)
            left = self._left() if rest else None
            if left is not None and (at_once or left <= 0):
                count, left = count + 1, None
            new, self._jobs = count - self._jobs, max(count, self._jobs)
            first = self._waiting[0][0] if new > 0 else None
        if first is not None:
            for _ in range(new):
                self._pool.put(WorkItem(first, self._handler, self))
        return left

    def _left(self) -> float:
        """Return for how many more seconds the first message waits for others."""
        if not self._handler.linger:
            return 0.0
        return self._waiting[0][0].read_at + self._handler.linger - time.monotonic()

    def close(self) -> None:
        """Hand back what waits, and what is added from now on."""
        self._is_closed = True
        self._hand_back()

    def _take(self) -> list[Member]:
        with self._lock:
            self._jobs = max(0, self._jobs - 1)
            waiting = self._waiting
            return [waiting.popleft() for _ in range(min(len(waiting), self._limit))]

    def _hand_back(self) -> None:
        with self._lock:
            waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
        for delivery, executor in waiting:
            executor.hand_back(delivery)

    def run(self, lane: ThreadLane, _: Delivery, handler: Handler) -> None:
        """Take messages, and run them in this thread."""
        if items := self._take():
            self._pool.on_low()
            RunningBatch(items, handler, self._state, lane.number).run(lane)

    async def run_coroutine(self, lane: LoopLane, _: Delivery, handler: Handler) -> None:
        """Take messages, and run them on this event loop."""
        async with self._rows.free() as row:
            if items := self._take():
                self._pool.on_low()
                await RunningBatch(items, handler, self._state, row).run_coroutine(lane)

    def overdue(self, lane: int, delivery: Delivery, *, since: float) -> None:
        """Do nothing: none of its messages runs yet."""

    def receipt(self, delivery: Delivery) -> Receipt:
        """Return a receipt that no delivery has: none of its messages runs yet."""
        return Receipt(-1, -1, b"")

    def receipts(self, delivery: Delivery) -> Sequence[Receipt]:
        """Return nothing: none of its messages runs yet."""
        return ()

    def hand_back(self, delivery: Delivery) -> None:
        """Hand back what waits, for a job that has not started."""
        with self._lock:
            self._jobs = max(0, self._jobs - 1)
        self._hand_back()

    def rescue(self, delivery: Delivery, handler: Handler, error: BaseException) -> None:
        """Hand back what waits: none of its messages has started."""
        logger.error("A batch of handler %s could not start", handler.where, exc_info=error)
        self._hand_back()


class Batches:
    """The messages of this process that wait to be handled in lists.

    Args:
        state: the shared state.
        threads, loop: the pools of functions and of coroutine functions.
        rows: the places in the shared state of what coroutine functions handle.
    """

    def __init__(self, state: RunningState, threads: BatchPool, loop: BatchPool, rows: BatchRows) -> None:
        self._state = state
        self._pools = {False: threads, True: loop}
        self._rows = rows
        self._collectors: dict[tuple[str | None, str], Collector] = {}
        self._lock = threading.Lock()
        #: Called when messages begin to wait for others.
        self.on_wait: Callable[[], None] = lambda: None

    def collector(self, handler: Handler) -> Collector:
        """Return the collector of a handler. All partitions of its queue share it."""
        key = handler.queue, handler.name
        with self._lock:
            found = self._collectors.get(key)
            if found is None:
                pool = self._pools[handler.on_loop]
                found = self._collectors[key] = Collector(handler, pool, self._state, self._rows)
            return found

    def waiting(self, queue: str) -> int:
        """Return how many messages of a queue wait for their call."""
        with self._lock:
            return sum(len(found) for (handled_in, _), found in self._collectors.items() if handled_in == queue)

    def ready(self) -> float | None:
        """Have the calls made that can be made now; return the seconds until another one can; None: no other waits."""
        with self._lock:
            collectors = list(self._collectors.values())
        return min([left for left in [found.ready() for found in collectors] if left is not None], default=None)

    def close(self) -> None:
        """Hand back all that waits."""
        with self._lock:
            collectors = list(self._collectors.values())
        for found in collectors:
            found.close()


class Lingering(Service):
    """Has the calls made whose messages have waited long enough for others."""

    name = "lingering"

    def __init__(self, batches: Batches) -> None:
        super().__init__()
        self.connection = None
        self._batches = batches
        batches.on_wait = self.wake

    def run_once(self) -> float:
        """Have the calls made that can be made now."""
        left = self._batches.ready()
        return CHECK_EVERY if left is None else min(CHECK_EVERY, max(0.001, left))
