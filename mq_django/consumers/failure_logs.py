"""Log attempts that failed: a warning when the message will be retried, an error when it was buried.

The callback of a run is what tells that something has failed: its first failed attempt is an error, too.
"""

import logging

from mq_django.core.correlation_ids import correlation_id_in
from mq_django.core.logs import get_logger
from mq_django.core.messages import Message
from mq_django.core.outcomes import Bury, Retry
from mq_django.core.workflow_keys import CALLBACK_PREFIX
from mq_django.registry import Handler

logger = get_logger(__name__)

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
        level, what = logging.ERROR, "buried"
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
