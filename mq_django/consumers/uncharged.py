"""Retry without charging an attempt: what fails for a common reason, and not because of one message."""

from datetime import timedelta

from mq_django.conf import QueueConfig
from mq_django.core.attempts import HISTORY_LENGTH, MAX_DATA, READY, read_history
from mq_django.core.messages import Delivery
from mq_django.core.outcomes import Outcome, Retry
from mq_django.registry import Handler


def may_retry_uncharged(config: QueueConfig, delivery: Delivery, handler: Handler) -> bool:
    """Return whether a message may be retried without a charge: as often as it has attempts, and at most ten times."""
    policy = handler.retry or config.retry
    most = min(policy.max_attempts or config.max_attempts, HISTORY_LENGTH)
    # Without a history it would not end.
    return len(delivery.data_text) <= MAX_DATA and _uncharged_before(delivery) < most


def uncharged_retry(config: QueueConfig, delivery: Delivery, handler: Handler, failure: Outcome) -> Retry:
    """Return the retry of a message without a charge. Its delay grows as if it were charged."""
    policy = handler.retry or config.retry
    milliseconds = policy.delay_ms(delivery.message.attempt + _uncharged_before(delivery))
    error, trace = str(getattr(failure, "error", "")), str(getattr(failure, "traceback", ""))
    return Retry(timedelta(milliseconds=milliseconds), error, trace)


def _uncharged_before(delivery: Delivery) -> int:
    """Return how often this attempt was repeated already: an uncharged one has the number of the next."""
    if not delivery.history:
        return 0
    history, number = read_history(delivery.history), delivery.message.attempt
    return sum(attempt.number == number and attempt.status == READY for attempt in history)
