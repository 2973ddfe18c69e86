"""The steps in which a slot runs a delivery: from its check to its outcome."""

import abc
import math
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from types import coroutine
from typing import Any, NamedTuple, TypeVar

from asgiref.sync import sync_to_async

from mq_django.consumers import processes
from mq_django.consumers.decisions import announce, retry_invalid, settled_as
from mq_django.consumers.shared_state import RETURNED, Receipt
from mq_django.consumers.worker.databases import CONNECTION_CHECK, Databases
from mq_django.consumers.worker.executor import Executor
from mq_django.consumers.worker.once_call import OnceCall
from mq_django.core.ids import read_step_id
from mq_django.core.logs import get_logger
from mq_django.core.messages import (
    ACK,
    CANCEL,
    POSTPONED,
    Ack,
    BatchBisection,
    Bury,
    Cancel,
    Delivery,
    HandBack,
    Outcome,
    Retry,
    StepEnd,
    outcome_of,
    outcomes_of,
    with_texts,
    worst_of,
)
from mq_django.core.running_handler import HandlerRun, Report, running
from mq_django.core.texts import is_a, repr_of
from mq_django.errors import InvalidOutcomes
from mq_django.middleware import Handling
from mq_django.registry import Handler
from mq_django.signals import handler_finished, handler_started

logger = get_logger(__name__)

T = TypeVar("T")

#: Makes a named tuple in half the time that its own constructor takes.
_new = tuple.__new__

#: The steps of a call. Those of a coroutine function are awaited on its event loop. Those of a function wait for
#: nothing, so that `next()` runs all of them: in C, and without an exception at their end.
Steps = Generator[Any, Any, T]


class WorkItem(NamedTuple):
    """What a slot runs: a delivery, or the deliveries of one call, on the path of their handler."""

    #: With a batch the first of the present call; while none has begun, of those that wait.
    delivery: Delivery
    path: "CallPath"
    #: The deliveries of the present call of a batch; empty for what is none.
    together: "Sequence[Member]" = ()

    @property
    def members(self) -> "Sequence[Member]":
        """Return the deliveries that run; of a batch that has not taken its own, nothing."""
        return self.together or (() if self.path.handler.batch else ((self.delivery, self.path),))

    def receipts(self) -> list[Receipt]:
        """Return the receipts of the deliveries that run."""
        return [path.executor.receipt(delivery) for delivery, path in self.members]


#: A delivery of a batch, and its path in its queue or partition: a plain tuple, because many are made.
Member = tuple[Delivery, "CallPath"]


class Slot(abc.ABC):
    """A thread, or a slot of an event loop, that runs one job at a time."""

    #: The connections of the thread in which it runs database operations.
    databases: Databases

    def __init__(self, number: int) -> None:
        #: Its number in the shared state, and there the row for the receipts of a batch.
        self.number = self.row = number
        #: The job that it runs, or has run last.
        self.job: WorkItem | None = None
        #: Whether the handler itself runs now and can be interrupted.
        self._is_calling = False
        #: The job that was cancelled last, and the one that was cancelled by force.
        self._cancelled: WorkItem | None = None
        self._given_up: WorkItem | None = None
        #: The number of blocks in which the handler is not interrupted.
        self.guards = 0

    @abc.abstractmethod
    def call(self, function: Callable[[Any], Any], argument: object, timeout: float | None) -> Any:
        """Call a handler, and return its result; on an event loop a coroutine that does so.

        Raises:
            HandlerTimeout: it took longer than `timeout` seconds.
            BaseException: that of the handler.
        """

    def is_alone(self) -> bool:
        """Return whether nothing else uses the connections now."""
        return True

    def running(self) -> WorkItem | None:
        """Return what it runs, while the handler itself runs."""
        return self.job if self._is_calling else None

    @property
    def cancelled(self) -> bool:
        """Return whether somebody has cancelled what it runs, or has run last."""
        return self._cancelled is not None and self._cancelled is self.job

    def has_cancelled(self, *, force: bool) -> bool:
        """Return whether what it runs was cancelled already, with `force` by force."""
        return self._given_up is self.job if force else self.cancelled

    @abc.abstractmethod
    def cancel(self, job: WorkItem, *, force: bool) -> None:
        """Interrupt the handler of a job if that still runs; with `force` have its process replaced if it goes on."""

    def _note_cancelled(self, job: WorkItem, *, force: bool) -> bool:
        """Note that a job is cancelled, and return whether it is to be interrupted now: once, and not in a block."""
        if force and self._given_up is not job:
            self._given_up, now = job, time.monotonic()
            job.path.mark(self, job, now, now)
        if self.cancelled:
            return False
        self._cancelled = job
        return not self.guards


class End(NamedTuple):
    """How a call has ended: with an outcome for each of its messages."""

    outcomes: Sequence[Outcome]
    #: The exception of the handler, unless it is an outcome.
    raised: BaseException | None = None
    #: The call has failed as a whole: only some of its messages may be the cause.
    failed: bool = False


#: The end of a call that has handled its message.
ACKED = End((ACK,))


class Called(NamedTuple):
    """A call of a batch."""

    job: WorkItem
    end: End
    #: How long it took.
    seconds: float


class CallPath:
    """How the messages of one handler are handled in one queue.

    The steps are the same for all kinds of handlers: check, prepare, call, judge, clean up, settle. Whatever a handler
    does, raises or returns, each of its deliveries gets exactly one outcome. It is built once, and has no steps for
    what its handler and its queue do not use.
    """

    def __init__(self, handler: Handler, executor: Executor) -> None:
        self.handler = handler
        self.executor = executor
        self.on_loop = handler.on_loop
        limit = handler.timeout or executor.config.timeout
        #: Seconds that a call may take; None: any time.
        self.timeout = limit.total_seconds() if limit else None
        self._limit = math.inf if self.timeout is None else self.timeout
        self._call = handler.call if handler.once is None else OnceCall(handler, executor.config)
        self._state, self._number = executor.state, executor.number
        self._queue = executor.config.public_name
        self._handle = executor.chains.get(handler.on_loop)
        self._is_single = not handler.batch and handler.once is None
        self._keeps_result = handler.keeps_result
        self._ended: Callable[..., Any] | None = handler.aended if handler.on_loop else handler.ended
        self._opened: Callable[[HandlerRun], Report] = executor.reports.opened
        self._generation = processes.generation

    @coroutine
    def run(self, slot: Slot, job: WorkItem, plan: BatchBisection[Member, Any] | None = None) -> Steps[Called | None]:
        """Run a delivery until it has an outcome; or one call of a batch, which is returned unless nothing may run.

        Args:
            slot: that runs it.
            job: with the deliveries.
            plan: of a batch: says which call this is.
        """
        started = time.monotonic()
        if not self._begin(slot, job, started, plan):
            rest = yield from self._refuse(slot, job, started, plan)
            if rest is None:
                return None
            job = rest
        delivery, databases = job.delivery, slot.databases
        running.set(handler_run := HandlerRun(delivery, self._opened))
        rollbacks = databases.rollbacks
        try:
            if databases.held and started - databases.checked > CONNECTION_CHECK:
                yield from self._with_databases(databases.refresh)
            end = yield from self._called(slot, job) if self._handle is None else self._in_middleware(slot, job)
        except BaseException as error:  # noqa: BLE001 - not even SystemExit ends the slot: it is the delivery's outcome
            end = self._failed(slot, job, error)
        seconds = time.monotonic() - started
        try:
            return (yield from self._end_run(slot, job, handler_run, end, seconds, rollbacks, plan))
        finally:
            # The traceback of what was raised refers to this frame.
            end = ACKED

    @coroutine
    def _end_run(
        self,
        slot: Slot,
        job: WorkItem,
        handler_run: HandlerRun,
        end: End,
        seconds: float,
        rollbacks: int,
        plan: BatchBisection[Member, Any] | None,
    ) -> Steps[Called | None]:
        """Clean up after a call, and settle its delivery; that of a batch is returned."""
        delivery, databases = job.delivery, slot.databases
        if databases.held and (databases.rollbacks != rollbacks or databases.is_disturbed()):
            end = yield from self._cleaned_up(slot, job, end, rollbacks)
            handler_run.is_undone = databases.rollbacks != rollbacks
        handler_run.is_over = True
        if handler_run.report is not None and self.executor.reports.end(handler_run, end.outcomes[0]):
            # It goes before HANDLED, which is noted below: see ResultRing.read().
            self._state.ended(RETURNED, self._number, delivery.stream, delivery.entry)
        if plan is not None:
            return Called(job, end, seconds)
        outcome = self.executor.finish(delivery, self.handler, end.outcomes[0], seconds, end.raised)
        if self._ended and (notified := self._ended(delivery.message, outcome, seconds, end.raised)) is not None:
            yield from notified
        return None

    def run_in_thread(self, slot: Slot, job: WorkItem) -> None:
        """Run a job whose handler is a function."""
        next(self.run(slot, job), None)

    def _begin(self, slot: Slot, job: WorkItem, started: float, _: BatchBisection[Member, Any] | None) -> bool:
        """Note what a slot runs, and return whether it may run; if not, see _refuse()."""
        delivery, state, number, cancels = job.delivery, self._state, self._number, self.executor.cancels
        # Noted before it is checked whether this consumer holds it: the supervisor sets until when it does, then hands
        # back what a suspended process has not noted. What is not held another may have. Hand-backs are fenced.
        may_run = state.begin(
            slot.number, number, delivery.stream, delivery.entry, started, started + self._limit, delivery.read_at
        )
        if (
            not may_run or delivery.message.expires_ms is not None or (cancels is not None and cancels.any)
        ) and self.executor.refusal(delivery) is not None:
            return False
        if handler_started.receivers:
            announce([delivery])
        return True

    def mark(self, slot: Slot, job: WorkItem, since: float, deadline: float) -> None:
        """Note in the shared state what a slot runs. Past the deadline, its supervisor replaces the process."""
        if len(job.together) > 1:
            # As plain tuples, one at a time: a receipt of each message would take longer.
            receipts = ((path.executor.number, each.stream, each.entry) for each, path in job.together)
            self.executor.state.run_batch(slot.number, slot.row, receipts, since, deadline)
        else:
            executor, delivery = job.path.executor, job.delivery
            executor.state.run(slot.number, executor.number, delivery.stream, delivery.entry, since, deadline)

    def hand_back(self, job: WorkItem) -> None:
        """Hand back a job that has not started."""
        self.executor.hand_back(job.delivery)

    def rescue(self, job: WorkItem, error: BaseException) -> None:
        """Have deliveries retried, or buried, whose run has failed outside of their handler: each has an outcome."""
        for delivery, path in job.members:
            outcome = path.executor.decided(delivery, self.handler, retry_invalid(delivery, self.handler, error))
            path.executor.settler.add(settled_as(delivery, outcome, self.handler))

    @coroutine
    def _refuse(
        self, slot: Slot, job: WorkItem, started: float, plan: BatchBisection[Member, Any] | None
    ) -> Steps[WorkItem | None]:
        """Pass on the outcomes of what must not run, and return the rest; None: nothing may run."""
        members = job.members
        outcomes = [path.executor.refusal(delivery) for delivery, path in members]
        rest = [member for member, outcome in zip(members, outcomes, strict=True) if outcome is None]
        if len(rest) < len(members):
            self.executor.state.idle(slot.number)
            if rest:
                slot.job = job = WorkItem(*rest[0], rest)
                self.mark(slot, job, started, started + self._limit)
        for (delivery, path), outcome in zip(members, outcomes, strict=True):
            if outcome is not None:
                if isinstance(outcome, Cancel):
                    where = self.handler.where
                    logger.info("Message %s was cancelled before handler %s started", delivery.message.id, where)
                path.executor.settler.add(settled_as(delivery, outcome, self.handler))
                notified = None if self._ended is None else self._ended(delivery.message, outcome, 0.0, None)
                if notified is not None:
                    yield from notified
        if rest and (plan is None or plan.calls == 1):
            announce([delivery for delivery, _ in rest])
        return job if rest else None

    def _argument(self, job: WorkItem) -> object:
        """Return what is called with: the message or the messages, or the deliveries for `@exactly_once`."""
        if self.handler.once is not None:
            return [delivery for delivery, _ in job.members]
        return [delivery.message for delivery, _ in job.together] if job.together else job.delivery.message

    @coroutine
    def _called(self, slot: Slot, job: WorkItem) -> Steps[End]:
        """Call the handler."""
        returned = slot.call(self._call, self._argument(job), self.timeout)
        if self.on_loop:
            returned = yield from returned
        return self._judged(job, returned)

    @coroutine
    def _in_middleware(self, slot: Slot, job: WorkItem) -> Steps[End]:
        """Call the handler within the middleware, which gets one outcome for the call, and may return another one.

        If it returns the one that it gets, each message has its own.
        """
        #: How the call has ended, and the outcome that middleware gets.
        seen: list[Any] = []
        run = partial(self._await_inside if self.on_loop else self._call_inside, slot, job, seen)
        messages = tuple([delivery.message for delivery, _ in job.together]) if job.together else ()
        handling = Handling(self._queue, job.delivery.message, self.handler.where, run, None, messages)
        handle: Any = self._handle
        try:
            returned = handle(handling)
            if self.on_loop:
                returned = yield from returned
            return self._of_middleware(job, returned, seen)
        finally:
            # A traceback refers to frames that refer to these.
            handling.exception = None
            seen.clear()

    @staticmethod
    def _of_middleware(job: WorkItem, returned: object, seen: Sequence[Any]) -> End:
        """Return the end of a call by what middleware has returned."""
        end: End | None = seen[-2] if seen else None
        count = len(job.together)
        # A retry has the delay that it was shown with. What was shown as buried may be a retry of the last attempt: of
        # that a breaker decides.
        if end is not None and returned is seen[-1] and (count or not isinstance(returned, Retry)):
            return end
        outcome = with_texts(returned) if isinstance(returned, (Retry, Bury)) else returned
        if not isinstance(outcome, (Ack, Retry, Bury)) and outcome is not CANCEL and outcome is not POSTPONED:
            raise TypeError(f"Middleware must return the outcome of handle(handling), not {repr_of(returned, 200)}")
        if isinstance(outcome, Ack) and read_step_id(job.delivery.message.id) is not None:
            # Its run has to hear that it is done, with the value and the added steps of its own ack if there is one.
            shown = seen[-1] if seen else None
            outcome = replace(shown if isinstance(shown, Ack) else StepEnd(), result=outcome.result)
        return End([outcome] * (count or 1), None if end is None else end.raised)

    def _call_inside(self, slot: Slot, job: WorkItem, seen: list[Any], handling: Handling) -> Outcome:
        """Call a function within the middleware, and return what that gets.

        Beside _await_inside(), because the steps of a generator, which a function of middleware cannot await, would
        take a fifth of the time of a message.
        """
        try:
            argument = job.delivery.message if self._is_single else self._argument(job)
            seen.append(self._judged(job, slot.call(self._call, argument, self.timeout)))
        except BaseException as error:  # noqa: BLE001 - middleware gets the outcome
            seen.append(self._failed(slot, job, error))
        return self._shown(job, seen, handling)

    @coroutine
    def _await_inside(self, slot: Slot, job: WorkItem, seen: list[Any], handling: Handling) -> Steps[Outcome]:
        """Await a coroutine function within the middleware, and return what that gets."""
        try:
            seen.append((yield from self._called(slot, job)))
        except BaseException as error:  # noqa: BLE001 - middleware gets the outcome
            seen.append(self._failed(slot, job, error))
        return self._shown(job, seen, handling)

    def _shown(self, job: WorkItem, seen: list[Any], handling: Handling) -> Outcome:
        """Return what middleware gets: the outcome of the message, or one for all, and what was raised."""
        outcomes, handling.exception, failed = seen[-1]
        outcome: Outcome = worst_of(outcomes) if len(outcomes) > 1 else outcomes[0]
        if failed and len(outcomes) > 1:
            # It is called again at once, with halves of the messages.
            outcome = Retry(timedelta(0), getattr(outcome, "error", ""), getattr(outcome, "traceback", ""))
        elif outcome is not ACK:
            outcome = self.executor.decided(job.delivery, self.handler, outcome)
        seen.append(outcome)
        return outcome

    def _judged(self, job: WorkItem, returned: object) -> End:
        """Return the end of a call that has returned."""
        if processes.generation != self._generation:
            processes.end_child(self.handler.where, 0)
        if self.handler.batch:
            return End(outcomes_of(returned, len(job.together)))
        if returned is None or returned is ACK:
            return ACKED
        return End((outcome_of(returned, keeps_result=self.handler.keeps_result),))

    def _failed(self, slot: Slot, job: WorkItem, error: BaseException) -> End:
        """Return the end of a call that has raised."""
        if processes.generation != self._generation:
            processes.end_child(self.handler.where, 1)
        outcome = self.executor.judge_error(job.delivery, self.handler, error, is_cancelled=slot.cancelled)
        is_outcome = is_a(error, Retry) or is_a(error, Bury)
        raised = None if is_outcome or isinstance(outcome, HandBack) else error
        # A call with a wrong return value would return it again, with whatever messages.
        failed = not is_outcome and not is_a(error, InvalidOutcomes)
        return End([outcome] * (len(job.together) or 1), raised, failed)

    @coroutine
    def _with_databases(self, do: Callable[[], T]) -> Steps[T]:
        """Do something where the database connections of the handler are."""
        return (yield from sync_to_async(do)()) if self.on_loop else do()

    @coroutine
    def _cleaned_up(self, slot: Slot, job: WorkItem, end: End, rollbacks: int) -> Steps[End]:
        """Roll back what a handler has left open, and return its end, which is no ack then: its changes are lost.

        Coroutines share the connection. If another one may have left it open, or another's clean-up has rolled it back,
        each message runs again alone, which shows the cause.
        """
        databases, where = slot.databases, self.handler.where
        what = f"{len(job.together)} messages" if job.together else f"message {job.delivery.message.id}"
        # Read first: coroutines beside it may end during the clean-up.
        is_alone = slot.is_alone()
        try:
            left = yield from self._with_databases(databases.clean_up)
        except BaseException as error:  # noqa: BLE001 - a handler may have cancelled its own task
            end, left = self._failed(slot, job, error), ""
        if left and is_alone:
            logger.error("Handler %s left %s, which was rolled back (%s)", where, left, what)
            if any(isinstance(each, Ack) for each in end.outcomes):
                retry = Retry(error=f"The handler left {left}; it was rolled back")
                end = End([retry] * len(end.outcomes), None, failed=True)
        elif databases.rollbacks != rollbacks:
            text = (
                "A transaction that handler %s, or one beside it, left open was rolled back: each runs again alone (%s)"
            )
            logger.error(text, where, what)
            outcomes = [HandBack(suspect=True) if isinstance(each, Ack) else each for each in end.outcomes]
            end = end._replace(outcomes=outcomes)
        return end


class PlainPath(CallPath):
    """How messages are handled whose handler is a function, without middleware and `@exactly_once`.

    It takes the same steps as CallPath, which has the comments, in less time: the steps of a message that is handled as
    usual are in one function. For all else it takes the steps of CallPath.
    """

    def run_in_thread(self, slot: Slot, job: WorkItem) -> None:
        """See CallPath.run_in_thread()."""
        delivery, state, number, cancels = job.delivery, self._state, self._number, self.executor.cancels
        message, stream, entry, started = delivery.message, delivery.stream, delivery.entry, time.monotonic()
        if (
            not state.begin(slot.number, number, stream, entry, started, started + self._limit, delivery.read_at)
            or message.expires_ms is not None
            or (cancels is not None and cancels.any)
            or handler_started.receivers
            or handler_finished.receivers
        ):
            super().run_in_thread(slot, job)
            return
        running.set(handler_run := HandlerRun(delivery, self._opened))
        databases = slot.databases
        rollbacks = databases.rollbacks
        try:
            if databases.held and started - databases.checked > CONNECTION_CHECK:
                databases.refresh()
            returned = slot.call(self._call, message, self.timeout)
            is_acked = (returned is None or returned is ACK) and processes.generation == self._generation
            end = ACKED if is_acked else self._judged(job, returned)
        except BaseException as error:  # noqa: BLE001 - not even SystemExit ends the slot: it is the delivery's outcome
            end = self._failed(slot, job, error)
        seconds = time.monotonic() - started
        # First: a thread that the handler has left may report until then.
        handler_run.is_over = True
        if (
            end is not ACKED
            or handler_run.report is not None
            or (databases.held and (databases.rollbacks != rollbacks or databases.is_disturbed()))
        ):
            try:
                next(self._end_run(slot, job, handler_run, end, seconds, rollbacks, None), None)
            finally:
                end = ACKED
            return
        self.executor.finish_ack(delivery, seconds, keeps_result=self._keeps_result)
        if self._ended is not None:
            self._ended(message, ACK, seconds, None)


def path_of(handler: Handler, executor: Executor) -> CallPath:
    """Return how the messages of a handler that gets one with a call are handled in a queue."""
    is_plain = not handler.on_loop and handler.once is None and executor.chains.get(False) is None
    return PlainPath(handler, executor) if is_plain else CallPath(handler, executor)
