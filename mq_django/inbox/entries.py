"""Write and find the rows of the inbox.

Where a database locks rows, the row is written before the handler runs, so that a second delivery of the message finds
it busy. SQLite locks the whole database: a row at the beginning would block all other writers while the handler runs.
There the row is written at the end, and the unique key decides which of two deliveries commits.
"""

import json
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple, Self

from django.apps import apps
from django.db import DatabaseError, IntegrityError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from mq_django.core import clock
from mq_django.core.messages import ACK, Ack, Message, StepEnd
from mq_django.core.partitions import public_name
from mq_django.core.texts import escape

# The models of the inbox, and whether their tables are there.
#
# Projects import `mq_django` before Django has loaded its apps, so no module here imports a model.

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


class Identity(NamedTuple):
    """What a row of the inbox is for: a message, a handler, and a pass.

    It names no partition: after a repartition the effects would happen again. It names no generation of a group: they
    would after a seek.
    """

    #: The name of the queue as a whole, or of the group as `topic:group`.
    queue: str
    message_id: str
    #: In a queue with partitions, two messages with different keys may have the same id.
    key: str | None
    #: The name under which the handler is registered.
    handler: str
    #: The number of the pass.
    number: int = 0

    @classmethod
    def of(cls, message: Message, queue: str, handler: str) -> Self:
        """Return the identity in the first pass.

        Args:
            message: that is handled.
            queue: the name of its queue, of a partition, or of a group as `topic:group`.
            handler: the name under which the handler is registered.
        """
        return cls(public_name(queue), message.id, message.key, handler)

    def digest(self) -> str:
        """Return a SHA-256 in hexadecimal."""
        return digest_of(*self)


def digest_of(*parts: str | int | None) -> str:
    """Return the SHA-256 of some values in hexadecimal. JSON separates them: no value can look like two."""
    return sha256(json.dumps(parts).encode()).hexdigest()


def shown(text: str, limit: int) -> str:
    """Return text for people in a column of `limit` characters: in ASCII, whatever the database accepts."""
    return escape(text).encode("ascii", "backslashreplace").decode()[:limit]


# How the inbox keeps an ack: the result of a task, and what a step of a workflow notes for its run.


def encode(outcome: Ack) -> str:
    """Return an ack as ASCII JSON; "" for one without a result."""
    found: dict[str, Any] = {}
    if outcome.result is not None:
        found["result"] = _text(outcome.result)
    if isinstance(outcome, StepEnd):
        found |= {"event": outcome.event, "value": _text(outcome.value), "added": outcome.added}
    return json.dumps(found) if found else ""


def decode(text: str) -> Ack:
    """Return the ack that encode() has written; an ack without a result if it cannot be read."""
    if not text:
        return ACK
    try:
        found = json.loads(text)
        result = _bytes(found["result"]) if "result" in found else None
        if "event" not in found:
            return Ack(result)
        return StepEnd(result, _bytes(found["value"]), str(found["added"]))
    except (ValueError, TypeError, KeyError, AttributeError):
        return ACK


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


#: Seconds for which MySQL and MariaDB wait for the transaction of another delivery.
LOCK_WAIT = 1

#: Errors of MySQL and MariaDB: waited too long for a lock; a deadlock with other deliveries of the message.
_MYSQL_BUSY = frozenset({1205, 1213})
#: Of PostgreSQL: in stricter isolation levels than the default; a deadlock; waited too long for a lock.
_POSTGRESQL_BUSY = frozenset({"40001", "40P01", "55P03"})
#: For how long PostgreSQL waits for the transactions of other deliveries of some messages.
_LOCK_TIMEOUT = f"{LOCK_WAIT}s"
#: It holds until the end of the transaction.
_SET_LOCK_TIMEOUT = "SELECT set_config('lock_timeout', %s, true)"
#: Set after the rows, for MySQL and MariaDB. The end of the transaction removes it.
_SAVEPOINT = "mq_django_inbox"
#: libpq's number for a transaction that can be committed: PQTRANS_INTRANS.
_IN_TRANSACTION = 2
#: Rows of one statement.
ROWS = 500

#: The columns of a row.
Row = tuple[str, str, str, str, int, str, int]

_INTO = "mq_django_inbox (digest, queue, message_id, handler, number, outcome, created_ms)"
_VALUES = "%s, %s, %s, %s, %s, %s, %s"
_UNLOCKED = "INSERT INTO " + _INTO + " VALUES (" + _VALUES + ")"  # noqa: S608 - constants
#: Without waiting for the lock of another delivery. It ends with its transaction.
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
