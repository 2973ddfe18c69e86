"""What a connection of Django to a database says of its transaction."""

from typing import Any, Protocol


class DatabaseConnection(Protocol):
    """The part of Django's `BaseDatabaseWrapper` that tells it."""

    settings_dict: dict[str, Any]
    #: That of the driver; None: it is not open.
    connection: Any
    autocommit: bool
    in_atomic_block: bool


def is_manual(connection: DatabaseConnection) -> bool:
    """Return whether a project commits by itself: outside atomic(), with autocommit off."""
    if connection.in_atomic_block:
        return False
    # A connection that is not open is not opened for this.
    on = connection.settings_dict["AUTOCOMMIT"] if connection.connection is None else connection.autocommit
    return not on
