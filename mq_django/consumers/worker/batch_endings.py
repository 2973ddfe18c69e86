"""How the call of a handler with a batch has ended."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import NamedTuple, NoReturn

from mq_django.consumers.settlements import send
from mq_django.consumers.shared_state import HANDLED
from mq_django.consumers.worker import lanes
from mq_django.consumers.worker.executor import Executor
from mq_django.consumers.worker.lanes import LoopLane, RunningState, ThreadLane
from mq_django.core.batches import outcomes_of, worst_of
from mq_django.core.logs import get_logger
from mq_django.core.messages import Delivery, Message
from mq_django.core.outcomes import ACK, Ack, Bury, HandBack, Outcome, Retry
from mq_django.core.running_handler import ReportSlot, running
from mq_django.core.texts import is_a, repr_of, summary_of, traceback_of
from mq_django.errors import NotInHandler
from mq_django.middleware import Handling
from mq_django.registry import Handler
from mq_django.signals import handler_finished
from mq_django.stores.base import Settlement

logger = get_logger(__name__)

#: Makes a named tuple in half the time that its own constructor takes.
_new = tuple.__new__


#: A message of a batch, and the executor of its queue or partition: a plain tuple, because many are made.
Member = tuple[Delivery, Executor]


class BatchEnd(NamedTuple):
    """How a call has ended: with an outcome for each message, or with a failure that may concern only some of them."""

    outcomes: Sequence[Outcome] | None
    failure: Outcome | None = None
    raised: BaseException | None = None


class Failed(NamedTuple):
    """The failure of the last call that had a message."""

    outcome: Outcome
    raised: BaseException | None
    seconds: float


def judge_batch(executor: Executor, handler: Handler, returned: object, count: int) -> BatchEnd:
    """Return the end of a call that has returned."""
    if lanes.generation != executor.generation:
        lanes.end_child(handler.where, 0)
    try:
        return BatchEnd(outcomes_of(returned, count))
    except Exception as error:
        # Every call would return it again, so it is not called with halves.
        logger.exception("Invalid return value of handler %s: %d messages will be retried", handler.where, count)
        return BatchEnd([Retry(error=summary_of(error), traceback=traceback_of(error))] * count, None, error)


def judge_batch_error(
    executor: Executor,
    lane: ThreadLane | LoopLane,
    delivery: Delivery,
    handler: Handler,
    error: BaseException,
    count: int,
) -> BatchEnd:
    """Return the end of a call that has raised. `delivery`: the first of the `count` messages."""
    if is_a(error, Retry) or is_a(error, Bury):
        return judge_batch(executor, handler, error, count)
    return BatchEnd(None, executor.judge_error(lane, delivery, handler, error), error)


def judge_left_by_batch(end: BatchEnd, handler: Handler, left: str, count: int) -> BatchEnd:
    """Return the end of a call that has left a transaction open, and log that: it counts as one that has raised."""
    if not left:
        return end
    logger.error("Handler %s left %s, which was rolled back (%d messages)", handler.where, left, count)
    if end.outcomes is None:
        return end
    return BatchEnd(None, Retry(error=f"The handler left {left}; it was rolled back"), None)


def judge_shared_by_batch(end: BatchEnd, handler: Handler, count: int) -> BatchEnd:
    """Return the end of a coroutine during which an open transaction was rolled back, its own or another's.

    Coroutines share the connection, so its own changes may be lost. Its messages run again alone.
    """
    text = "A transaction that handler %s, or one beside it, left open was rolled back: %d messages run again alone"
    logger.error(text, handler.where, count)
    if end.outcomes is None:
        return end
    outcomes = [HandBack(suspect=True) if isinstance(each, Ack) else each for each in end.outcomes]
    return end._replace(outcomes=outcomes)


def settle_acks(
    executor: Executor, state: RunningState, row: int, deliveries: Sequence[Delivery], seconds: float
) -> None:
    """Pass on that the messages of a call are handled, each with its share of the seconds.

    If there are several, the row has their receipts.
    """
    micros, together = int(seconds * 1e6), len(deliveries)
    if together > 1:
        state.batch_handled(row, together)
    else:
        state.ended(HANDLED, executor.number, deliveries[0].stream, deliveries[0].entry)
    executor.settler.add_all(
        [_new(Settlement, (each, ACK, 0, micros, False, False, False, together)) for each in deliveries]
    )
    if handler_finished.receivers:
        for each in deliveries:
            send(handler_finished, queue=each.message.queue, message=each.message, outcome=ACK, seconds=seconds)


def settle_uncharged(member: Member, retry: Retry, seconds: float) -> None:
    """Have a message retried without charging an attempt."""
    assert isinstance(retry.delay, timedelta)
    delivery, executor = member
    message, delay_ms = delivery.message, round(retry.delay.total_seconds() * 1000)
    executor.settle(Settlement(delivery, retry, delay_ms, int(seconds * 1e6), uncharged=True))
    if handler_finished.receivers:
        send(handler_finished, queue=message.queue, message=message, outcome=retry, seconds=seconds)


def log_split(handler: Handler, group: Sequence[Member], end: BatchEnd) -> None:
    """Log that a handler is called again with halves of its messages."""
    message = group[0][0].message
    logger.warning(
        "Handler %s failed for %d messages of queue %s, and is called again with halves of them: %r",
        *(handler.where, len(group), message.queue, str(getattr(end.failure, "error", ""))[:300]),
        extra={"queue": message.queue, "handler": handler.where, "messages": len(group)},
    )


def log_common(handler: Handler, group: Sequence[Member], failed: Failed) -> None:
    """Log that a handler has failed for all its messages."""
    message = group[0][0].message
    logger.error(
        "Handler %s failed for %d messages of queue %s, together and in parts: they are retried without a charge: %r",
        *(handler.where, len(group), message.queue, str(getattr(failed.outcome, "error", ""))[:300]),
        exc_info=failed.raised,
        extra={"queue": message.queue, "handler": handler.where, "messages": len(group)},
    )


def refuse_reports(delivery: Delivery) -> None:
    """Let `progress()` and `resumable()` fail in this context: they concern one message, and a call has several."""
    running.set(ReportSlot(delivery, _refuse))


def _refuse(_: ReportSlot) -> NoReturn:
    raise NotInHandler("A handler with batch= has several messages: it cannot report progress, and cannot resume")


class BatchHandling:
    """One call with a batch, for middleware.

    Middleware gets one outcome for the call. If it returns that, each message has its own; if it returns another one,
    that is the outcome of all.

    Args:
        executor: of the queue.
        handler: is called.
        first: the delivery of the first message.
        messages: of the call.
    """

    def __init__(self, executor: Executor, handler: Handler, first: Delivery, messages: list[Message]) -> None:
        self._executor = executor
        self._handler = handler
        self._first = first
        self._messages = messages
        self._end: BatchEnd | None = None
        #: What middleware gets.
        self._shown: Outcome | None = None
        self._handling: Handling | None = None

    def around(self, lane: ThreadLane, call: Callable[[], object]) -> Handling:
        """Return what middleware gets of a call in this thread."""

        def run(handling: Handling) -> Outcome:
            try:
                self._end = judge_batch(self._executor, self._handler, call(), len(self._messages))
            except BaseException as error:  # noqa: BLE001 - middleware gets the outcome
                self._end = self._failed(lane, error)
            return self._show(handling, self._end)

        return self._made(run)

    def around_coroutine(self, lane: LoopLane, call: Callable[[], Awaitable[object]]) -> Handling:
        """Return what middleware gets of a call on this event loop."""

        async def run(handling: Handling) -> Outcome:
            try:
                self._end = judge_batch(self._executor, self._handler, await call(), len(self._messages))
            except BaseException as error:  # noqa: BLE001 - middleware gets the outcome
                self._end = self._failed(lane, error)
            return self._show(handling, self._end)

        return self._made(run)

    def end_of(self, returned: object) -> BatchEnd:
        """Return the end of the call by what the middleware has returned."""
        if self._handling is not None:
            # Its traceback refers to frames that refer to the handling.
            self._handling.exception = None
        if self._end is not None and returned is self._shown:
            return self._end
        if not isinstance(returned, Ack | Retry | Bury):
            raise TypeError(f"Middleware must return the outcome of handle(handling), not {repr_of(returned, 200)}")
        return BatchEnd(
            outcomes_of(returned, len(self._messages)), None, None if self._end is None else self._end.raised
        )

    def _made(self, run: Callable[[Handling], object]) -> Handling:
        first = self._messages[0]
        self._handling = Handling(first.queue, first, self._handler.where, run, batch=tuple(self._messages))
        return self._handling

    def _failed(self, lane: ThreadLane | LoopLane, error: BaseException) -> BatchEnd:
        return judge_batch_error(self._executor, lane, self._first, self._handler, error, len(self._messages))

    def _show(self, handling: Handling, end: BatchEnd) -> Outcome:
        handling.exception = end.raised
        if end.outcomes is not None:
            shown = self._executor.decided(self._first, self._handler, worst_of(end.outcomes))
        elif len(self._messages) == 1:
            assert end.failure is not None
            shown = self._executor.decided(self._first, self._handler, end.failure)
        else:
            # It is called again at once, with halves of the messages.
            shown = Retry(timedelta(0), str(getattr(end.failure, "error", "")), getattr(end.failure, "traceback", ""))
        self._shown = shown
        return shown
