"""The rows of the outbox: a row for a publication, and the publication in a row."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any, NamedTuple, TypeVar

from mq_django.core import clock, jsontext
from mq_django.core.jsontext import LAST_MS, dumps
from mq_django.core.messages import NO_HEADERS, Message
from mq_django.core.options import MAX_PARTITIONS
from mq_django.core.publication import Publication, PublishOptions, stored_publication
from mq_django.core.queue_configs import DeliveryOptions
from mq_django.core.texts import repr_of
from mq_django.errors import DecodeError
from mq_django.models import OutboxMessage
from mq_django.outbox.row_body import DATA, contents_of
from mq_django.stores.outbox_marks import TAKEN

Destination = TypeVar("Destination", bound=DeliveryOptions)

#: The columns that a publish writes. The others are NULL.
COLUMNS = (
    *("destination", "part", "parts", "message_id", "name", "key", "body", "size", "due_ms", "published_ms"),
    "error",
)

#: Attributes that have a column of their own, or that a new message does not have.
_ELSEWHERE = {"id", "name", "data", "queue", "attempt", "key", "headers", "destination", "delay_ms", "due_ms"}


def _others(names: Sequence[str], defaults: Mapping[str, Any]) -> list[tuple[int, str, Any]]:
    """Return the fields of a named tuple that are in the body: each index, name and default."""
    return [(at, name, defaults[name]) for at, name in enumerate(names) if name not in _ELSEWHERE]


_MESSAGE = _others(Message._fields, Message._field_defaults)
_OPTIONS = _others(PublishOptions._fields, PublishOptions._field_defaults)


def values_of(publications: Sequence[Publication]) -> list[tuple[Any, ...]]:
    """Return the values of COLUMNS for each publication. A delay counts from now."""
    found, now_ms = list[tuple[Any, ...]](), clock.now_ms()
    latest: PublishOptions | None = None
    partition, options_text, due_ms = ("", -1, 1), b"", None
    for message, text, options in publications:
        if options is not latest:
            # The messages of one call share them.
            latest, options_text = options, dumps(_changed(options, _OPTIONS))
            due_ms = options.due_ms if options.delay_ms is None else now_ms + math.ceil(options.delay_ms)
            to = options.destination
            partition = (to.public_name, to.number, to.partitions if to.is_partition else 1)
        attributes = _changed(message, _MESSAGE)
        if message.headers:
            attributes["headers"] = dict(message.headers)
        body = b'{"message":%b,"options":%b%b%b}' % (dumps(attributes), options_text, DATA.encode(), text)
        published_ms = now_ms if message.published_ms is None else message.published_ms
        named = (message.id, message.name, message.key)
        found.append((*partition, *named, body.decode(), len(body), due_ms, published_ms, ""))
    return found


def publication_of(row: OutboxMessage, whole: DeliveryOptions) -> Publication:
    """Return the publication in a row, for the partition that the row names.

    Args:
        row: a row of this destination.
        whole: the queue or topic, with as many partitions as the row says.

    Raises:
        DecodeError: the row has none.
    """
    try:
        found, text = contents_of(row.body)
        partition = whole.parts[row.part] if whole.parts else whole
        if row.due_ms is not None and jsontext.whole(row.due_ms, LAST_MS) is None:
            raise ValueError(f"no time: {repr_of(row.due_ms)}")  # noqa: TRY301 - as what the body has
        known = {"id": row.message_id, "name": row.name, "key": row.key, "headers": NO_HEADERS}
        return stored_publication(partition, known | found["message"], text, {"due_ms": row.due_ms, **found["options"]})
    except (DecodeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise DecodeError(f"Row {row.pk} of the outbox has no message: {repr_of(error, 200)}") from error


def partition_for_row(row: OutboxMessage, whole: DeliveryOptions) -> tuple[int, int]:
    """Return `part` and `parts` of a row by the number of partitions that there is now. The message keeps its id."""
    unique = publication_unique(row)
    partition = whole.partition_for(key=row.key, unique=unique, message_id=row.message_id)
    return partition.number, len(whole.each_part) if whole.parts else 1


def publication_unique(row: OutboxMessage) -> str | None:
    """Return the unique key of the message in a row; None: it has none, or the row has no message."""
    try:
        found = contents_of(row.body)[0]["message"].get("unique")
    except (DecodeError, AttributeError, TypeError):
        return None
    return found if isinstance(found, str) else None


def sizes_fit(sizes: Sequence[object], most: int) -> int:
    """Return how many of the first rows have at most so many bytes together; at least 1."""
    total = 0
    for number, size in enumerate(sizes):
        total += size if isinstance(size, int) else 0  # SQLite stores text, too
        if number and total > most:
            return number
    return len(sizes)


def _changed(values: Sequence[Any], fields: Sequence[tuple[int, str, Any]]) -> dict[str, Any]:
    return {name: values[at] for at, name, default in fields if values[at] != default}


# Chunks: rows of a claim that a call of a script publishes.


class Chunk(NamedTuple):
    """The next rows that are published together."""

    #: Their numbers.
    rows: Sequence[int]
    publications: Sequence[Publication]
    #: See `OutboxWire.begin()`.
    answers: str
    refuses: str


class Unpublishable(NamedTuple):
    """A row without a message that can be published, and why."""

    last: int
    reason: str


def next_chunk(rows: Sequence[OutboxMessage], whole: DeliveryOptions, most: int) -> Chunk | Unpublishable:
    """Return the next chunk of some rows, at least one row: up to `most` rows, as many as a script publishes."""
    found = list[tuple[int, Publication]]()
    for row in rows[:most]:
        try:
            found.append((row.pk, publication_of(row, whole)))
        except DecodeError as error:
            if not found:
                return Unpublishable(row.pk, str(error))
            break
    first = _kind(found[0][1])
    alike = list(takewhile(lambda each: _kind(each[1]) == first, found))
    if first[0] == "holder" or first[1]:
        alike = alike[:1]
    answers, refuses = first[:2]
    return Chunk([row for row, _ in alike], [each for _, each in alike], answers, refuses)


def _kind(publication: Publication) -> tuple[str, str, str, int | None, bool]:
    """Return what the publications of one call share; the first two as in Chunk."""
    options = publication.options
    refuses = TAKEN if options.on_conflict == "error" else ""
    if options.claim_ms is not None:
        return "holder", refuses, "", None, options.keeps_result
    if options.due_ms is not None:
        return "ids", refuses, options.on_conflict, options.postpone_ms, options.keeps_result
    return "", "", "", None, options.keeps_result


def with_parts(destination: Destination, parts: int) -> Destination:
    """Return a queue or topic with another number of partitions, or as it is if it has no such number."""
    is_same = (len(destination.parts) or 1) == parts or not jsontext.whole(parts, MAX_PARTITIONS)
    return destination if is_same else replace(destination, partitions=parts)
