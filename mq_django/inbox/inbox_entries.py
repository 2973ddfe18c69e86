"""Write and find the rows of the inbox.

Where a database locks rows, the row is written before the handler runs, so that a second delivery of the message finds
it busy. SQLite locks the whole database: a row at the beginning would block all other writers while the handler runs.
There the row is written at the end, and the unique key decides which of two deliveries commits.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from django.db import DatabaseError, IntegrityError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from mq_django.core import clock
from mq_django.core.outcomes import Ack
from mq_django.inbox.identity import Identity, shown
from mq_django.inbox.inbox_tables import inbox_messages
from mq_django.inbox.stored_outcomes import decode, encode

#: Seconds for which MySQL and MariaDB wait for the transaction of another delivery.
LOCK_WAIT = 1

#: Errors of MySQL and MariaDB: waited too long for a lock; a deadlock with other deliveries of the message.
_MYSQL_BUSY = frozenset({1205, 1213})
#: Of PostgreSQL: in stricter isolation levels than the default; a deadlock; waited too long for a lock.
_POSTGRESQL_BUSY = frozenset({"40001", "40P01", "55P03"})
#: For how long PostgreSQL waits for the transactions of other deliveries of some messages.
_LOCK_TIMEOUT = f"{LOCK_WAIT}s"
#: Until the end of the transaction.
_SET_LOCK_TIMEOUT = "SELECT set_config('lock_timeout', %s, true)"
#: Of MySQL and MariaDB, after the rows: it ends with the transaction, whoever ends that.
_SAVEPOINT = "mq_django_inbox"
#: That of a transaction that can be committed, as libpq numbers them: PQTRANS_INTRANS.
_IN_TRANSACTION = 2
#: Rows of one statement.
ROWS = 500

#: The columns of a row.
Row = tuple[str, str, str, str, int, str, int]

_INTO = "mq_django_inbox (digest, queue, message_id, handler, number, outcome, created_ms)"
_VALUES = "%s, %s, %s, %s, %s, %s, %s"
_UNLOCKED = "INSERT INTO " + _INTO + " VALUES (" + _VALUES + ")"  # noqa: S608 - constants
#: Without waiting for the lock of another delivery. It ends with its transaction, whoever ends that.
_LOCKED = "INSERT INTO " + _INTO + " SELECT " + _VALUES + " WHERE pg_try_advisory_xact_lock(%s) ON CONFLICT DO NOTHING"
_MARIADB = f"SET STATEMENT innodb_lock_wait_timeout={LOCK_WAIT} FOR {_UNLOCKED}"
_MYSQL = _UNLOCKED.replace("INSERT", f"INSERT /*+ SET_VAR(innodb_lock_wait_timeout={LOCK_WAIT}) */")


class Taken(Exception):
    """The row of a message could not be written, because there is one or another transaction writes it."""


class Entries:
    """The inbox of one database, for one thread.

    Args:
        using: the alias of the database.
    """

    def __init__(self, using: str) -> None:
        self._using = using
        self._connection: BaseDatabaseWrapper = connections[using]
        vendor = self._connection.vendor
        #: The row is written before the handler runs.
        self.writes_first = vendor in ("postgresql", "mysql")
        #: The database does not wait for another delivery of the message, so that the caller must.
        self.never_waits = vendor == "postgresql"
        #: How many blocks of atomic() were open when the rows were written.
        self._depth = 0

    def find(self, identity: Identity) -> Ack | None:
        """Return how a message was acked; None: it has no row."""
        rows = inbox_messages().objects.using(self._using).filter(pk=identity.digest())
        found = rows.values_list("outcome", flat=True).first()
        return None if found is None else decode(found)

    def handled(self, identities: Sequence[Identity]) -> set[Identity]:
        """Return those that have rows."""
        digests = {identity.digest(): identity for identity in identities}
        names, found = list(digests), set[str]()
        for start in range(0, len(names), ROWS):
            rows = inbox_messages().objects.using(self._using).filter(pk__in=names[start : start + ROWS])
            found.update(rows.values_list("pk", flat=True))
        return {identity for digest, identity in digests.items() if digest in found}

    def add(self, identity: Identity) -> None:
        """Write the row of a message, in the transaction of its handler.

        Raises:
            Taken: there is one, or another transaction writes it. This transaction must be rolled back.
            DatabaseError: the database failed.
        """
        self._add(partial(self._write, _row(identity)))

    def add_all(self, identities: Sequence[Identity]) -> None:
        """Write the rows of several messages like add()."""
        # In one order, so that two transactions wait for each other at most in one direction.
        rows = sorted(map(_row, identities))
        for start in range(0, len(rows), ROWS):
            self._add(partial(self._write_all, rows[start : start + ROWS]))

    def is_lost(self) -> bool:
        """Return whether the transaction that add() was called in has ended, or can only be rolled back.

        A database does that by itself when a statement fails, and not all of them say so in a way that Django knows:
        PostgreSQL refuses all later statements, MySQL and MariaDB roll back after a deadlock, SQLite when the disk is
        full. A handler that catches the error may go on, and what it has done is gone.
        """
        raw, vendor = self._connection.connection, self._connection.vendor
        if raw is None:
            return True
        if vendor == "postgresql":
            return int(raw.info.transaction_status) != _IN_TRANSACTION
        if vendor == "sqlite":
            return not raw.in_transaction
        # If a block is left open, its own end says so, and it needs its savepoint.
        is_open = len(self._connection.savepoint_ids) > self._depth
        return vendor == "mysql" and not is_open and not self._released()

    def _released(self) -> bool:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(f"RELEASE SAVEPOINT {_SAVEPOINT}")
        except DatabaseError:
            return False
        return True

    def _add(self, write: Callable[[], bool]) -> None:
        try:
            is_written = write()
        except DatabaseError as error:
            if _is_taken(error):
                raise Taken from error
            raise
        if not is_written:
            raise Taken
        if self._connection.vendor == "mysql":
            self._depth = len(self._connection.savepoint_ids)
            with self._connection.cursor() as cursor:
                cursor.execute(f"SAVEPOINT {_SAVEPOINT}")

    def keep(self, identity: Identity, outcome: Ack) -> None:
        """Write to the row how the message was acked."""
        text = encode(outcome)
        if text:
            inbox_messages().objects.using(self._using).filter(pk=identity.digest()).update(outcome=text)

    def _write(self, row: tuple[Any, ...]) -> bool:
        vendor, sql = self._connection.vendor, _UNLOCKED
        if vendor == "postgresql":
            sql, row = _LOCKED, (*row, int.from_bytes(bytes.fromhex(row[0][:16]), signed=True))
        elif vendor == "mysql":
            sql = _MARIADB if getattr(self._connection, "mysql_is_mariadb", False) else _MYSQL
        with self._connection.cursor() as cursor:
            cursor.execute(sql, row)
            return bool(cursor.rowcount)

    def _write_all(self, rows: Sequence[Row]) -> bool:
        vendor, sql = self._connection.vendor, _UNLOCKED + f", ({_VALUES})" * (len(rows) - 1)
        if vendor == "mysql":
            sql = sql.replace(_UNLOCKED, _MARIADB if getattr(self._connection, "mysql_is_mariadb", False) else _MYSQL)
        with self._connection.cursor() as cursor:
            if vendor != "postgresql":
                cursor.execute(sql, [value for row in rows for value in row])
                return int(cursor.rowcount) == len(rows)
            # Not by advisory locks: a server has a limited number of them.
            cursor.execute("SHOW lock_timeout")
            before = cursor.fetchone()[0]
            cursor.execute(_SET_LOCK_TIMEOUT, [_LOCK_TIMEOUT])
            cursor.execute(f"{sql} ON CONFLICT DO NOTHING", [value for row in rows for value in row])
            is_written = int(cursor.rowcount) == len(rows)
            if is_written:
                cursor.execute(_SET_LOCK_TIMEOUT, [before])
            return is_written


def _row(identity: Identity) -> Row:
    return (
        identity.digest(),
        shown(identity.queue, 321),
        shown(identity.message_id, 255),
        shown(identity.handler, 255),
        identity.number,
        "",
        clock.now_ms(),
    )


def _is_taken(error: DatabaseError) -> bool:
    """Return whether another transaction has written the row, or is about to."""
    # The digest is the only value that can be refused.
    if isinstance(error, IntegrityError):
        return True
    cause: Any = error.__cause__
    code = cause.args[0] if cause is not None and cause.args else None
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    is_locked = str(getattr(cause, "sqlite_errorname", "")).startswith("SQLITE_BUSY")
    return is_locked or state in _POSTGRESQL_BUSY or code in _MYSQL_BUSY
