"""Tell a task's handler how its message has ended."""

from mq_django.core.messages import Delivery
from mq_django.core.outcomes import Outcome
from mq_django.registry import Handler


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
    """Call what is registered for the end of an attempt, on this event loop."""
    if handler.aended is not None:
        await handler.aended(delivery.message, outcome, seconds, raised)
