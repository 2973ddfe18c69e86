"""Run one delivery, and decide its outcome."""

import time

from asgiref.sync import sync_to_async

from mq_django import registry
from mq_django.conf import QueueConfig
from mq_django.consumers.database_pools import pool_hint
from mq_django.consumers.decisions import decide, settled_as
from mq_django.consumers.settlements import send
from mq_django.consumers.shared_state import FAILED, HANDLED, RETURNED, Receipt
from mq_django.consumers.worker import lanes
from mq_django.consumers.worker.admission import Admission, Cancels
from mq_django.consumers.worker.databases import CONNECTION_CHECK
from mq_django.consumers.worker.lanes import LoopLane, RunningState, ThreadLane
from mq_django.consumers.worker.once_call import once_call
from mq_django.consumers.worker.settler import Settler
from mq_django.core.exactly_once import Postponed
from mq_django.core.logs import get_logger
from mq_django.core.messages import Delivery
from mq_django.core.outcomes import ACK, CANCEL, POSTPONED, Ack, Bury, HandBack, Outcome, Retry, outcome_of, with_texts
from mq_django.core.running_handler import ReportSlot, running
from mq_django.core.texts import is_a, path_of, repr_of, summary_of, traceback_of
from mq_django.middleware import AsyncHandle, Handle, Handling, async_handling_chain, handling_chain
from mq_django.registry import Handler
from mq_django.signals import handler_finished
from mq_django.stores.base import Settlement

# Judge what a handler has left behind, and tell a task's handler how its message has ended.

logger = get_logger(__name__)


def judge_left(slot: ReportSlot, handler: Handler, outcome: Outcome, left: str) -> Outcome:
    """Return the outcome of a handler that has left a transaction open, and log that.

    Its changes were rolled back. If the message were acked, they would be lost.
    """
    if not left:
        return outcome
    slot.is_undone, message = True, slot.delivery.message
    logger.error("Handler %s left %s, which was rolled back (message %s)", handler.where, left, message.id)
    return Retry(error=f"The handler left {left}; it was rolled back") if isinstance(outcome, Ack) else outcome


def judge_shared_rollback(slot: ReportSlot, handler: Handler, outcome: Outcome) -> Outcome:
    """Return the outcome of a coroutine during which an open transaction was rolled back, its own or another's.

    Coroutines share the connection, so its own changes may be lost. It runs again alone, which shows the cause.
    """
    text = "A transaction that handler %s, or one beside it, left open was rolled back: message %s runs again alone"
    slot.is_undone = True
    logger.error(text, handler.where, slot.delivery.message.id)
    return HandBack(suspect=True) if isinstance(outcome, Ack) else outcome


def retry_invalid(delivery: Delivery, handler: Handler, error: BaseException) -> Retry:
    """Return the outcome of a handler whose return value or exception cannot be used, and log that."""
    text = "Invalid return value or exception of handler %s for message %s: the message will be retried"
    logger.error(text, handler.where, delivery.message.id, exc_info=error)
    return Retry(error=f"{path_of(type(error))} while its outcome was settled")


def notify(
    delivery: Delivery,
    handler: Handler,
    outcome: Outcome,
    seconds: float = 0.0,
    raised: BaseException | None = None,
) -> None:
    """Tell a task's handler how its message has ended."""
    if handler.ended is not None:
        handler.ended(delivery.message, outcome, seconds, raised)


async def anotify(
    delivery: Delivery,
    handler: Handler,
    outcome: Outcome,
    seconds: float = 0.0,
    raised: BaseException | None = None,
) -> None:
    """Tell a task's handler how its message has ended, on an event loop."""
    if handler.aended is not None:
        await handler.aended(delivery.message, outcome, seconds, raised)


# Run one delivery, and decide its outcome.

#: Makes a named tuple in half the time that its own constructor takes.
_new = tuple.__new__


def shown(error: BaseException) -> BaseException | None:
    """Return what a handler has raised, for logs and signals; None if that is an outcome, which it may also return."""
    return None if is_a(error, Retry) or is_a(error, Bury) else error


class Executor:
    """Runs the deliveries of one queue, and passes their outcomes to its settler.

    The steps are the same in a thread and on an event loop: admit, prepare, call, judge, clean up, settle. Whatever a
    handler does, raises or returns, its delivery gets exactly one outcome.
    """

    def __init__(
        self,
        config: QueueConfig,
        number: int,
        shared_state: RunningState,
        settler: Settler,
        cancels: Cancels | None = None,
    ) -> None:
        self.config = config
        self._queue = config.public_name
        self.admission = Admission(config, number, shared_state, settler, cancels)
        #: The number of the queue in this process.
        self.number = number
        self._shared_state = shared_state
        self.settler = settler
        self.reports = settler.reports
        self._open_report = settler.reports.opened
        self._default_timeout = config.timeout.total_seconds() if config.timeout else None
        self.generation = lanes.generation
        kinds = registry.kinds(config.public_name)
        self.handle = handling_chain() if False in kinds else None
        self.ahandle = async_handling_chain() if True in kinds else None

    def run(self, lane: ThreadLane, delivery: Delivery, handler: Handler) -> None:
        """Run a delivery in this thread."""
        lane.cancelled = False
        timeout = self._default_timeout if handler.timeout is None else self.timeout(handler)
        if handler.once is not None:
            handler = once_call(handler, delivery, self.config)
        started = self.admission.admit(lane.number, delivery, handler, timeout)
        if not isinstance(started, float):
            if handler.ended is not None:
                handler.ended(delivery.message, started, 0.0, None)
            return
        slot = ReportSlot(delivery, self._open_report)
        running.set(slot)
        databases = lane.databases
        if databases.held and started - databases.checked > CONNECTION_CHECK:
            databases.refresh()
        raised: BaseException | None = None
        try:
            if self.handle is None:
                outcome = self._judge(handler, lane.call(handler, delivery.message, timeout))
            else:
                outcome, raised = self._run_in_middleware(self.handle, lane, delivery, handler, timeout)
        except BaseException as error:  # noqa: BLE001 - SystemExit in a handler must not end the lane
            outcome = self.judge_error(lane, delivery, handler, error)
            raised = None if isinstance(outcome, HandBack) else shown(error)
        seconds = time.monotonic() - started
        if databases.held and databases.is_disturbed():
            outcome = judge_left(slot, handler, outcome, databases.clean_up())
        slot.is_over = True
        if slot.report is not None:
            self.reports.end(slot, outcome)
        outcome = self.settle_ended(delivery, handler, outcome, seconds, raised)
        if handler.ended is not None:
            handler.ended(delivery.message, outcome, seconds, raised)
        # Its traceback refers to this frame.
        raised = None

    async def run_coroutine(self, lane: LoopLane, delivery: Delivery, handler: Handler) -> None:
        """Run a delivery on this event loop."""
        lane.cancelled, timeout = False, self.timeout(handler)
        started = self.admission.admit(lane.number, delivery, handler, timeout)
        if not isinstance(started, float):
            await anotify(delivery, handler, started)
            return
        slot = ReportSlot(delivery, self._open_report)
        running.set(slot)
        databases = lane.databases
        rollbacks, raised = databases.rollbacks, None
        try:
            if databases.held and started - databases.checked > CONNECTION_CHECK:
                await sync_to_async(databases.refresh)()
            if self.ahandle is None:
                outcome = self._judge(handler, await lane.call(handler, delivery.message, timeout))
            else:
                outcome, raised = await self._arun_in_middleware(self.ahandle, lane, delivery, handler, timeout)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is the delivery's outcome
            outcome = self.judge_error(lane, delivery, handler, error)
            raised = None if isinstance(outcome, HandBack) else shown(error)
        seconds = time.monotonic() - started
        if databases.held and databases.is_disturbed():
            # Read first: coroutines beside it may end during the clean-up.
            is_alone = lane.is_alone()
            try:
                left = await sync_to_async(databases.clean_up)()
                if left and is_alone:
                    rollbacks, outcome = databases.rollbacks, judge_left(slot, handler, outcome, left)
            except BaseException as error:  # noqa: BLE001 - a handler may have cancelled its own task
                outcome = self.judge_error(lane, delivery, handler, error)
        if databases.rollbacks != rollbacks:
            outcome = judge_shared_rollback(slot, handler, outcome)
        slot.is_over = True
        if slot.report is not None:
            self.reports.end(slot, outcome)
        outcome = self.settle_ended(delivery, handler, outcome, seconds, raised)
        await anotify(delivery, handler, outcome, seconds, raised)
        raised = None

    def overdue(self, lane: int, delivery: Delivery, *, since: float) -> None:
        """Mark what a lane runs as past its deadline, so that the supervisor replaces the process."""
        self._shared_state.run(lane, self.number, delivery.stream, delivery.entry, since, time.monotonic())

    def receipt(self, delivery: Delivery) -> Receipt:
        """Return the receipt of a delivery in the shared state."""
        return Receipt.of(self.number, delivery.stream, delivery.entry)

    def receipts(self, delivery: Delivery) -> list[Receipt]:
        """Return the receipt of a delivery in a list."""
        return [self.receipt(delivery)]

    def settle(self, settlement: Settlement) -> None:
        """Pass on the outcome of a delivery that did not run."""
        self.settler.add(settlement)

    def hand_back(self, delivery: Delivery) -> None:
        """Hand back a delivery that has not started."""
        self.settler.add(Settlement(delivery, HandBack()))

    def rescue(self, delivery: Delivery, handler: Handler, error: BaseException) -> None:
        """Have a delivery retried, or buried after its last attempt: see DeliveryRunner."""
        outcome = self.decided(delivery, handler, retry_invalid(delivery, handler, error))
        self.settle(settled_as(delivery, outcome, handler))

    def _run_in_middleware(
        self, handle: Handle, lane: ThreadLane, delivery: Delivery, handler: Handler, timeout: float | None
    ) -> tuple[Outcome, BaseException | None]:
        """Run a handler within the middleware; return its outcome and its exception."""

        def run(handling: Handling) -> Outcome:
            try:
                outcome = self._judge(handler, lane.call(handler, delivery.message, timeout))
            except BaseException as error:  # noqa: BLE001 - middleware gets the outcome
                outcome = self.judge_error(lane, delivery, handler, error)
                handling.exception = None if isinstance(outcome, HandBack) else shown(error)
            return self.decided(delivery, handler, outcome)

        handling = Handling(self._queue, delivery.message, handler.where, run)
        return self._judge_middleware(handler, handling, handle(handling))

    async def _arun_in_middleware(
        self, handle: AsyncHandle, lane: LoopLane, delivery: Delivery, handler: Handler, timeout: float | None
    ) -> tuple[Outcome, BaseException | None]:
        """Run a coroutine function within the middleware; return its outcome and its exception."""

        async def run(handling: Handling) -> Outcome:
            try:
                outcome = self._judge(handler, await lane.call(handler, delivery.message, timeout))
            except BaseException as error:  # noqa: BLE001 - middleware gets the outcome
                outcome = self.judge_error(lane, delivery, handler, error)
                handling.exception = None if isinstance(outcome, HandBack) else shown(error)
            return self.decided(delivery, handler, outcome)

        handling = Handling(self._queue, delivery.message, handler.where, run)
        return self._judge_middleware(handler, handling, await handle(handling))

    def _judge_middleware(
        self, handler: Handler, handling: Handling, returned: object
    ) -> tuple[Outcome, BaseException | None]:
        # Cleared, because its traceback refers to frames that refer to the handling.
        raised, handling.exception = handling.exception, None
        if returned is CANCEL:
            return CANCEL, raised
        if isinstance(returned, HandBack) and (returned is POSTPONED or self.reports.stopping.is_set()):
            return returned, None
        if not isinstance(returned, Ack | Retry | Bury):
            raise TypeError(f"Middleware must return the outcome of handle(handling), not {repr_of(returned, 200)}")
        return self._judge(handler, returned), raised

    def timeout(self, handler: Handler) -> float | None:
        """Return the seconds that a call of a handler may take; None: any time."""
        return handler.timeout.total_seconds() if handler.timeout else self._default_timeout

    def _judge(self, handler: Handler, returned: object) -> Outcome:
        if lanes.generation != self.generation:
            lanes.end_child(handler.where, 0)
        # A task's call returns an outcome.
        return ACK if returned is None or returned is ACK else outcome_of(returned, keeps_result=handler.keeps_result)

    def judge_error(
        self, lane: ThreadLane | LoopLane, delivery: Delivery, handler: Handler, error: BaseException
    ) -> Outcome:
        """Return the outcome of a handler that has raised."""
        if lanes.generation != self.generation:
            lanes.end_child(handler.where, 1)
        if lane.cancelled:
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
        return Bury(text, trace) if buries else Retry(error=text, traceback=trace)

    def decided(self, delivery: Delivery, handler: Handler, outcome: Outcome) -> Outcome:
        """Return the final outcome: a Retry without attempts left becomes a Bury, any other gets its delay."""
        if not isinstance(outcome, Retry):
            return outcome
        try:
            return decide(self.config, delivery.message, handler, outcome)
        except BaseException as error:  # noqa: BLE001 - a project may extend RetryPolicy
            # By the queue's policy, because the handler's may be the cause.
            return decide(self.config, delivery.message, None, retry_invalid(delivery, handler, error))

    def settle_ended(
        self,
        delivery: Delivery,
        handler: Handler,
        outcome: Outcome,
        seconds: float,
        raised: BaseException | None,
        *,
        together: int = 1,
    ) -> Outcome:
        """Pass an outcome to the settler, and return its final form. `together`: how many messages the call had."""
        message, micros = delivery.message, int(seconds * 1e6)
        if isinstance(outcome, Ack):
            state = HANDLED if type(outcome) is Ack else RETURNED
            self._shared_state.ended(state, self.number, delivery.stream, delivery.entry)
            values = (delivery, outcome, 0, micros, handler.keeps_result, False, False, together)
            self.settler.add(_new(Settlement, values))
        elif isinstance(outcome, HandBack) and not outcome.suspect:
            # Interrupted at a stop: it has neither failed nor ended.
            self.settler.add(Settlement(delivery, outcome))
        else:
            outcome = self.decided(delivery, handler, outcome)
            if outcome is CANCEL:
                logger.info("Handler %s was cancelled: message %s", handler.where, message.id)
            self._shared_state.ended(FAILED, self.number, delivery.stream, delivery.entry)
            self.settler.add(settled_as(delivery, outcome, handler, micros=micros, exception=raised))
        if handler_finished.receivers:
            send(handler_finished, queue=message.queue, message=message, outcome=outcome, seconds=seconds)
        return outcome
