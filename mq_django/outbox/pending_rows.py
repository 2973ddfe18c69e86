"""Rows that wait in the outbox: find, cancel and count them."""

from collections.abc import Collection
from contextlib import suppress

from django.db.models import QuerySet

from mq_django.conf import DeliveryOptions
from mq_django.core import clock
from mq_django.core.jsontext import dumps
from mq_django.core.keys import UNIQUE_PREFIX
from mq_django.core.publication import Publication
from mq_django.errors import DecodeError
from mq_django.models import OutboxMessage
from mq_django.outbox.insertion import database_of, table_needed
from mq_django.outbox.outbox_databases import aliases_with_rows
from mq_django.outbox.place_relay import with_parts
from mq_django.outbox.rows import publication_of, publication_unique


def find_row(destination: DeliveryOptions, named: str) -> Publication | None:
    """Return the publication in the row of a message, claimed or not; None if there is none that can be read.

    A row that was set aside does not count, because nobody publishes it; nor one that is published and kept.

    Args:
        destination: the queue.
        named: the id of the message, or `u:` and its unique key: then the latest one.
    """
    for alias in aliases_with_rows():
        with table_needed(alias):
            row = _named(alias, destination, named).exclude(batch__lte=0).order_by("pk").last()
        if row is not None:
            with suppress(DecodeError):
                return publication_of(row, with_parts(destination, row.parts))
    return None


def cancel_row(using: str | None, destination: DeliveryOptions, named: str) -> bool:
    """Delete the row of a message that no relay has claimed, and return whether there was one.

    Args:
        using: the alias of the database; None: as the routers say.
        destination: the queue.
        named: the id of the message, or `u:` and its unique key: then of all with this key.

    Raises:
        NoOutbox: the database has no outbox.
    """
    alias = database_of(using)
    with table_needed(alias):
        deleted, _ = _named(alias, destination, named).filter(batch=None).delete()
    return deleted > 0


def reschedule_row(
    using: str | None, destination: DeliveryOptions, named: str, *, delay_ms: int | None, due_ms: int | None
) -> bool:
    """Change the due time in the row of a delayed message that no relay has claimed; return whether there was one.

    Args:
        using: the alias of the database; None: as the routers say.
        destination: the queue.
        named: as for cancel_row().
        delay_ms: milliseconds from now; None: `due_ms`.
        due_ms: milliseconds since 1970.

    Raises:
        NoOutbox: the database has no outbox.
    """
    new_ms = due_ms if delay_ms is None else clock.now_ms() + delay_ms
    alias = database_of(using)
    with table_needed(alias):
        rows = _named(alias, destination, named).filter(batch=None, due_ms__isnull=False)
        return rows.update(due_ms=new_ms) > 0


def _named(alias: str, destination: DeliveryOptions, named: str) -> QuerySet[OutboxMessage]:
    """Return the rows of messages with an id or a unique key."""
    rows = OutboxMessage.objects.using(alias).filter(destination=destination.name)
    if not named.startswith(UNIQUE_PREFIX):
        return rows.filter(message_id=named)
    # Few messages wait here, and not for long: the key has no index.
    key = named.removeprefix(UNIQUE_PREFIX)
    likely = rows.exclude(batch__lte=0).filter(body__contains=dumps({"unique": key})[1:-1].decode())
    return rows.filter(pk__in=[row.pk for row in likely if publication_unique(row) == key])


def count_pending(alias: str, destinations: Collection[str]) -> int:
    """Return how many rows wait for a relay, claimed or not."""
    return OutboxMessage.objects.using(alias).filter(destination__in=destinations).exclude(batch__lte=0).count()


def count_set_aside(alias: str, destinations: Collection[str]) -> int:
    """Return how many rows were set aside, because their messages cannot be published."""
    aside = OutboxMessage.objects.using(alias).filter(batch=0, failed_ms__isnull=False)
    return aside.filter(destination__in=destinations).count()
