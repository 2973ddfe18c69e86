"""The models of the inbox, and whether their tables are there.

Projects import `mq_django` before Django has loaded its apps, so no module here imports a model.
"""

from typing import Any

from django.apps import apps
from django.db import connections

MISSING = (
    "Database {using!r} has no table {table}, and handlers with @exactly_once need it: run "
    "`manage.py migrate mq_django --database {using}`"
)


def inbox_messages() -> Any:
    """Return the model InboxMessage."""
    return apps.get_model("mq_django", "InboxMessage")


def inbox_passes() -> Any:
    """Return the model InboxPass."""
    return apps.get_model("mq_django", "InboxPass")


def missing_tables(using: str) -> list[str]:
    """Return a sentence about each table of the inbox that a database lacks.

    Args:
        using: the alias of the database.

    Raises:
        Error: the database cannot be read.
    """
    found = connections[using].introspection.table_names()
    # Public in all but its name.
    tables = [model._meta.db_table for model in (inbox_messages(), inbox_passes())]  # noqa: SLF001
    return [MISSING.format(using=using, table=table) for table in tables if table not in found]
