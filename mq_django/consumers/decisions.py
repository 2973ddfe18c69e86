"""What becomes of a delivery that failed, was interrupted, or was held by somebody who is gone."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
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


def again(
    config: QueueConfig, message: Message, handler: Handler | None, outcome: Retry, *, reason: str = "attempts"
) -> tuple[Outcome, int]:
    """Return the outcome of a retry, which is burial when the attempts are used up, and its delay in ms."""
    policy = (handler.retry if handler else None) or config.retry
    where = (message.id, message.name, message.queue)
    if policy.exhausted(message.attempt, default_max=config.max_attempts):
        told = _one_line(outcome.error)
        logger.error("Message %s (%s) of queue %s is buried after %d attempts: %s", *where, message.attempt, told)
        return Bury(outcome.error, outcome.traceback, reason=reason), 0
    delay = outcome.delay
    delay_ms = policy.delay_ms(message.attempt) if delay is None else _milliseconds(delay)
    logger.warning(
        "Message %s (%s) of queue %s is tried again in %.1f s after attempt %d: %s",
        *(*where, delay_ms / 1000, message.attempt, _one_line(outcome.error)),
    )
    return outcome, delay_ms


def _charged(config: QueueConfig, item: Delivery, error: str, *, reason: str, alone: bool = False) -> Settlement:
    handler = find(item.message.queue, item.message.name)
    # What runs alone harms nobody, so it need not wait.
    retry = Retry(delay=timedelta(0) if alone else None, error=error, alone=alone)
    outcome, delay_ms = again(config, item.message, handler, retry, reason=reason)
    return Settlement(item, outcome, delay_ms, keeps_result=_keeps_result(item))


def _crashed(config: QueueConfig, item: Delivery) -> Settlement:
    if item.suspect:
        # The first death, among others, was its work as well.
        item = item._replace(message=item.message._replace(attempt=item.message.attempt + 1))
    return _charged(config, item, "running when its process died", reason="crashed", alone=True)


def _keeps_result(item: Delivery) -> bool:
    handler = find(item.message.queue, item.message.name)
    return handler is not None and handler.keeps_result


def _milliseconds(delay: timedelta | float) -> int:
    # A handler may well return Retry(delay=30).
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    return max(0, round(seconds * 1000))


def _one_line(text: object) -> str:
    """Return text without line breaks: a message must not be able to write log lines of its own."""
    return repr(str(text)[:300])
