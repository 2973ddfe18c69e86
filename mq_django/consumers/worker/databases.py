"""The database connections of a thread that runs handlers, and the state in which a handler has to leave them."""

import threading
import time
from dataclasses import dataclass

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from mq_django.core.logs import get_logger

logger = get_logger(__name__)

#: Seconds between two looks at whether connections are too old. An error of a database is followed by one at once.
CONNECTION_CHECK = 1.0


class _LeftOpen(Exception):
    """Rolls back the blocks of `atomic` that a handler has left open."""


@dataclass(slots=True)
class _Held:
    """A connection of the thread, with its state between two handlers."""

    connection: BaseDatabaseWrapper
    #: How many blocks of `atomic` are open, and whether autocommit is on. Not always 0 and True: a test may run
    #: handlers within a transaction of its own.
    depth: int
    autocommit: bool

    def is_as_found(self) -> bool:
        connection = self.connection
        if connection.connection is None:
            return True
        return len(connection.atomic_blocks) == self.depth and connection.autocommit is self.autocommit


class Databases:
    """The connections that one thread has made.

    Django is not asked for them: that would cost more than all the rest that is done for a message. The signal
    `connection_created` tells of each.
    """

    def __init__(self) -> None:
        #: The connections. Replaced as a whole, because the event loop reads it while another thread notes one.
        self.held = tuple(
            _Held(connection, len(connection.atomic_blocks), connection.autocommit)
            for connection in connections.all(initialized_only=True)
        )
        #: When refresh() was called last, in seconds on the monotonic clock.
        self.checked = time.monotonic()
        #: How often clean_up() has rolled something back.
        self.rollbacks = 0

    @classmethod
    def of_this_thread(cls) -> "Databases":
        """Return the connections of the calling thread as they are now, and note from now on those that it makes."""
        _thread.databases = cls()
        return _thread.databases

    def note(self, connection: BaseDatabaseWrapper) -> None:
        """Note a connection that the thread has just made."""
        alias = connection.alias
        # Connections besides those of the settings belong to whoever made them.
        if alias not in connections or connections[alias] is not connection:
            return
        if not any(held.connection is connection for held in self.held):
            others = [held for held in self.held if held.connection.alias != alias]
            self.held = (*others, _Held(connection, 0, connection.settings_dict["AUTOCOMMIT"]))

    def is_disturbed(self) -> bool:
        """Tell whether a handler has left something behind. Another thread may ask as well."""
        # A loop without a generator: this is done for every message.
        for held in self.held:  # noqa: SIM110
            if held.connection.errors_occurred or not held.is_as_found():
                return True
        return False

    def is_obsolete(self, now: float) -> bool:
        """Tell whether an open connection is older than its CONN_MAX_AGE. Another thread may ask as well."""
        return any(
            held.connection.connection is not None
            and held.connection.close_at is not None
            and held.connection.close_at <= now
            for held in self.held
        )

    def refresh(self) -> None:
        """Close what is unusable or too old."""
        self.checked = time.monotonic()
        for held in self.held:
            # Within a transaction Django would take the connection for broken.
            if not held.depth and held.is_as_found():
                try:
                    held.connection.close_if_unusable_or_obsolete()
                except Exception:
                    logger.exception("The connection to database %s cannot be closed", held.connection.alias)

    def clean_up(self) -> str:
        """Restore the state between two handlers; return what was left open, or ""."""
        disturbed = [held for held in self.held if not held.is_as_found()]
        # Counted first: who sees in another thread that nothing is disturbed any more sees this, too.
        self.rollbacks += bool(disturbed)
        left = [self._restore(held) for held in disturbed]
        self.refresh()
        return ", ".join(left)

    def _restore(self, held: _Held) -> str:
        connection = held.connection
        blocks = connection.atomic_blocks[held.depth :]
        what = "a transaction" if blocks else "autocommit off" if held.autocommit else "autocommit on"
        try:
            for block in reversed(blocks):
                block.__exit__(_LeftOpen, _LeftOpen(), None)
            if not held.depth and connection.connection is not None and connection.autocommit is not held.autocommit:
                connection.rollback()
                connection.set_autocommit(held.autocommit)
        except Exception:
            logger.exception("The transaction of database %s cannot be rolled back", connection.alias)
        if not held.is_as_found():
            _drop(connection)
        return f"{what} in database {connection.alias!r}"


def _drop(connection: BaseDatabaseWrapper) -> None:
    """Close a connection whatever its state: the server rolls back what it had open."""
    connection.in_atomic_block = connection.closed_in_transaction = connection.needs_rollback = False
    connection.savepoint_ids, connection.atomic_blocks = [], []
    try:
        connection.close()
    except Exception:
        logger.exception("The connection to database %s cannot be closed", connection.alias)


class _Thread(threading.local):
    databases: Databases | None = None


_thread = _Thread()


def _note(connection: BaseDatabaseWrapper, **_: object) -> None:
    if _thread.databases is not None:
        _thread.databases.note(connection)


connection_created.connect(_note, dispatch_uid="mq_django.consumers.worker.databases")
