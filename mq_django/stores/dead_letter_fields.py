"""What is written when a delivery has failed: its attempt history, and the fields of its dead letter."""

from collections.abc import Mapping

from mq_django.core import clock
from mq_django.core.attempts import FAILED, MAX_DATA, MAX_TRACEBACK, READY, Attempt, with_attempt
from mq_django.core.jsontext import dumps
from mq_django.core.messages import Delivery, Undecodable
from mq_django.core.outcomes import Bury, Retry
from mq_django.core.wire import encode_entry, moment
from mq_django.stores.base import Settlement
from mq_django.stores.entry_fields import text_of

#: Bytes stored of an entry that could not be decoded.
MAX_RAW = 64 * 1024

#: The fields of a dead letter that are not the message's own.
DEAD_FIELDS = frozenset(
    ("deadreason", "deaderror", "deadtraceback", "deadattempts", "deadfirst", "deadraw", "deadbody", "deadstory")
)


def history_of(consumer: str, settlement: Settlement) -> str:
    """Return the history of a failed message with this attempt; empty if it is invalid or its data is too long."""
    delivery, outcome, _, micros, *_ = settlement
    assert isinstance(outcome, Retry | Bury)
    if isinstance(delivery, Undecodable) or len(delivery.data_text) > MAX_DATA:
        return ""
    # The traceback of a dead letter has a field of its own. A redrive moves it into the history.
    status, traceback = (READY, outcome.traceback) if isinstance(outcome, Retry) else (FAILED, None)
    now_ms = clock.now_ms()
    started_ms = None if micros is None else now_ms - micros // 1000
    attempt = Attempt(status, delivery.message.attempt, consumer, started_ms, now_ms, outcome.error, traceback)
    return with_attempt(delivery.history, attempt)


def message_fields(delivery: Delivery | Undecodable) -> list[str | bytes]:
    """Return the fields of a dead letter that are the message's own, its id first."""
    if isinstance(delivery, Undecodable):
        return ["id", "", "deadraw", b"\n".join(delivery.fields)[:MAX_RAW]]
    headers = delivery.message.headers
    if not DEAD_FIELDS.isdisjoint(headers):
        # A header of the message must not be read as one of our fields.
        others = {name: value for name, value in headers.items() if name not in DEAD_FIELDS}
        delivery = delivery._replace(message=delivery.message._replace(headers=others))
    fields = encode_entry(delivery.message, delivery.data_text)
    if delivery.message.published_ms is not None:
        fields += ("time", moment(delivery.message.published_ms))
    return fields


def failure_fields(delivery: Delivery | Undecodable, outcome: Bury) -> list[str | bytes]:
    """Return the fields of a dead letter that tell why it was buried."""
    message = delivery.message if isinstance(delivery, Delivery) else None
    first = message.published_ms if message else None
    return [
        *("deadreason", outcome.reason),
        *("deaderror", outcome.error[:MAX_TRACEBACK].encode(errors="replace")),
        *("deadtraceback", outcome.traceback[-MAX_TRACEBACK:].encode(errors="replace")),
        *("deadattempts", str(message.attempt if message else 1)),
        *("deadfirst", str(first or "")),
    ]


def buried_history(fields: Mapping[bytes, bytes]) -> str:
    """Return the attempt history of a dead letter with the traceback of the last attempt, as a redrive writes it."""
    history = text_of(fields.get(b"deadstory"))
    if not history.endswith("}"):
        return history
    traceback = dumps(text_of(fields.get(b"deadtraceback"))).decode()
    return f'{history[:-1]},"traceback":{traceback}}}'
