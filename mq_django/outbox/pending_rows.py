"""Rows that wait in the outbox: find, cancel and count them."""

from collections.abc import Collection
from contextlib import suppress

from mq_django.conf import DeliveryOptions
from mq_django.core.publication import Publication
from mq_django.errors import DecodeError
from mq_django.models import OutboxMessage
from mq_django.outbox.insertion import database_of
from mq_django.outbox.outbox_databases import aliases_with_rows
from mq_django.outbox.place_relay import with_parts
from mq_django.outbox.rows import publication_of


def find_row(destination: DeliveryOptions, message_id: str) -> Publication | None:
    """Return the publication in the row of a message, claimed or not; None if there is none that can be read.

    A row that was set aside does not count, because nobody publishes it; nor one that is published and kept.
    """
    for alias in aliases_with_rows():
        rows = OutboxMessage.objects.using(alias).filter(destination=destination.name, message_id=message_id)
        row = rows.exclude(batch__lte=0).first()
        if row is not None:
            with suppress(DecodeError):
                return publication_of(row, with_parts(destination, row.parts))
    return None


def cancel_row(using: str | None, destination: DeliveryOptions, message_id: str) -> bool:
    """Delete the row of a message that no relay has claimed, and return whether there was one.

    Args:
        using: the alias of the database; None: as the routers say.
        destination: the queue.
        message_id: the id of the message.
    """
    rows = OutboxMessage.objects.using(database_of(using))
    deleted, _ = rows.filter(destination=destination.name, message_id=message_id, batch=None).delete()
    return deleted > 0


def count_pending(alias: str, destinations: Collection[str]) -> int:
    """Return how many rows wait for a relay, claimed or not."""
    return OutboxMessage.objects.using(alias).filter(destination__in=destinations).exclude(batch__lte=0).count()
