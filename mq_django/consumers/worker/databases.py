"""The database connections of a thread that runs handlers, and the clean-up after each handler."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from mq_django.core.logs import get_logger

logger = get_logger(__name__)

#: Seconds between two checks whether connections are too old. An error of a database causes a check at once.
CONNECTION_CHECK = 1.0


class _LeftOpen(Exception):
    """Raised in blocks of `atomic` that a handler has left open, to roll them back."""


@dataclass(slots=True)
class _Held:
    """A connection of the thread, and its state between two handlers."""

    connection: BaseDatabaseWrapper
    #: The number of open blocks of `atomic`, and whether autocommit is on. Usually 0 and True, but a test may run
    #: handlers within a transaction.
    depth: int
    autocommit: bool
    #: Returns whether a connection of the driver is in a transaction that Django has not begun; None: cannot be known.
    has_begun: Callable[[Any], bool] | None

    @classmethod
    def of(cls, connection: BaseDatabaseWrapper) -> Self:
        """Return a connection in its state now, or as it will be when it is opened."""
        if connection.connection is None:
            # Django sets its state only then.
            depth, autocommit = 0, connection.settings_dict["AUTOCOMMIT"]
        else:
            depth, autocommit = len(connection.atomic_blocks), connection.autocommit
        has_begun = None if depth or not autocommit else _HAS_BEGUN.get(connection.vendor)
        return cls(connection, depth, autocommit, has_begun)

    def is_as_found(self) -> bool:
        connection = self.connection
        if connection.connection is None:
            return True
        if len(connection.atomic_blocks) != self.depth or connection.autocommit is not self.autocommit:
            return False
        return self.has_begun is None or not self.has_begun(connection.connection)


def _sqlite_has_begun(raw: Any) -> bool:
    try:
        return bool(raw.in_transaction)
    except Exception:  # noqa: BLE001 - a handler may have closed it
        return False


def _postgresql_has_begun(raw: Any) -> bool:
    try:
        # `info` of psycopg 3 would make two objects for each message. Version 2 has no `pgconn`.
        found = raw.pgconn.transaction_status if hasattr(raw, "pgconn") else raw.info.transaction_status
    except Exception:  # noqa: BLE001 - as above
        return False
    return found in _IN_TRANSACTION


#: The codes of PostgreSQL's library for a transaction that is open, or has failed.
_IN_TRANSACTION = (2, 3)

#: By vendor. These drivers know it without asking the server.
_HAS_BEGUN: dict[str, Callable[[Any], bool]] = {"sqlite": _sqlite_has_begun, "postgresql": _postgresql_has_begun}


class Databases:
    """The connections that a thread has opened.

    The signal `connection_created` reports each. Asking Django for each message would cost more than everything else
    that is done for it.
    """

    def __init__(self, *, is_consumers: bool) -> None:
        #: Whether the thread is one of a consumer, and not one in which a test looks at its queries.
        self._is_consumers = is_consumers
        #: The connections. Replaced as a whole, because the event loop reads it while another thread adds one.
        self.held = tuple(_Held.of(connection) for connection in connections.all(initialized_only=True))
        #: The time of the last refresh() on the monotonic clock.
        self.checked = time.monotonic()
        #: How many times clean_up() has rolled something back.
        self.rollbacks = 0

    @classmethod
    def of_this_thread(cls) -> "Databases":
        """Return the connections of the calling thread, which from now on adds those that it opens."""
        _thread.databases = cls(is_consumers=True)
        return _thread.databases

    def note(self, connection: BaseDatabaseWrapper) -> None:
        """Add a connection that the thread has just opened."""
        alias = connection.alias
        # Connections that are not in the settings belong to the code that made them.
        if alias not in connections or connections[alias] is not connection:
            return
        if not any(held.connection is connection for held in self.held):
            others = [held for held in self.held if held.connection.alias != alias]
            self.held = (*others, _Held.of(connection))

    def is_disturbed(self) -> bool:
        """Return whether a handler has left a connection in another state. For any thread."""
        # A loop is faster than a generator, and than is_as_found(): this runs for every message.
        for held in self.held:
            connection = held.connection
            if connection.errors_occurred or (
                (raw := connection.connection) is not None
                and (
                    len(connection.atomic_blocks) != held.depth
                    or connection.autocommit is not held.autocommit
                    or (held.has_begun is not None and held.has_begun(raw))
                )
            ):
                return True
        return False

    def is_obsolete(self, now: float) -> bool:
        """Return whether an open connection is older than its CONN_MAX_AGE. For any thread."""
        return any(
            held.connection.connection is not None
            and held.connection.close_at is not None
            and held.connection.close_at <= now
            for held in self.held
        )

    def refresh(self) -> None:
        """Close connections that are unusable or too old, and forget the queries that Django logs with DEBUG."""
        self.checked = time.monotonic()
        for held in self.held:
            if self._is_consumers:
                # As at the start of a request. Django keeps 9,000 for each connection.
                held.connection.queries_log.clear()
            # Within a transaction Django would consider the connection broken.
            if not held.depth and held.is_as_found():
                try:
                    held.connection.close_if_unusable_or_obsolete()
                except Exception:
                    logger.exception("Cannot close the connection to database %s", held.connection.alias)

    def clean_up(self) -> str:
        """Restore the state between two handlers; return a description of what was left open, or ""."""
        disturbed = [held for held in self.held if not held.is_as_found()]
        # Counted first: a thread that sees the restored connections must see the new count.
        self.rollbacks += bool(disturbed)
        left = [self._restore(held) for held in disturbed]
        self.refresh()
        return ", ".join(left)

    def _restore(self, held: _Held) -> str:
        connection = held.connection
        blocks = connection.atomic_blocks[held.depth :]
        what = "autocommit off" if held.autocommit else "autocommit on"
        if blocks or connection.autocommit is held.autocommit:
            what = "a transaction"
        try:
            for block in reversed(blocks):
                block.__exit__(_LeftOpen, _LeftOpen(), None)
            if not held.depth and not held.is_as_found():
                connection.rollback()
                connection.set_autocommit(held.autocommit)
        except Exception:
            logger.exception("Cannot roll back the transaction of database %s", connection.alias)
        if not held.is_as_found():
            _drop(connection)
        return f"{what} in database {connection.alias!r}"


def _drop(connection: BaseDatabaseWrapper) -> None:
    """Close a connection in any state. The server rolls back its transaction."""
    connection.in_atomic_block = connection.closed_in_transaction = connection.needs_rollback = False
    connection.savepoint_ids, connection.atomic_blocks = [], []
    try:
        connection.close()
    except Exception:
        logger.exception("Cannot close the connection to database %s", connection.alias)


class _Thread(threading.local):
    databases: Databases | None = None


_thread = _Thread()


@contextmanager
def databases_within() -> Iterator[Databases]:
    """Return the connections of a test's thread for the time of a block, and restore what the thread had before."""
    before = _thread.databases
    try:
        _thread.databases = Databases(is_consumers=False)
        yield _thread.databases
    finally:
        _thread.databases = before


def _note(connection: BaseDatabaseWrapper, **_: object) -> None:
    if _thread.databases is not None:
        _thread.databases.note(connection)


connection_created.connect(_note, dispatch_uid="mq_django.consumers.worker.databases")
