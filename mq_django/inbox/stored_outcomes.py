"""How the inbox keeps an ack: the result of a task, and what a step of a workflow notes for its run."""

import json
from typing import Any

from mq_django.core.outcomes import ACK, Ack, StepEnd


def encode(outcome: Ack) -> str:
    """Return an ack as ASCII JSON; "" for one without a result."""
    found: dict[str, Any] = {}
    if outcome.result is not None:
        found["result"] = _text(outcome.result)
    if isinstance(outcome, StepEnd):
        found |= {"event": outcome.event, "value": _text(outcome.value), "added": outcome.added}
    return json.dumps(found) if found else ""


def decode(text: str) -> Ack:
    """Return the ack that encode() has written. What cannot be read is an ack without a result."""
    if not text:
        return ACK
    try:
        found = json.loads(text)
        result = _bytes(found["result"]) if "result" in found else None
        if "event" not in found:
            return Ack(result)
        return StepEnd(result, str(found["event"]), _bytes(found["value"]), str(found["added"]))
    except (ValueError, TypeError, KeyError, AttributeError):
        return ACK


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
