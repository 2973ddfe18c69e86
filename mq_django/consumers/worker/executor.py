"""Run deliveries, and decide the outcome of each."""

import abc
import math
import time
from collections.abc import Callable, Generator, Sequence
from datetime import timedelta
from functools import partial
from types import coroutine
from typing import Any, NamedTuple, TypeVar

from asgiref.sync import sync_to_async

from mq_django import registry
from mq_django.conf import QueueConfig
from mq_django.consumers.decisions import decide, retry_invalid, settled_as
from mq_django.consumers.outage import pool_hint
from mq_django.consumers.settlements import announce, send
from mq_django.consumers.shared_state import FAILED, HANDLED, RETURNED, Receipt, SharedState
from mq_django.consumers.worker import slots
from mq_django.consumers.worker.cancels import Cancels
from mq_django.consumers.worker.databases import CONNECTION_CHECK, Databases
from mq_django.consumers.worker.once_call import OnceCall
from mq_django.consumers.worker.settler import Settler
from mq_django.core import clock
from mq_django.core.batches import BatchBisection, outcomes_of, worst_of
from mq_django.core.handler_options import Postponed
from mq_django.core.logs import get_logger
from mq_django.core.messages import Delivery
from mq_django.core.outcomes import (
    ACK,
    CANCEL,
    POSTPONED,
    Ack,
    Bury,
    Cancel,
    Expire,
    HandBack,
    Outcome,
    Retry,
    outcome_of,
    with_texts,
)
from mq_django.core.retries import retry_after
from mq_django.core.running_handler import HandlerRun, Report, running
from mq_django.core.texts import is_a, repr_of, summary_of, traceback_of
from mq_django.errors import InvalidOutcomes
from mq_django.middleware import Handling, handling_chain
from mq_django.registry import Handler
from mq_django.signals import handler_finished, handler_started
from mq_django.stores.base import Settlement
from mq_django.stores.results import EXPIRED

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


class Executor:
    """The facts of a queue that running its deliveries needs.

    Args:
        config: of the queue.
        number: of the queue in this process.
        shared_state: says what this consumer holds, and whether the queue is paused.
        settler: gets the outcomes.
        cancels: the messages that are to be cancelled; None: none are.
    """

    def __init__(
        self,
        config: QueueConfig,
        number: int,
        shared_state: SharedState,
        settler: Settler,
        cancels: Cancels | None = None,
    ) -> None:
        self.config = config
        self.number = number
        self.state = shared_state
        self.settler = settler
        self.cancels = cancels
        self.reports = settler.reports
        if settler.breakers is not None and cancels is not None:
            settler.breakers.changed = cancels.forget
        kinds = registry.kinds(config.public_name)
        #: Runs a handler within all middleware, by whether the handler runs on the event loop; empty without
        #: middleware.
        self.chains = {kind: handling_chain(is_async=kind) for kind in kinds}

    def may_run(self, read_at: float) -> bool:
        """Return whether all deliveries that were read at a time may run, as nearly always. If not, see refusal()."""
        return self.state.may_run(self.number, read_at) and (self.cancels is None or not self.cancels.any)

    def refusal(self, delivery: Delivery) -> Outcome | None:
        """Return the outcome of a delivery that must not run now, or None. It is in the shared state already."""
        message = delivery.message
        if not self.state.may_run(self.number, delivery.read_at):
            return HandBack()
        if self.cancels is not None and message.id in self.cancels.ids:
            is_asked = self.cancels.has(message.id)
            if is_asked is None:
                return HandBack()
            if is_asked:
                return Cancel("Cancelled before it started")
        if message.expires_ms is not None and clock.now() * 1000 > message.expires_ms:
            return Expire() if self.config.on_expire == "discard" else Bury(EXPIRED, reason="expired")
        return None if self.cancels is None else self.cancels.held(delivery)

    def hand_back(self, delivery: Delivery) -> None:
        """Hand back a delivery that has not started."""
        self.settler.add(Settlement(delivery, HandBack()))

    def receipt(self, delivery: Delivery) -> Receipt:
        """Return the receipt of a delivery in the shared state."""
        return Receipt.of(self.number, delivery.stream, delivery.entry)

    def judge_error(self, slot: Slot, delivery: Delivery, handler: Handler, error: BaseException) -> Outcome:
        """Return the outcome of a handler that has raised."""
        if slot.cancelled:
            # Also if the interrupt has become another error on its way.
            return CANCEL
        if is_a(error, Postponed) or self.reports.is_interrupt(error):
            return POSTPONED
        if is_a(error, Retry) or is_a(error, Bury):
            return with_texts(error)
        policy = handler.retry or self.config.retry
        try:
            # The class decides, before any text is made.
            buries = issubclass(type(error), tuple(policy.bury_on))
        except BaseException as second:  # noqa: BLE001 - a project may extend RetryPolicy
            return retry_invalid(delivery, handler, second)
        text, trace = summary_of(error) + pool_hint(error), traceback_of(error)
        return Bury(text, trace) if buries else Retry(retry_after(error), text, trace)

    def decided(self, delivery: Delivery, handler: Handler, outcome: Outcome) -> Outcome:
        """Return the final outcome: a Retry without attempts left becomes a Bury, any other gets its delay."""
        if not isinstance(outcome, Retry):
            return outcome
        try:
            return decide(self.config, delivery.message, handler, outcome)
        except BaseException as error:  # noqa: BLE001 - a project may extend RetryPolicy
            # By the queue's policy, because the handler's may be the cause.
            return decide(self.config, delivery.message, None, retry_invalid(delivery, handler, error))

    def finish(
        self,
        delivery: Delivery,
        handler: Handler,
        outcome: Outcome,
        seconds: float,
        raised: BaseException | None,
        *,
        together: int = 1,
        uncharged: bool = False,
    ) -> Outcome:
        """Pass the outcome of a delivery that has run to the settler, and return its final form.

        Args:
            delivery, handler, outcome: what has run, and how it has ended.
            seconds, raised: how long it ran, and what it has raised.
            together: how many messages the call had.
            uncharged: the outcome is a Retry that counts as no attempt, and is logged by the caller.
        """
        micros = int(seconds * 1e6)
        if isinstance(outcome, Ack):
            state = HANDLED if type(outcome) is Ack else RETURNED
            self.state.ended(state, self.number, delivery.stream, delivery.entry)
            values = (delivery, outcome, 0, micros, handler.keeps_result, False, False, together, None)
            self.settler.add(_new(Settlement, values))
        elif isinstance(outcome, HandBack) and not outcome.suspect:
            # Interrupted at a stop: it has neither failed nor ended.
            self.settler.add(Settlement(delivery, outcome))
        elif uncharged:
            assert isinstance(outcome, Retry)
            assert isinstance(outcome.delay, timedelta)
            delay_ms = round(outcome.delay.total_seconds() * 1000)
            failure = self.settler.counted_failure(delivery, handler, outcome, raised)
            self.settler.add(Settlement(delivery, outcome, delay_ms, micros, uncharged=True, failure=failure))
        else:
            failure = self.settler.counted_failure(delivery, handler, outcome, raised)
            outcome = self.decided(delivery, handler, outcome)
            if outcome is CANCEL:
                logger.info("Handler %s was cancelled: message %s", handler.where, delivery.message.id)
            if failure:
                self.state.ended(RETURNED, self.number, delivery.stream, delivery.entry)
                self.settler.add(Settlement(delivery, outcome, micros=micros, failure=failure))
                return Retry(error=failure.error)
            self.state.ended(FAILED, self.number, delivery.stream, delivery.entry)
            self.settler.add(settled_as(delivery, outcome, handler, micros=micros, exception=raised))
        if handler_finished.receivers:
            message = delivery.message
            send(handler_finished, queue=message.queue, message=message, outcome=outcome, seconds=seconds)
        return outcome

    def finish_acks(self, row: int, deliveries: Sequence[Delivery], seconds: float) -> None:
        """Pass on that all messages of a call are handled, each with its share of the seconds.

        If there are several, the row of the shared state has their receipts.
        """
        micros, together = int(seconds * 1e6), len(deliveries)
        if together > 1:
            self.state.batch_handled(row, together)
        else:
            self.state.ended(HANDLED, self.number, deliveries[0].stream, deliveries[0].entry)
        self.settler.add_all(
            [_new(Settlement, (each, ACK, 0, micros, False, False, False, together, None)) for each in deliveries]
        )
        if handler_finished.receivers:
            for each in deliveries:
                send(handler_finished, queue=each.message.queue, message=each.message, outcome=ACK, seconds=seconds)


class End(NamedTuple):
    """How a call has ended: with an outcome for each of its messages."""

    outcomes: Sequence[Outcome]
    #: The exception of the handler, unless it is an outcome.
    raised: BaseException | None = None
    #: The call has failed as a whole: only some of its messages may be the cause.
    failed: bool = False


_ACKED = End((ACK,))


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
        self._state, self._number, self._finish = executor.state, executor.number, executor.finish
        self._queue = executor.config.public_name
        self._handle = executor.chains.get(handler.on_loop)
        #: Nothing is between a message and its handler: most are so, and have their call in run().
        self._is_single = not handler.batch and handler.once is None
        self._is_plain = self._is_single and self._handle is None
        self._ended: Callable[..., Any] | None = handler.aended if handler.on_loop else handler.ended
        self._opened: Callable[[HandlerRun], Report] = executor.reports.opened
        self._generation = slots.generation

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
            if self._is_plain:
                called = slot.call(self._call, delivery.message, self.timeout)
                returned = (yield from called) if self.on_loop else called
                is_acked = (returned is None or returned is ACK) and slots.generation == self._generation
                end = _ACKED if is_acked else self._judged(job, returned)
            else:
                end = yield from self._called(slot, job) if self._handle is None else self._in_middleware(slot, job)
        except BaseException as error:  # noqa: BLE001 - not even SystemExit ends the slot: it is the delivery's outcome
            end = self._failed(slot, job, error)
        seconds = time.monotonic() - started
        if databases.held and (databases.rollbacks != rollbacks or databases.is_disturbed()):
            end = yield from self._cleaned_up(slot, job, end, rollbacks)
            handler_run.is_undone = databases.rollbacks != rollbacks
        handler_run.is_over = True
        if handler_run.report is not None and self.executor.reports.end(handler_run, end.outcomes[0]):
            # It goes before HANDLED, which is noted below: see ResultRing.read().
            self._state.ended(RETURNED, self._number, delivery.stream, delivery.entry)
        try:
            if plan is not None:
                return Called(job, end, seconds)
            outcome = self._finish(delivery, self.handler, end.outcomes[0], seconds, end.raised)
            if self._ended and (notified := self._ended(delivery.message, outcome, seconds, end.raised)) is not None:
                yield from notified
            return None
        finally:
            # The traceback of what was raised refers to this frame.
            end = _ACKED

    def _begin(self, slot: Slot, job: WorkItem, started: float, _: BatchBisection[Member, Any] | None) -> bool:
        """Note what a slot runs, and return whether it may run; if not, see _refuse()."""
        delivery, state, number, cancels = job.delivery, self._state, self._number, self.executor.cancels
        # Noted before it is checked whether this consumer holds it: the supervisor sets until when it does, then hands
        # back what a suspended process has not noted. What is not held another consumer may have. may_run() reads the
        # clock again, because this thread may have been suspended meanwhile. A hand-back is fenced.
        state.run(slot.number, number, delivery.stream, delivery.entry, started, started + self._limit)
        if (
            not state.may_run(number, delivery.read_at)
            or delivery.message.expires_ms is not None
            or (cancels is not None and cancels.any)
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
            return self._of_middleware(returned, seen, len(messages))
        finally:
            # A traceback refers to frames that refer to these.
            handling.exception = None
            seen.clear()

    @staticmethod
    def _of_middleware(returned: object, seen: Sequence[Any], count: int) -> End:
        """Return the end of a call by what middleware has returned; `count`: the messages of a batch."""
        end: End | None = seen[-2] if seen else None
        if end is not None and returned is seen[-1] and (count or end is _ACKED):
            return end
        outcome = with_texts(returned) if isinstance(returned, (Retry, Bury)) else returned
        if not isinstance(outcome, (Ack, Retry, Bury)) and outcome is not CANCEL and outcome is not POSTPONED:
            raise TypeError(f"Middleware must return the outcome of handle(handling), not {repr_of(returned, 200)}")
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
        if slots.generation != self._generation:
            slots.end_child(self.handler.where, 0)
        if self.handler.batch:
            return End(outcomes_of(returned, len(job.together)))
        if returned is None or returned is ACK:
            return _ACKED
        return End((outcome_of(returned, keeps_result=self.handler.keeps_result),))

    def _failed(self, slot: Slot, job: WorkItem, error: BaseException) -> End:
        """Return the end of a call that has raised."""
        if slots.generation != self._generation:
            slots.end_child(self.handler.where, 1)
        outcome = self.executor.judge_error(slot, job.delivery, self.handler, error)
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
