"""The rows of the outbox: a row for a publication, and the publication in a row.

The body of a row is JSON: `message` has the attributes that differ from their defaults, `options` those of the sending,
and `data` comes last, as the text that is published.
"""

from collections.abc import Sequence
from typing import Any

from mq_django.core import clock
from mq_django.core.delivery_options import DeliveryOptions
from mq_django.core.jsontext import dumps, loads
from mq_django.core.messages import NO_HEADERS, Message
from mq_django.core.publication import Publication, PublishOptions, stored_publication
from mq_django.errors import DecodeError
from mq_django.models import OutboxMessage

#: Stands before the data. No text in the JSON before it has it, because quotes in texts are escaped, and no key: `data`
#: is no name of a header.
_DATA = ',"data":'

_MESSAGE = Message._field_defaults
_OPTIONS = PublishOptions._field_defaults
#: What has a column of its own, or is not of a new message.
_COLUMNS = {"id", "name", "data", "queue", "attempt", "key", "destination", "delay_ms", "due_ms"}


def row_of(publication: Publication) -> OutboxMessage:
    """Return the row for a publication. A delay counts from now."""
    message, text, options = publication
    place = options.destination
    now_ms = clock.now_ms()
    due_ms = options.due_ms if options.delay_ms is None else now_ms + options.delay_ms
    attributes = _changed(message._asdict(), _MESSAGE)
    if "headers" in attributes:
        attributes["headers"] = dict(message.headers)
    head = dumps({"message": attributes, "options": _changed(options._asdict(), _OPTIONS)})
    body = head[:-1].decode() + _DATA + text.decode() + "}"
    return OutboxMessage(
        destination=place.public_name,
        part=place.number,
        parts=place.partitions if place.is_partition else 1,
        message_id=message.id,
        name=message.name,
        key=message.key,
        body=body,
        size=len(head) + len(_DATA) + len(text),
        due_ms=due_ms,
        published_ms=now_ms if message.published_ms is None else message.published_ms,
    )


def publication_of(row: OutboxMessage, whole: DeliveryOptions) -> Publication:
    """Return the publication in a row, for the partition that the row names.

    Args:
        row: a row of this destination.
        whole: the queue or topic, with as many partitions as the row says.

    Raises:
        DecodeError: the row has none.
    """
    try:
        head, _, tail = row.body.partition(_DATA)
        text = tail[:-1].encode()
        found = loads(head.encode() + b"}")
        place = whole.parts[row.part] if whole.parts else whole
        known = {"id": row.message_id, "name": row.name, "key": row.key, "headers": NO_HEADERS}
        return stored_publication(place, known | found["message"], text, {"due_ms": row.due_ms, **found["options"]})
    except (DecodeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise DecodeError(f"Row {row.pk} of the outbox has no message: {error!r:.200}") from error


def place_for(row: OutboxMessage, whole: DeliveryOptions) -> tuple[int, int]:
    """Return `part` and `parts` of a row by the number of partitions that there is now. The message keeps its id."""
    unique = publication_unique(row)
    place = whole.place_of(key=row.key, unique=unique, message_id=row.message_id)
    return place.number, len(whole.each_part) if whole.parts else 1


def publication_unique(row: OutboxMessage) -> str | None:
    """Return the unique key of the message in a row; None: it has none, or the row has no message."""
    try:
        found = loads(row.body.partition(_DATA)[0].encode() + b"}")["message"].get("unique")
    except (DecodeError, KeyError, AttributeError, TypeError):
        return None
    return found if isinstance(found, str) else None


def sizes_fit(sizes: Sequence[int], most: int) -> int:
    """Return how many of the first rows have at most so many bytes together; at least 1."""
    total = 0
    for number, size in enumerate(sizes):
        total += size
        if number and total > most:
            return number
    return len(sizes)


def _changed(values: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in _COLUMNS and value != defaults[name]}
