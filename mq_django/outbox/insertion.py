"""Write publications into the outbox of a database, in the transaction that is open there; which databases have one."""

import logging
import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning  # noqa: A004 - as Django calls it
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connections, router, transaction

from mq_django.conf import read
from mq_django.core.handler_options import is_manual
from mq_django.core.keys import outbox_channel
from mq_django.core.logs import get_logger
from mq_django.core.publication import Publication
from mq_django.core.queue_configs import DeliveryOptions
from mq_django.errors import MQError, NoOutbox
from mq_django.models import OutboxMessage
from mq_django.outbox.rows import COLUMNS, sizes_fit, values_of
from mq_django.transport import test_mode
from mq_django.transport.connections import open_transport

logger = get_logger(__name__)

# Notify relays of new rows, from a thread in the background: no request waits for it.
#
# Notifications of one server are coalesced. After a failure none is sent for a second. Relays also look by
# themselves, so that a notification that is lost only costs time.


#: Seconds without notifications after a failure.
SILENCE = 1.0
#: Seconds without rows after which the thread ends.
LINGER = 30.0


class Notifier:
    """Sends notifications in a thread that starts at the first one, and ends when there are none any more."""

    def __init__(self) -> None:
        self._due = threading.Condition()
        #: The servers to notify: CONNECTION and channel.
        self._waiting: set[tuple[str, str]] = set()
        self._is_running = False

    def notify(self, connection: str, channel: str) -> None:
        """Have a notification sent to a server."""
        with self._due:
            self._waiting.add((connection, channel))
            if self._is_running:
                self._due.notify()
                return
            self._is_running = True
        threading.Thread(target=self._run, name="mq_django outbox notifier", daemon=True).start()

    def _run(self) -> None:
        while servers := self._next():
            failed = [self._send(*server) for server in servers].count(False)
            if failed:
                time.sleep(SILENCE)

    def _next(self) -> set[tuple[str, str]]:
        with self._due:
            if not self._waiting:
                self._due.wait(LINGER)
            servers, self._waiting = self._waiting, set()
            self._is_running = bool(servers)
            return servers

    @staticmethod
    def _send(connection: str, channel: str) -> bool:
        try:
            open_transport("produce", connection).ask(("PUBLISH", channel, "rows"))
        except MQError as error:
            logger.info("Relays are not notified of rows of the outbox, and find them later: %s", error)
            return False
        except BaseException:
            logger.exception("Relays are not notified of rows of the outbox, and find them later")
            return False
        return True


_notifier = Notifier()


def notify(destination: DeliveryOptions) -> None:
    """Notify the relays of the server of a queue or topic that there are rows."""
    _notifier.notify(destination.connection, outbox_channel(destination.namespace))


def _restart() -> None:
    global _notifier  # noqa: PLW0603 - the thread and the lock of the parent are not in a forked child
    _notifier = Notifier()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restart)

#: The most bytes of the rows of one statement. Servers limit that: MariaDB to 16 MiB by default.
STATEMENT_BYTES = 4 * 1024 * 1024
#: The most parameters of one statement, where Django knows no limit: PostgreSQL accepts 65,535.
PARAMETERS = 65_000

TABLE = "mq_django_outbox"
_SIZE = COLUMNS.index("size")
#: The columns with texts.
_TEXTS = 6
#: Errors of databases about a table that does not exist.
_MISSING = ("no such table", "does not exist", "doesn't exist")

#: Their errors about a write that they refuse: a replica, a file without the right to write, a setting.
_READ_ONLY = re.compile("read[- ]?only", re.IGNORECASE)

_NO_TABLE = (
    "Database {alias!r} has no table {table!r}, which queues and topics with OUTBOX need: run "
    "`manage.py migrate mq_django --database {alias}`, and let DATABASE_ROUTERS allow that. A migration "
    'that publishes must have ("mq_django", "0001_initial") in its dependencies'
)


def database_of(using: str | None) -> str:
    """Return the alias of the database whose outbox is used: `using`, or what the routers say for writing the model."""
    return using or router.db_for_write(OutboxMessage)


@contextmanager
def table_needed(alias: str) -> Iterator[None]:
    """Raise NoOutbox instead of the error of a database that has no table of the outbox, or is read-only.

    Args:
        alias: the alias of the database.
    """
    try:
        yield
    except DatabaseError as error:
        if TABLE in str(error) and any(text in str(error) for text in _MISSING):
            raise NoOutbox(_NO_TABLE.format(alias=alias, table=TABLE)) from error
        if _READ_ONLY.search(str(error)):
            raise NoOutbox(f"Database {alias!r} is read-only, and an outbox is written to: {error}") from error
        raise


def insert(publications: Sequence[Publication], alias: str, *, at_once: bool = False) -> None:
    """Write a row for each publication into a database, and have a relay notified after the commit.

    Args:
        publications: at least one.
        alias: the alias of the database.
        at_once: in a test with `mq_django.testing`, publish the rows without waiting for the commit.

    Raises:
        NoOutbox: the database has no outbox.
    """
    rows = values_of(publications)
    with table_needed(alias):
        if len(rows) == 1:
            _write(rows, alias)
        else:
            with transaction.atomic(using=alias, savepoint=False):
                for statement in _statements(rows, alias):
                    _write(statement, alias)
    committed = RowsCommitted(publications, alias)
    if at_once and test_mode.relay is not None:
        committed()
    elif not is_manual(connections[alias]):  # else relays find the rows at their next look
        transaction.on_commit(committed, using=alias, robust=True)


class RowsCommitted:
    """The hook of a transaction that has written rows: it has relays notified."""

    def __init__(self, publications: Sequence[Publication], alias: str) -> None:
        self.alias = alias
        self.publications = publications
        #: The hook was called.
        self.called = False
        test_mode.note_outbox(alias)
        self._destination = publications[0].options.destination
        #: The ids of the messages, for those who would wait for them in the transaction.
        self.outbox_ids = [message.id for message, _, _ in publications]
        # Django logs this name when a robust hook fails. An object has none.
        self.__qualname__ = insert.__qualname__

    def __call__(self) -> None:
        """Have relays notified, or in a test with `mq_django.testing` publish the rows."""
        self.called = True
        if test_mode.relay is None:
            notify(self._destination)
        else:
            test_mode.relay(self.alias)


def _statements(rows: Sequence[tuple[Any, ...]], alias: str) -> Iterator[Sequence[tuple[Any, ...]]]:
    most = (connections[alias].features.max_query_params or PARAMETERS) // _TEXTS
    while rows:
        count = sizes_fit([row[_SIZE] for row in rows[:most]], STATEMENT_BYTES)
        yield rows[:count]
        rows = rows[count:]


def _write(rows: Sequence[tuple[Any, ...]], alias: str) -> None:
    """Insert rows with one statement. Django's `bulk_create()` needs four times as long."""
    connection = connections[alias]
    columns = ", ".join(map(connection.ops.quote_name, COLUMNS))
    # Texts are parameters. Numbers are not, because drivers need longer for a parameter than for all else.
    texts = [value for row in rows for value in row if isinstance(value, str)]
    values = ", ".join([f"({', '.join(map(_sql, row))})" for row in rows])
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {TABLE} ({columns}) VALUES {values}", texts)  # noqa: S608 - names and numbers


def _sql(value: str | int | None) -> str:
    return "NULL" if value is None else "%s" if isinstance(value, str) else f"{value:d}"


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
#: Those without it, and when they are looked at again: waits for results ask again and again.
_without: dict[str, float] = {}
#: Seconds until then.
LOOK_AGAIN = 60.0


def aliases_with_rows() -> list[str]:
    """Return the aliases of the databases that may have rows. They are looked for once; in a test, its own are known.

    Raises:
        DatabaseError: a database cannot be reached.
    """
    if test_mode.relay is not None:
        return sorted(test_mode.outboxes)
    return [alias for alias in connections if _may_have_rows(alias)]


def _may_have_rows(alias: str) -> bool:
    if connections.databases[alias]["ENGINE"] == NO_DATABASE or not router.allow_migrate_model(alias, OutboxMessage):
        return False
    if alias not in _known and time.monotonic() >= _without.get(alias, 0.0):
        if has_table(alias):
            _known.add(alias)
        else:
            _without[alias] = time.monotonic() + LOOK_AGAIN
    return alias in _known


def has_table(alias: str) -> bool:
    """Return whether a database has the table of the outbox. Raises DatabaseError if it cannot be reached."""
    try:
        return TABLE in connections[alias].introspection.table_names()
    except AssertionError:  # from Django: the test that runs may not use this database
        return False


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
