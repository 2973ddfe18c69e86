"""Signal what deliveries came to, and settle for a consumer that no longer does so itself."""

from collections.abc import Container, Iterable, Sequence
from datetime import timedelta

from django.dispatch import Signal

from mq_django.core.logs import get_logger
from mq_django.core.messages import Delivery
from mq_django.core.outcomes import Bury, Retry
from mq_django.registry import Handler, find
from mq_django.signals import message_buried, message_retried
from mq_django.stores.base import Settlement, Store
from mq_django.stores.counters import add_command, tally
from mq_django.stores.results import settled_commands
from mq_django.stores.settling import message_id

logger = get_logger(__name__)


def send_signals(queue: str, settlements: Iterable[Settlement], stale: Container[str]) -> None:
    """Send the signals of what is tried again or buried, but for those that the consumer no longer held."""
    for delivery, outcome, delay_ms, *_ in settlements:
        known = message_id(delivery)
        if known in stale or not isinstance(outcome, Retry | Bury):
            continue
        message, error = delivery.message if isinstance(delivery, Delivery) else None, outcome.error
        if isinstance(outcome, Retry):
            delay = timedelta(milliseconds=delay_ms)
            send(message_retried, queue=queue, message_id=known, message=message, error=error, delay=delay)
        else:
            reason = outcome.reason
            send(message_buried, queue=queue, message_id=known, message=message, error=error, reason=reason)


def send(signal: Signal, **arguments: object) -> None:
    """Send a signal about a handler. An error of a receiver is logged, also SystemExit."""
    try:
        signal.send_robust(Handler, **arguments)
    except BaseException:
        logger.exception("A receiver of a signal failed")


def settle_for(store: Store, consumer: str, settlements: Sequence[Settlement]) -> list[str]:
    """Settle what a consumer held, with results, counts and signals; return the ids of what it no longer held."""
    stale = store.settle(consumer, settlements, also=settled_commands(store.config, consumer, settlements))
    send_signals(store.config.name, settlements, stale)
    still_held = [settlement for settlement in settlements if message_id(settlement.delivery) not in stale]
    for delivery, outcome, *_ in still_held:
        if isinstance(delivery, Delivery) and isinstance(outcome, Bury):
            handler = find(store.config.name, delivery.message.name)
            if handler is not None and handler.ended is not None:
                handler.ended(delivery.message, outcome, 0.0, None)
    # Counted afterwards: what cannot be settled is found again and again.
    counts = tally(still_held)
    if counts:
        store.settle(consumer, (), also=[add_command(store.keys, counts)])
    return stale
