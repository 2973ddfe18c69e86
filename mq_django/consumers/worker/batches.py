"""Call a handler with the messages of a batch: many at once, and again in halves when it raises."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from types import coroutine
from typing import Any, NoReturn, Protocol

from mq_django.consumers.decisions import announce, may_retry_uncharged, uncharged_retry
from mq_django.consumers.service import Service
from mq_django.consumers.shared_state import ASYNC_BATCHES, SharedState
from mq_django.consumers.worker.call_path import Called, CallPath, End, Member, Slot, Steps, WorkItem
from mq_django.consumers.worker.executor import Executor
from mq_django.core.logs import get_logger
from mq_django.core.messages import ACK, BatchBisection, HandBack, Outcome
from mq_django.core.running_handler import HandlerRun
from mq_django.errors import NotInHandler
from mq_django.registry import Handler
from mq_django.signals import handler_started

logger = get_logger(__name__)

#: The longest pause between two checks for batches whose time is over, in seconds.
CHECK_EVERY = 1.0


class Runner(Protocol):
    """A pool, or whatever else runs jobs."""

    def put(self, job: WorkItem, /) -> None:
        """Run a job as soon as possible."""

    def on_low(self) -> None:
        """Note that fewer messages wait."""


class Collector:
    """The messages of one handler that wait for their call, in its queue and all its partitions.

    It puts jobs into a pool, one for each call that can be made. A job that starts takes as many messages as there are
    then, up to the handler's limit: so calls are large while all slots are busy.
    """

    def __init__(self, handler: Handler, pool: Runner, state: SharedState, rows: "asyncio.Queue[int]") -> None:
        self._handler = handler
        self._pool = pool
        self.rows = rows
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
            self.hand_back()

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
            first = self._waiting[0] if new > 0 else None
        if first is not None:
            for _ in range(new):
                self._pool.put(WorkItem(*first))
        return left

    def _left(self) -> float:
        """Return for how many more seconds the first message waits for others."""
        if not self._handler.linger:
            return 0.0
        return self._waiting[0][0].read_at + self._handler.linger - time.monotonic()

    def close(self) -> None:
        """Hand back what waits, and what is added from now on."""
        self._is_closed = True
        self.hand_back()

    def take(self) -> list[Member]:
        """Return the messages of the next call, for a job that starts."""
        with self._lock:
            self._jobs = max(0, self._jobs - 1)
            waiting = self._waiting
            taken = [waiting.popleft() for _ in range(min(len(waiting), self._limit))]
        if taken:
            self._pool.on_low()
        return taken

    def hand_back(self, *, job: bool = False) -> None:
        """Hand back what waits; `job`: for a job that has not started."""
        with self._lock:
            self._jobs = max(0, self._jobs - job)
            waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
        for delivery, path in waiting:
            path.executor.hand_back(delivery)


#: Which messages are called next; a failure is the last call that had a message.
Plan = BatchBisection[Member, Called]


class BatchPath(CallPath):
    """How the messages of a handler with `batch` are handled: many in a call, and in halves again when it raises.

    Args:
        handler: gets them in a list.
        executor: of the queue, or of one of its partitions: they have the same options.
        collector: has the messages that wait.
    """

    def __init__(self, handler: Handler, executor: Executor, collector: Collector) -> None:
        super().__init__(handler, executor)
        self.collector = collector
        self._opened = _refuse_reports

    @coroutine
    def run(self, slot: Slot, job: WorkItem, _: BatchBisection[Member, Any] | None = None) -> Steps[Called | None]:
        """Run the messages of a job, or those that wait, until each has an outcome."""
        if self.on_loop:
            slot.row = yield from self.collector.rows.get()
        try:
            if members := job.together or self.collector.take():
                yield from self._run_all(slot, members)
            return None
        finally:
            if self.on_loop:
                self.collector.rows.put_nowait(slot.row)

    @coroutine
    def _run_all(self, slot: Slot, members: Sequence[Member]) -> Steps[None]:
        # The plan does not refer back to what it is part of: messages are freed at once, and not by the garbage
        # collector.
        plan = Plan(members, may_be_common=partial(_may_be_common, members, self.handler))
        try:
            while group := plan.next_group():
                if plan.calls > 1 and self.executor.reports.stopping.is_set():
                    _hand_back([*group, *plan.take_rest()])
                    break
                slot.job = job = WorkItem(*group[0], group)
                called = yield from super().run(slot, job, plan)
                if called is not None:
                    self._settle(slot, called, plan)
                # It may have what was raised, whose traceback refers to this frame.
                called = None
        except BaseException:
            _hand_back(plan.take_rest())
            raise
        self.executor.state.idle(slot.number)
        self._settle_alone(plan)
        self._settle_common(plan.take_common())

    def _begin(self, slot: Slot, job: WorkItem, started: float, plan: Plan | None) -> bool:
        """See CallPath._begin()."""
        assert plan is not None
        self.mark(slot, job, started, started + self._limit)
        # A list is faster than a generator.
        if any([delivery.message.expires_ms is not None for delivery, _ in job.together]):  # noqa: C419
            return False
        reads = {(path, delivery.read_at) for delivery, path in job.together}
        if not all(path.executor.may_run(read_at) for path, read_at in reads):
            return False
        if plan.calls == 1 and handler_started.receivers:
            announce([delivery for delivery, _ in job.together])
        return True

    def hand_back(self, job: WorkItem) -> None:
        """Hand back a job that has not started, or what it has taken."""
        _hand_back(job.together)
        if not job.together:
            self.collector.hand_back(job=True)

    def rescue(self, job: WorkItem, error: BaseException) -> None:
        """See CallPath.rescue(). Messages that had not begun are handed back."""
        super().rescue(job, error)
        if not job.together:
            logger.error("A batch of handler %s could not start", self.handler.where, exc_info=error)
            self.collector.hand_back()

    def _settle(self, slot: Slot, called: Called, plan: Plan) -> None:
        """Pass on the outcomes of a call, or note that it has failed as a whole."""
        (_, _, group), end, seconds = called
        if not end.failed:
            plan.succeeded()
            self._settle_each(slot, group, end.outcomes, seconds / len(group), end.raised)
        else:
            if len(group) > 1 and plan.calls == 1:
                text = "Handler %s failed for %d messages of queue %s, and is called again with halves of them: %r"
                logger.warning(text, *self._about(group, end), extra=self._extra(group))
            plan.failed(group, called)
        self._settle_alone(plan)

    def _settle_each(
        self,
        slot: Slot,
        group: Sequence[Member],
        outcomes: Sequence[Outcome],
        seconds: float,
        raised: BaseException | None,
    ) -> None:
        first = group[0][1]
        # Lists are faster than generators.
        if all([outcome is ACK for outcome in outcomes]) and all([path is first for _, path in group]):  # noqa: C419
            first.executor.finish_acks(slot.row, [delivery for delivery, _ in group], seconds)
            return
        for (delivery, path), outcome in zip(group, outcomes, strict=True):
            path.executor.finish(delivery, self.handler, outcome, seconds, raised, together=len(group))

    def _settle_alone(self, plan: Plan) -> None:
        """Pass on the outcomes of messages that have failed alone, once it is known that they are the cause."""
        for (delivery, path), (_, end, seconds) in plan.take_alone():
            path.executor.finish(delivery, self.handler, end.outcomes[0], seconds, end.raised)

    def _settle_common(self, common: Sequence[tuple[Member, Called]]) -> None:
        """Have messages that fail for a common reason retried without a charge."""
        if common:
            group, end = [member for member, _ in common], common[0][1].end
            logger.error(
                "Handler %s failed for %d messages of queue %s, together and in parts: they are retried without a "
                "charge: %r",
                *self._about(group, end),
                exc_info=end.raised,
                extra=self._extra(group),
            )
        for (delivery, path), (_, (outcomes, raised, _), seconds) in common:
            outcome = outcomes[0]
            # Else another delivery runs, or this process stops.
            uncharged = not isinstance(outcome, HandBack)
            if uncharged:
                outcome = uncharged_retry(path.executor.config, delivery, self.handler, outcome)
            path.executor.finish(delivery, self.handler, outcome, seconds, raised, uncharged=uncharged)

    def _about(self, group: Sequence[Member], end: End) -> tuple[str, int, str, str]:
        error = str(getattr(end.outcomes[0], "error", ""))[:300]
        return self.handler.where, len(group), group[0][0].message.queue, error

    def _extra(self, group: Sequence[Member]) -> dict[str, object]:
        return {"queue": group[0][0].message.queue, "handler": self.handler.where, "messages": len(group)}


def _hand_back(members: Sequence[Member]) -> None:
    for delivery, path in members:
        path.executor.hand_back(delivery)


def _refuse_reports(_: HandlerRun) -> NoReturn:
    """Let `progress()`, `stream()` and `resumable()` fail: they concern one message, and a call has several."""
    raise NotInHandler("A handler with batch= has several messages: it cannot report progress, stream or resume")


def _may_be_common(members: Sequence[Member], handler: Handler) -> bool:
    """Return whether all messages may still be retried without a charge."""
    return all(may_retry_uncharged(path.executor.config, delivery, handler) for delivery, path in members)


class Batches(Service):
    """The messages of this process that wait to be handled in lists; it calls when they have waited long enough.

    Args:
        state: the shared state.
        threads, loop: the pools of functions and of coroutine functions.
        first_row: of those in the shared state that coroutine functions use, which limit how many of them run at once.
            Those before belong to threads.
    """

    name = "lingering"

    def __init__(self, state: SharedState, threads: Runner, loop: Runner, first_row: int) -> None:
        super().__init__()
        self.connection = None
        self._state = state
        self._pools = {False: threads, True: loop}
        self._rows: asyncio.Queue[int] = asyncio.Queue()
        for row in range(first_row, first_row + ASYNC_BATCHES):
            self._rows.put_nowait(row)
        self._collectors: dict[tuple[str | None, str], Collector] = {}
        self._lock = threading.Lock()

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

    def run_once(self) -> float:
        """Have the calls made that can be made now."""
        left = [found.ready() for found in self._all()]
        return min(CHECK_EVERY, max(0.001, min([each for each in left if each is not None], default=CHECK_EVERY)))

    def hand_back(self) -> None:
        """Hand back all that waits, and what comes from now on."""
        for found in self._all():
            found.close()

    def _all(self) -> list[Collector]:
        with self._lock:
            return list(self._collectors.values())
