"""Send the signals of settled deliveries, and settle for a dead consumer."""

import logging
from collections.abc import Container, Iterable, Sequence
from datetime import timedelta

from django.dispatch import Signal

from mq_django.core.ids import correlation_id_in
from mq_django.core.keys import CALLBACK_PREFIX
from mq_django.core.logs import get_logger
from mq_django.core.messages import CancelResult, Delivery, Message
from mq_django.core.outcomes import Bury, Cancel, Retry
from mq_django.registry import Handler, find
from mq_django.signals import handler_started, message_buried, message_cancelled, message_retried, send_signal
from mq_django.stores.base import Settlement, Store
from mq_django.stores.settling import message_id

logger = get_logger(__name__)


def send_signals(queue: str, settlements: Iterable[Settlement], stale: Container[str]) -> None:
    """Send the signals of retried, buried and cancelled messages, except of stale ones, which were no longer held."""
    for delivery, outcome, delay_ms, *_ in settlements:
        known_id = message_id(delivery)
        if known_id in stale or not isinstance(outcome, Retry | Bury | Cancel):
            continue
        message, error = delivery.message if isinstance(delivery, Delivery) else None, outcome.error
        if isinstance(outcome, Retry):
            delay = timedelta(milliseconds=delay_ms)
            send(message_retried, queue=queue, message_id=known_id, message=message, error=error, delay=delay)
        elif isinstance(outcome, Cancel):
            send(message_cancelled, CancelResult, queue=queue, message_id=known_id, error=error)
        else:
            reason = outcome.reason
            send(message_buried, queue=queue, message_id=known_id, message=message, error=error, reason=reason)


def announce(deliveries: Iterable[Delivery]) -> None:
    """Send the signal that a handler starts for each delivery."""
    if handler_started.receivers:
        for delivery in deliveries:
            send(handler_started, queue=delivery.message.queue, message=delivery.message)


def send(signal: Signal, sender: type = Handler, **arguments: object) -> None:
    """Send a signal, without a sender about a handler. Errors of receivers are logged, even SystemExit."""
    try:
        send_signal(signal, sender, **arguments)
    except BaseException:
        logger.exception("A receiver of a signal failed")


def settle_for(store: Store, consumer: str, settlements: Sequence[Settlement]) -> list[str]:
    """Settle for a consumer, with results and signals; return the ids of messages that it no longer held."""
    stale = store.settle(consumer, settlements)
    send_signals(store.config.public_name, settlements, stale)
    for delivery, outcome, *_ in settlements:
        if isinstance(delivery, Delivery) and isinstance(outcome, Bury) and delivery.message.id not in stale:
            handler = find(store.config.name, delivery.message.name)
            if handler is not None and handler.ended is not None:
                handler.ended(delivery.message, outcome, 0.0, None)
    return stale


# Log attempts that failed: a warning when the message will be retried, an error when it was buried.
#
# The callback of a run is what tells that something has failed: its first failed attempt is an error, too.


#: Characters of an error in a line.
MAX_ERROR = 300


def log_failure(
    message: Message,
    outcome: Retry | Bury,
    handler: Handler | None,
    *,
    delay_ms: int = 0,
    exception: BaseException | None = None,
) -> None:
    """Log a failed attempt, with the exception that the handler raised.

    The record has the attributes `queue`, `message_id`, `handler` and `attempt`, for error trackers and JSON logs, and
    `correlation_id` if the message has one. Error trackers also get `message_name`, and the `reason` of a burial.
    """
    if isinstance(outcome, Retry):
        is_callback = message.attempt == 1 and message.id.startswith(CALLBACK_PREFIX)
        level, what = logging.ERROR if is_callback else logging.WARNING, f"will be retried in {delay_ms / 1000:.1f} s"
    else:
        level, what = logging.ERROR, "will be buried"
    about = (message.id, message.name, message.queue, what, message.attempt, repr(str(outcome.error)[:MAX_ERROR]))
    text = "Message %s (%s) of queue %s %s after attempt %d: %s"
    extra: dict[str, str | int] = {
        "queue": message.queue,
        "message_id": message.id,
        "message_name": message.name,
        "handler": handler.where if handler else "",
        "attempt": message.attempt,
        "reason": outcome.reason if isinstance(outcome, Bury) else "",
    }
    if (correlation_id := correlation_id_in(message.headers)) is not None:
        extra["correlation_id"] = correlation_id
    logger.log(level, text, *about, exc_info=exception, extra=extra)
