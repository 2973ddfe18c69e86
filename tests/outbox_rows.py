"""Rows of an outbox that tests begin with."""

from typing import Any

from django.db import connections

from mq_django.core import clock
from mq_django.inspector.outbox_views import outbox_databases
from mq_django.models import OutboxMessage


def outbox_row(destination: str = "emails", *, age: float = 0, using: str = "default", **fields: Any) -> OutboxMessage:
    """Write a row that was published `age` seconds ago, and return it."""
    now_ms, number = clock.now_ms(), OutboxMessage.objects.using(using).count()
    values = {"message_id": f"m{number}", "name": "welcome", "body": "{}", "size": 2}
    return OutboxMessage.objects.using(using).create(
        destination=destination, published_ms=now_ms - round(age * 1000), **{**values, **fields}
    )


def lose_tables() -> None:
    """Rename the table of each database that is known to have one, in the transaction of the test."""
    for alias in outbox_databases():
        with connections[alias].cursor() as cursor:
            cursor.execute("ALTER TABLE mq_django_outbox RENAME TO gone")


def set_aside_row(destination: str = "emails", error: str = "MessageTooLarge: 9 MiB", **fields: Any) -> OutboxMessage:
    """Write a row that was set aside."""
    return outbox_row(destination, batch=0, error=error, failed_ms=clock.now_ms(), **fields)
