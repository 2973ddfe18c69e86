"""What becomes of a delivery that failed, was interrupted, or was held by somebody who is gone."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from mq_django.conf import QueueConfig
from mq_django.consumers.shared_state import HANDLED, Receipt
from mq_django.core.logs import get_logger
from mq_django.core.messages import Delivery, Message, Undecodable
from mq_django.core.outcomes import ACK, Bury, HandBack, Outcome, Retry
from mq_django.registry import Handler, find
from mq_django.stores.base import Settlement

logger = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known of a consumer's last moments."""

    #: How its latest deliveries ended, settled or not.
    results: Mapping[Receipt, int] = field(default_factory=dict)
    #: What it ran and had not ended.
    running: Collection[Receipt] = ()
    #: What of that was past its timeout.
    late: Collection[Receipt] = ()
    #: Nobody knows what was running: its machine is gone.
    lost: bool = False
    #: It ran one message at a time, and so whatever it held.
    alone: bool = False
    #: More may come to it: a process that a handler forked may hold its connections open.
    lingers: bool = False


def settlement(config: QueueConfig, number: int, item: Delivery | Undecodable, evidence: Evidence) -> Settlement:
    """Return how to settle what a consumer held, of queue `number` in its shared state, when it died or gave up.

    What was handled is acked. What ran with nothing beside it is charged an attempt, because it may be what killed the
    process, and runs alone the next time; what ran beside others is handed back to run alone, and charged when that
    ends a process as well. If something was late, that is why the process had to go. The rest is handed back.
    """
    if isinstance(item, Undecodable):
        return unusable(item)
    receipt = Receipt.of(number, item.home, item.entry)
    ended = evidence.results.get(receipt)
    if ended == HANDLED:
        return Settlement(item, ACK, keeps_result=_keeps_result(item))
    if ended is not None:
        return _charged(config, item, "failed, and its process died before that was settled", reason="attempts")
    if receipt in evidence.late:
        return _charged(config, item, "mq_django.errors.HandlerTimeout: could not be interrupted", reason="attempts")
    suspects = () if evidence.late else evidence.running
    if evidence.alone or (receipt in suspects and len(suspects) == 1):
        return _crashed(config, item)
    if receipt in suspects:
        return Settlement(item, HandBack(suspect=True))
    return Settlement(item, HandBack(lost=evidence.lost))


def unusable(item: Undecodable) -> Settlement:
    """Return how to settle what is no message: by its burial, or by nothing at all when somebody has deleted it."""
    if not item.fields:
        logger.warning("Entry %s was deleted while it was pending", item.entry)
        return Settlement(item, ACK)
    return Settlement(item, Bury(item.reason, reason="undecodable"))


def decide(
    config: QueueConfig, message: Message, handler: Handler | None, retry: Retry, *, reason: str = "attempts"
) -> Retry | Bury:
    """Return what a retry comes to: burial when the attempts are used up, else a retry whose delay is known."""
    policy = (handler.retry if handler else None) or config.retry
    if policy.exhausted(message.attempt, default_max=config.max_attempts):
        return Bury(retry.error, retry.traceback, reason=reason)
    if isinstance(retry.delay, timedelta):
        return retry
    # A handler may well return Retry(delay=30).
    milliseconds = policy.delay_ms(message.attempt) if retry.delay is None else retry.delay * 1000
    return replace(retry, delay=timedelta(milliseconds=milliseconds))


def settled_as(
    delivery: Delivery, outcome: Outcome, *, micros: int | None = None, keeps_result: bool = False
) -> Settlement:
    """Return how to settle a delivery whose outcome is decided, and log what has failed."""
    message, delay_ms = delivery.message, 0
    if isinstance(outcome, Retry | Bury):
        where = (message.id, message.name, message.queue)
        error = repr(str(outcome.error)[:300])
        if isinstance(outcome, Bury):
            logger.error("Message %s (%s) of queue %s is buried after attempt %d: %s", *where, message.attempt, error)
        else:
            assert isinstance(outcome.delay, timedelta)
            delay_ms = max(0, round(outcome.delay.total_seconds() * 1000))
            logger.warning(
                "Message %s (%s) of queue %s is tried again in %.1f s after attempt %d: %s",
                *(*where, delay_ms / 1000, message.attempt, error),
            )
    return Settlement(delivery, outcome, delay_ms, micros, keeps_result)


def _charged(config: QueueConfig, item: Delivery, error: str, *, reason: str, alone: bool = False) -> Settlement:
    handler = find(item.message.queue, item.message.name)
    # What runs alone harms nobody, so it need not wait.
    retry = Retry(delay=timedelta(0) if alone else None, error=error, alone=alone)
    return settled_as(
        item, decide(config, item.message, handler, retry, reason=reason), keeps_result=_keeps_result(item)
    )


def _crashed(config: QueueConfig, item: Delivery) -> Settlement:
    if item.suspect:
        # The first death, among others, was its work as well.
        item = item._replace(message=item.message._replace(attempt=item.message.attempt + 1))
    return _charged(config, item, "running when its process died", reason="crashed", alone=True)


def _keeps_result(item: Delivery) -> bool:
    handler = find(item.message.queue, item.message.name)
    return handler is not None and handler.keeps_result
