"""What a connection to a database says of its transaction."""

from django.db.backends.base.base import BaseDatabaseWrapper


def is_manual(connection: BaseDatabaseWrapper) -> bool:
    """Return whether a project commits by itself: outside atomic(), with autocommit off."""
    if connection.in_atomic_block:
        return False
    # A connection that is not open is not opened for this.
    on = connection.settings_dict["AUTOCOMMIT"] if connection.connection is None else connection.autocommit
    return not on
