"""A system check: each database that the outbox would use has its tables."""

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.db import DatabaseError, connections, router

from mq_django.conf import read
from mq_django.models import OutboxMessage
from mq_django.outbox.insertion import database_of
from mq_django.outbox.outbox_databases import has_table


def check_outbox(*, databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Check the routers if a queue or topic has OUTBOX, and the tables of those databases that are to be checked.

    A database is reached only if it is named, as by `manage.py check --database`.
    """
    config, problems = read(getattr(settings, "MQ_DJANGO", {}))
    names = [name for name, each in (*config.queues.items(), *config.topics.items()) if each.outbox]
    if problems or not names:
        return []
    alias = database_of(None)
    if alias not in connections or not router.allow_migrate_model(alias, OutboxMessage):
        hint = f"Let DATABASE_ROUTERS allow the migrations of mq_django on {alias!r}, or write its models elsewhere."
        message = (
            f"{names[0]!r} has OUTBOX, and its rows would be written to database {alias!r}, where no table can be."
        )
        return [Error(message, hint=hint, id="mq_django.E012")]
    return [found for each in databases or () if each == alias for found in _missing(each, names[0])]


def _missing(alias: str, name: str) -> list[CheckMessage]:
    try:
        if has_table(alias):
            return []
        message = f"{name!r} has OUTBOX, and database {alias!r} has no table of the outbox."
    except DatabaseError as error:
        message = f"{name!r} has OUTBOX, and database {alias!r} cannot be used: {error}"
    return [Error(message, hint=f"Run manage.py migrate mq_django --database {alias}.", id="mq_django.E012")]
