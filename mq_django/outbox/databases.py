"""Which databases have an outbox."""

import logging
import sys
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning  # noqa: A004 - as Django calls it
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connections, router

from mq_django.conf import read
from mq_django.core.logs import get_logger
from mq_django.models import OutboxMessage
from mq_django.outbox.insertion import TABLE, database_of

logger = get_logger(__name__)


#: The database of a project without one.
NO_DATABASE = "django.db.backends.dummy"


def outbox_aliases(*, is_used: bool = True) -> list[str]:
    """Return the aliases of the databases with an outbox, without those that cannot be read, which are logged.

    Args:
        is_used: whether a queue or topic has OUTBOX. If not, errors are logged as information only: whatever keeps a
            project from its databases does not concern its queues.
    """
    found = []
    for alias in connections:
        if connections.databases[alias]["ENGINE"] == NO_DATABASE:
            continue
        try:
            if router.allow_migrate_model(alias, OutboxMessage) and has_table(alias):
                found.append(alias)
        except Exception as error:
            if is_used and not isinstance(error, DatabaseError | ImproperlyConfigured):
                raise
            level = logging.WARNING if is_used else logging.INFO
            logger.log(level, "The outbox of database %r is not looked for: %s", alias, error)
    return found


#: Aliases of databases that have the table.
_known: set[str] = set()


def aliases_with_rows() -> list[str]:
    """Return the aliases of the databases that may have rows. They are looked for once.

    Raises:
        DatabaseError: a database cannot be reached.
    """
    allowed = [alias for alias in connections if router.allow_migrate_model(alias, OutboxMessage)]
    _known.update(alias for alias in allowed if alias not in _known and has_table(alias))
    return [alias for alias in allowed if alias in _known]


def has_table(alias: str) -> bool:
    """Return whether a database has the table of the outbox. Raises DatabaseError if it cannot be reached."""
    return TABLE in connections[alias].introspection.table_names()


# System checks: the database that the outbox uses may have its tables, and has them.

#: The kinds of databases whose SQL the outbox is written in, as Django calls them. MariaDB is `mysql`.
VENDORS = ("sqlite", "postgresql", "mysql")


def check_outbox(**_: Any) -> list[CheckMessage]:
    """Report a database that cannot have the outbox, where routers write the rows of a queue or topic with OUTBOX."""
    name, alias = _user(), database_of(None)
    if not name:
        return []
    if alias in connections and router.allow_migrate_model(alias, OutboxMessage):
        vendor = connections[alias].vendor
        message = f"{name!r} has OUTBOX, and database {alias!r} is of a kind that has no outbox: {vendor}."
        hint = "Have DATABASE_ROUTERS write its models to SQLite, PostgreSQL, MariaDB or MySQL."
        return [] if vendor in VENDORS else [Error(message, hint=hint, id="mq_django.E012")]
    hint = f"Let DATABASE_ROUTERS allow the migrations of mq_django on {alias!r}, or write its models elsewhere."
    message = f"{name!r} has OUTBOX, and its rows would be written to database {alias!r}, where no table can be."
    return [Error(message, hint=hint, id="mq_django.E012")]


def check_outbox_tables(*, databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Report a database without the table of the outbox, if it is named as by `manage.py check --database`.

    `migrate` runs it before it creates the table: then nothing is wrong.
    """
    name, alias = _user(), database_of(None)
    if not name or alias not in (databases or ()) or alias not in connections or sys.argv[1:2] == ["migrate"]:
        return []
    try:
        if has_table(alias):
            return []
        message = f"{name!r} has OUTBOX, and database {alias!r} has no table of the outbox."
    except DatabaseError as error:
        message = f"{name!r} has OUTBOX, and database {alias!r} cannot be used: {error}"
    return [Warning(message, hint=f"Run manage.py migrate mq_django --database {alias}.", id="mq_django.W008")]


def _user() -> str:
    """Return a queue or topic that has OUTBOX; "": there is none, or the settings cannot be read."""
    config, problems = read(getattr(settings, "MQ_DJANGO", {}))
    names = [name for name, each in (*config.queues.items(), *config.topics.items()) if each.outbox]
    return "" if problems or not names else names[0]
