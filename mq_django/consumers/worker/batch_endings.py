"""How the call of a handler with a batch has ended."""

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple, NoReturn

from mq_django.consumers.settlements import send
from mq_django.consumers.shared_state import HANDLED
from mq_django.consumers.worker import forks
from mq_django.consumers.worker.executor import Executor
from mq_django.consumers.worker.lanes import LoopLane, RunningState, ThreadLane
from mq_django.core.batch_outcomes import outcomes_of
from mq_django.core.exceptions import summary_of, traceback_of
from mq_django.core.logs import get_logger
from mq_django.core.messages import Delivery
from mq_django.core.outcomes import ACK, Ack, Bury, HandBack, Outcome, Retry
from mq_django.core.progress import running
from mq_django.core.reports import ReportSlot
from mq_django.errors import NotInHandler
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
    if forks.generation != executor.generation:
        forks.end_child(handler.where, 0)
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
    if isinstance(error, Retry | Bury):
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
