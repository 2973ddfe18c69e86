"""Messages and dead letters as JSON values with all fields, for files. Secrets are replaced."""

from collections.abc import Iterator
from typing import Any

from mq_django.core.filters import NOTHING, Filter
from mq_django.core.redaction import redact_forms
from mq_django.inspector import dead_letters
from mq_django.inspector.message_views import MessageView


def exported_dead_letters(name: str, where: Filter = NOTHING) -> Iterator[dict[str, Any]]:
    """Yield the dead letters that match, oldest first, a bounded number in memory.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
    """
    for letter in dead_letters.every(name, where):
        row = {
            **exported(letter.message),
            "reason": letter.reason,
            "error": letter.error,
            "traceback": letter.traceback,
            "attempts": letter.attempts,
            "buried_ms": letter.buried_ms,
        }
        if letter.message.error:
            row |= {"unreadable": letter.message.error, "raw": letter.raw.decode(errors="backslashreplace")}
        yield row


def exported(message: MessageView) -> dict[str, Any]:
    """Return a message as JSON values, with the names of the attributes in Redis."""
    return {
        "id": message.id,
        "type": message.name,
        "data": message.data,
        "partitionkey": message.key and redact_forms(message.key),
        "headers": dict(message.headers),
    }
