"""Judge what a handler has left behind, and tell a task's handler how its message has ended."""

from mq_django.core.exceptions import path_of
from mq_django.core.logs import get_logger
from mq_django.core.messages import Delivery
from mq_django.core.outcomes import Ack, HandBack, Outcome, Retry
from mq_django.core.reports import ReportSlot
from mq_django.registry import Handler

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
