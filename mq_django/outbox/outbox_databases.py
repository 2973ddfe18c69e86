"""Which databases have an outbox."""

import logging

from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connections, router

from mq_django.core.logs import get_logger
from mq_django.models import OutboxMessage
from mq_django.outbox.insertion import TABLE

logger = get_logger(__name__)


#: The database of a project without one.
NO_DATABASE = "django.db.backends.dummy"


def outbox_aliases(*, is_used: bool = True) -> list[str]:
    """Return the aliases of the databases with an outbox. What cannot be read is logged, and is not among them.

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
