"""Decide how to settle a delivery that failed, was interrupted, or was held by a dead consumer, and tell of its end."""

import logging
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from django.dispatch import Signal

from mq_django.conf import QueueConfig
from mq_django.consumers.shared_state import HANDLED, RETURNED, Receipt
from mq_django.core.ids import correlation_id_in
from mq_django.core.keys import CALLBACK_PREFIX
from mq_django.core.logs import get_logger
from mq_django.core.messages import (
    ACK,
    Bury,
    Cancel,
    CancelResult,
    Delivery,
    HandBack,
    Message,
    Outcome,
    Retry,
    Undecodable,
)
from mq_django.core.retries import HISTORY_LENGTH, MAX_DATA, READY, read_history
from mq_django.core.texts import path_of
from mq_django.registry import Handler, find, of_call
from mq_django.signals import handler_started, message_buried, message_cancelled, message_retried, send_signal
from mq_django.stores.base import CancelRequest, Settlement, Store
from mq_django.stores.settling import message_id

logger = get_logger(__name__)


RAN_AT_DEATH = "running when its process died"
NOT_INTERRUPTED = "mq_django.errors.HandlerTimeout: could not be interrupted"
#: Errors of deliveries whose transaction may have been committed: of a handler with `@exactly_once` the inbox knows.
UNDECIDED = frozenset({RAN_AT_DEATH, NOT_INTERRUPTED})
#: The most deliveries after the last attempt that only look into the inbox. Something else then ends their processes.
LAST_LOOKS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known about a consumer that has ended."""

    #: How its latest deliveries ended, including settled ones.
    results: Mapping[Receipt, int] = field(default_factory=dict)
    #: The deliveries that it was running.
    running: Collection[Receipt] = ()
    #: Those of them that were past their timeout.
    late: Collection[Receipt] = ()
    #: Those of them that a handler got in one call with others.
    together: Collection[Receipt] = ()
    #: The requests to cancel messages, by their ids.
    cancelled: Mapping[str, CancelRequest] = field(default_factory=dict)
    #: It is unknown which deliveries were running, because its machine is gone.
    lost: bool = False
    #: It was a quarantine: it ran the one message that it held.
    alone: bool = False
    #: Redis may still assign messages to it: a process forked by a handler may hold its connections open.
    may_receive: bool = False


def settlement(config: QueueConfig, number: int, item: Delivery | Undecodable, evidence: Evidence) -> Settlement:
    """Return how to settle a delivery that a dead or stopping consumer holds.

    A handled delivery is acked. If a single delivery was running, it may have killed the process: it is charged an
    attempt and runs alone the next time. If several were running, each is handed back to run alone, and charged when it
    ends that process as well. If some were past their timeout, these are the cause and only they are charged, and of a
    batch each is handed back to run alone. All others are handed back. `number` is the number of the queue in the
    consumer's shared state.
    """
    if isinstance(item, Undecodable):
        return unusable(item)
    receipt = Receipt.of(number, item.stream, item.entry)
    ended = evidence.results.get(receipt)
    if ended == HANDLED:
        return Settlement(item, ACK, keeps_result=_keeps_result(item))
    if ended == RETURNED:
        return Settlement(item, HandBack())
    request = evidence.cancelled.get(item.message.id)
    if request is not None and request.is_for(item):
        return _cancelled(item, has_run=receipt in evidence.running or receipt in evidence.late)
    if ended is not None:
        return _charged(config, item, "failed, and its process died before that was settled", reason="attempts")
    if receipt in evidence.late and receipt not in evidence.together:
        return _charged(config, item, NOT_INTERRUPTED, reason="attempts")
    # Of those past their timeout only the ones of a batch get here.
    suspects = evidence.late or evidence.running
    if evidence.alone or (receipt in suspects and len(suspects) == 1):
        return _crashed(config, item)
    if receipt in suspects:
        return Settlement(item, HandBack(suspect=True))
    return Settlement(item, HandBack(lost=evidence.lost))


def unusable(item: Undecodable) -> Settlement:
    """Return how to settle an entry that is not a valid message: bury it, or only ack it if it was deleted."""
    if not item.fields:
        logger.warning("Entry %s was deleted while it was pending", item.entry)
        return Settlement(item, ACK)
    return Settlement(item, Bury(item.reason, reason="undecodable"))


def decide(
    config: QueueConfig, message: Message, handler: Handler | None, retry: Retry, *, reason: str = "attempts"
) -> Retry | Bury:
    """Return a Bury when the attempts are used up, else a Retry with its delay computed."""
    policy = (handler.retry if handler else None) or config.retry
    if policy.exhausted(message.attempt, default_max=config.max_attempts):
        return Bury(retry.error, retry.traceback, reason=reason)
    if isinstance(retry.delay, timedelta):
        return retry
    # A handler may return Retry(delay=30).
    milliseconds = policy.delay_ms(message.attempt) if retry.delay is None else retry.delay * 1000
    return replace(retry, delay=timedelta(milliseconds=milliseconds))


def settled_as(
    delivery: Delivery,
    outcome: Outcome,
    handler: Handler | None,
    *,
    micros: int | None = None,
    exception: BaseException | None = None,
) -> Settlement:
    """Return how to settle a delivery with this outcome, and log retries and burials."""
    delay_ms = 0
    if isinstance(outcome, Retry | Bury):
        if isinstance(outcome, Retry):
            assert isinstance(outcome.delay, timedelta)
            delay_ms = max(0, round(outcome.delay.total_seconds() * 1000))
        log_failure(delivery.message, outcome, handler, delay_ms=delay_ms, exception=exception)
    return Settlement(delivery, outcome, delay_ms, micros, handler is not None and handler.keeps_result)


def retry_invalid(delivery: Delivery, handler: Handler, error: BaseException) -> Retry:
    """Return the outcome of a handler whose return value or exception cannot be used, and log that."""
    text = "Invalid return value or exception of handler %s for message %s: the message will be retried"
    logger.error(text, handler.where, delivery.message.id, exc_info=error)
    return Retry(error=f"{path_of(type(error))} while its outcome was settled")


def _cancelled(item: Delivery, *, has_run: bool) -> Settlement:
    outcome = Cancel(
        "Cancelled while it ran, and its process was replaced" if has_run else "Cancelled before it started"
    )
    return Settlement(item, outcome, 0, 0 if has_run else None, _keeps_result(item))


def _charged(config: QueueConfig, item: Delivery, error: str, *, reason: str, alone: bool = False) -> Settlement:
    handler = find(item.message.queue, item.message.name)
    if handler is not None:
        handler = of_call(handler, item.message)
    # A message that runs alone cannot affect other messages, so it is retried without delay.
    retry = Retry(delay=timedelta(0) if alone else None, error=error)
    outcome = decide(config, item.message, handler, retry, reason=reason)
    if isinstance(outcome, Bury) and error in UNDECIDED and handler is not None and handler.once is not None:
        outcome = _last_check(config, item.message, handler, retry, outcome)
    return settled_as(item, outcome, handler)._replace(alone=alone)


def _last_check(config: QueueConfig, message: Message, handler: Handler, retry: Retry, bury: Bury) -> Retry | Bury:
    """Return the outcome of the last attempt of a handler with `@exactly_once`: one more delivery.

    Its consumer has the database, and does not run the handler: see `mq_django.consumers.worker.once_call`.
    """
    policy = handler.retry or config.retry
    if policy.exhausted(message.attempt - LAST_LOOKS, default_max=config.max_attempts):
        return replace(bury, reason="uncertain")
    return replace(retry, delay=timedelta(0))


def used_up(config: QueueConfig, item: Delivery, handler: Handler) -> Bury | None:
    """Return the burial of a message whose attempts all ended their machines: nobody was left to decide about it.

    Only in RSMQ's format: a message is received again when its visibility timeout is over, not when it is reclaimed.
    """
    before = item.message.attempt - 1
    policy = handler.retry or config.retry
    further = LAST_LOOKS if handler.once is not None else 0
    if item.suspect or not policy.exhausted(before - further, default_max=config.max_attempts):
        return None
    return Bury(RAN_AT_DEATH, reason="uncertain" if further else "crashed")


def _crashed(config: QueueConfig, item: Delivery) -> Settlement:
    if item.suspect:
        # It has also caused the first crash, when it ran beside other messages.
        item = item._replace(message=item.message._replace(attempt=item.message.attempt + 1))
    return _charged(config, item, RAN_AT_DEATH, reason="crashed", alone=True)


def _keeps_result(item: Delivery) -> bool:
    handler = find(item.message.queue, item.message.name)
    return handler is not None and handler.keeps_result


# Retry without charging an attempt: what fails for a common reason, and not because of one message.


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


# Send the signals of settled deliveries, and settle for a dead consumer.


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
