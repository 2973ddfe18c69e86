"""Chunks: rows of a claim that one call of a script publishes."""

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

from mq_django.conf import DeliveryOptions
from mq_django.core.publication import Publication
from mq_django.errors import DecodeError
from mq_django.models import OutboxMessage
from mq_django.outbox.rows import publication_of
from mq_django.stores.outbox_marks import TAKEN


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
    """Return what comes next of some rows, at least one: up to `most` rows with messages that one script publishes."""
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
    answers, refuses, _, _ = first
    return Chunk([row for row, _ in alike], [each for _, each in alike], answers, refuses)


def _kind(publication: Publication) -> tuple[str, str, str, bool]:
    """Return what the publications of one call share; the first two as in Chunk."""
    options = publication.options
    refuses = TAKEN if options.on_conflict == "error" else ""
    if options.claim_ms is not None:
        return "holder", refuses, "", options.keeps_result
    if options.due_ms is not None:
        return "ids", refuses, options.on_conflict, options.keeps_result
    return "", "", "", options.keeps_result
