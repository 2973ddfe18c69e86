"""The outboxes of the databases, for display: their counts and messages, and what is done with those set aside."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from django.apps import apps
from django.db import DEFAULT_DB_ALIAS, connections, router, transaction
from django.db import Error as AnyDatabaseError
from django.db.models import Count, Min, Q, QuerySet
from django.db.models.functions import Length

from mq_django.conf import get_config
from mq_django.core import clock
from mq_django.core.jsontext import LAST_MS, loads, whole
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.core.partitions import public_name
from mq_django.core.project import Thresholds, exceeds
from mq_django.core.redaction import redact, redact_forms, redact_text
from mq_django.core.texts import class_name
from mq_django.errors import DecodeError
from mq_django.inspector.message_views import MessageView
from mq_django.outbox.row_body import contents_of
from mq_django.stores.activity import Effect, Given, recorded
from mq_django.transport import test_mode

#: Rows that are counted of one database. A page stays fast however many there are.
MAX_ROWS = 100_000
#: Destinations whose rows that are kept are counted.
MAX_RETAINED = 1000

#: The database of a project without one.
NO_DATABASE = "django.db.backends.dummy"

#: The table of the messages.
TABLE = "mq_django_outbox"

#: What can be wrong with the outbox of a destination, the worst first.
OutboxProblem = Literal["unreadable", "stopped", "late", "set aside"]

#: Rows that are not published yet, and not set aside; and those that are kept until their messages are handled.
WAITS, IS_RETAINED = Q(batch=None) | Q(batch__gt=0), Q(batch__lt=0)

#: Databases that are known to have the tables.
_with_tables: set[str] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxView:
    """What the outbox of a database has for one queue or topic."""

    #: The alias of the database.
    database: str
    #: The name of the queue or topic; "" if the database cannot be read.
    destination: str = ""
    #: Messages that are not published yet.
    waiting: int = 0
    #: Messages that cannot be published. They wait for an operator.
    set_aside: int = 0
    #: Messages that are published, and whose rows are kept until they are handled.
    retained: int = 0
    #: For how long the oldest waiting message has waited, in ms; None without any.
    waited_ms: int | None = None
    #: Whether there are more rows in the database than were counted.
    is_more: bool = False
    #: Why nothing is published to it, such as a copied database; "" if it is.
    stopped: str = ""
    #: Why the database cannot be read; "" if it can.
    error: str = ""

    def problems(self, thresholds: Thresholds | None = None) -> list[OutboxProblem]:
        """Return its problems, the worst first. None: by the thresholds of the settings."""
        most = (thresholds or get_config().thresholds).max_outbox_age
        wrong: dict[OutboxProblem, bool] = {
            "unreadable": bool(self.error),
            "stopped": bool(self.stopped),
            "late": exceeds((self.waited_ms or 0) / 1000, most),
            "set aside": self.set_aside > 0,
        }
        return [problem for problem, exists in wrong.items() if exists]


def _model(name: str) -> Any:
    """Return a model. Projects may import the inspector before Django has loaded its apps, so no model is imported."""
    return apps.get_model("mq_django", name)


def uses_outbox() -> bool:
    """Return whether a queue or topic has the option OUTBOX."""
    return any(_configured())


def _configured() -> Iterator[str]:
    """Yield the names of the queues and topics that have the option OUTBOX."""
    config = get_config()
    return (found.name for found in (*config.queues.values(), *config.topics.values()) if found.outbox)


def outbox_databases() -> list[str]:
    """Return the aliases of the databases that have the tables of the outbox, the default one first."""
    # What one test may use, the next one may not.
    known = _with_tables if test_mode.relay is None else ()
    found = [alias for alias in connections if alias in known or _has_table(alias)]
    return sorted(found, key=lambda alias: (alias != DEFAULT_DB_ALIAS, alias))


def publish_database() -> str:
    """Return the alias of the database into which `publish()` writes rows, as the routers say."""
    alias: str = router.db_for_write(_model("OutboxMessage"))
    return alias


def _has_table(alias: str) -> bool:
    """Return whether a database has the tables. If it cannot be reached, it is one of those that may."""
    if connections.databases[alias]["ENGINE"] == NO_DATABASE or not router.allow_migrate_model(
        alias, _model("OutboxMessage")
    ):
        return False
    try:
        with transaction.atomic(using=alias):
            tables = connections[alias].introspection.table_names()
    except AnyDatabaseError:
        return True
    except AssertionError:  # from Django: the test that runs may not use this database
        return False
    if TABLE not in tables:
        return False
    _with_tables.add(alias)
    return True


def outboxes(*, at_most: int | None = MAX_ROWS, database: str | None = None) -> list[OutboxView]:
    """Return what the outboxes of all databases have, by database and destination.

    Args:
        at_most: rows that are counted of one database; None: all.
        database: the alias of the only database that is read; None: all that have an outbox.
    """
    aliases = outbox_databases() if database is None else [database]
    return [view for alias in aliases for view in _views(alias, at_most)]


def outboxes_of(queues: Collection[str]) -> list[OutboxView]:
    """Return what the outboxes have for queues and for the topics of groups, or without names for all.

    It is nothing if no queue or topic has OUTBOX. A database that cannot be read concerns each one that has it.
    """
    users = set(_configured())
    names = {public_name(name).partition(GROUP_SEPARATOR)[0] for name in queues}
    found = [view for alias in outbox_databases() for view in _views(alias, MAX_ROWS, names)] if users else []
    return [view for view in found if not view.error or not names or names & users]


def _views(alias: str, at_most: int | None, names: Collection[str] = ()) -> list[OutboxView]:
    try:
        # A savepoint, so that an error leaves a transaction of the request as it is.
        with transaction.atomic(using=alias):
            return list(_read(alias, at_most, names))
    except AnyDatabaseError as error:
        return [OutboxView(database=alias, error=str(error).strip() or class_name(type(error)))]


def _read(alias: str, at_most: int | None, names: Collection[str]) -> Iterator[OutboxView]:
    """Yield what a database has for queues and topics with these names, or without names for all."""
    rows, now_ms = _model("OutboxMessage").objects.using(alias), clock.now_ms()
    rows = rows.filter(destination__in=names) if names else rows
    retained = _retained(rows, at_most)
    rows = rows.exclude(IS_RETAINED)
    end = None if at_most is None else _end(rows, at_most)
    counted = rows if end is None else rows.filter(id__lt=end)
    found: dict[str, dict[str, Any]] = {
        _name(row["destination"]): {name: row[name] for name in ("waiting", "set_aside", "oldest_ms")}
        for row in counted.order_by()
        .values("destination")
        .annotate(
            waiting=Count("id", filter=WAITS),
            set_aside=Count("id", filter=Q(batch=0)),
            oldest_ms=Min("published_ms", filter=WAITS & Q(published_ms__range=(0, LAST_MS))),
        )
    }
    problems = _model("OutboxState").objects.using(alias).exclude(problem="").order_by("id")
    stopped = {_name(where): _name(why) for where, why in problems.values_list("destination", "problem")}
    # Where publish() writes without `using`. Those without messages are shown there, with 0.
    usual = _configured() if alias == publish_database() else ()
    every = {*found, *stopped, *usual, *retained}
    for destination in sorted(every.intersection(names) if names else every):
        row = found.get(destination, {"waiting": 0, "set_aside": 0, "oldest_ms": None})
        oldest_ms = row.pop("oldest_ms")
        yield OutboxView(
            database=alias,
            destination=destination,
            waited_ms=None if oldest_ms is None else max(0, now_ms - oldest_ms),
            is_more=end is not None,
            stopped=stopped.get(destination, ""),
            retained=retained.get(destination, 0),
            **row,
        )


def _name(written: str | bytes) -> str:
    """Return a text. SQLite also keeps bytes in a column of text, if another program writes some."""
    return written if isinstance(written, str) else bytes(written).decode(errors="replace")


def _retained(rows: QuerySet[Any], at_most: int | None) -> dict[str, int]:
    """Return how many rows are kept of each destination, up to `at_most`: also of one that has lost the option."""
    found, retained = dict[str, int](), rows.filter(batch=-1)
    # By the index from name to name. Bytes come after all text.
    names = retained.order_by("destination").values_list("destination", flat=True)
    name: object = names.first()
    while isinstance(name, str) and len(found) < MAX_RETAINED:
        found[name] = retained.filter(destination=name)[:at_most].count()
        name = names.filter(destination__gt=name).first()
    return found


def _end(rows: QuerySet[Any], at_most: int) -> int | None:
    """Return the id of the first row that is not counted; None if all are."""
    return rows.order_by("id").values_list("id", flat=True)[at_most : at_most + 1].first()


# The messages of an outbox, and what an operator does with those that were set aside.

#: Rows that a statement changes: SQLite and MariaDB limit its parameters and locks.
BATCH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxRow:
    """A message in an outbox, with the secrets in its names and its error replaced."""

    #: The number of the row.
    id: int
    #: The name of the queue or topic.
    destination: str
    message_id: str
    name: str
    key: str | None
    #: Bytes in the database.
    size: int
    #: When it was published, as its publisher sees it, in ms since 1970.
    published_ms: int
    #: When it is due; None: as soon as Redis has it.
    due_ms: int | None
    #: Whether a relay has claimed it.
    is_claimed: bool
    is_set_aside: bool
    #: Why it was set aside; "" if it was not.
    error: str
    #: When it was set aside.
    failed_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxPage:
    """Some messages of an outbox, the oldest first."""

    rows: Sequence[OutboxRow]
    #: The number of the last row if there are more; else None.
    after: int | None


def page_of(
    database: str, destination: str = "", *, set_aside: bool = False, after: int = 0, limit: int = 50
) -> OutboxPage:
    """Return messages of the outbox of a database.

    Args:
        database: the alias of the database.
        destination: a queue or topic; "": all.
        set_aside: only those that were set aside, instead of those that wait.
        after: the number of the row before the first one; 0: there is none.
        limit: maximum messages.
    """
    rows = _chosen(database, destination, set_aside=set_aside).order_by("id")
    # Without it also the rows of numbers that no database gives.
    rows = rows.filter(id__gt=after) if after else rows
    found = list(rows.defer("body")[: limit + 1])
    more = len(found) > limit
    return OutboxPage(rows=list(map(_row, found[:limit])), after=found[limit - 1].pk if more else None)


def get(database: str, row: int) -> OutboxRow | None:
    """Return a message by the number of its row; None if it is no longer there."""
    found = _model("OutboxMessage").objects.using(database).defer("body").filter(pk=row).first()
    return None if found is None else _row(found)


#: A longer body is not read for a page.
MAX_BODY = 1024 * 1024


def get_message(database: str, row: int) -> MessageView | None:
    """Return what the message of a row has, with the secrets in it replaced; None if the row is no longer there.

    Without its data if it is longer than MAX_BODY, and with the problem if the row has no message.
    """
    rows = _model("OutboxMessage").objects.using(database).annotate(length=Length("body")).defer("body")
    found = rows.filter(pk=row).first()
    if found is None:
        return None
    shown = _row(found)
    about: dict[str, Any] = {
        "id": shown.message_id,
        "name": shown.name,
        "key": shown.key,
        "size": shown.size,
        "published_ms": shown.published_ms or None,
        "error": shown.error,
    }
    if found.length > MAX_BODY:
        return MessageView(**about)
    try:
        contents, data = contents_of(_name(found.body))
        return MessageView(**about, **_attributes(contents["message"]), data=redact(loads(data)), has_data=True)
    except DecodeError as error:
        return MessageView(**about, problem=redact_text(str(error)))


def _attributes(found: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes in the body of a row that have their types. Any program may have written it."""
    priority, unique, headers = found.get("priority"), found.get("unique"), found.get("headers")
    pairs = headers.items() if isinstance(headers, dict) else ()
    return {
        "priority": priority if isinstance(priority, int) else 0,
        "unique": unique if isinstance(unique, str) else None,
        "headers": redact({name: value for name, value in pairs if isinstance(value, str)}),
        "expires_ms": whole(found.get("expires_ms"), LAST_MS),
    }


def _rows_of(given: Given) -> list[str]:
    return [given["database"], *map(str, given["rows"])]


@recorded("retry outbox", queue="destination", about=_rows_of)
def retry(database: str, rows: Collection[int] = (), *, destination: str = "") -> int:
    """Let messages that were set aside be published again; return how many there were.

    Args:
        database: the alias of the database.
        rows: the numbers of their rows; none: all that were set aside.
        destination: only rows of this queue or topic; "": of all.
    """
    return _each(database, rows, destination, lambda chosen: chosen.update(batch=None, error="", failed_ms=None))


@recorded("discard outbox", queue="destination", about=_rows_of)
def discard(database: str, rows: Collection[int] = (), *, destination: str = "") -> int:
    """Delete messages that were set aside, and return how many there were. See retry() for the arguments."""
    return _each(database, rows, destination, lambda chosen: chosen.delete()[0])


@recorded("renew outbox", queue="", about="database", effect=lambda _, count: Effect(1, f"{count} continued"))
def renew(database: str) -> int:
    """Give the outbox of a copied database an identity of its own; return how many queues and topics were stopped."""
    with transaction.atomic(using=database):
        states = _model("OutboxState").objects.using(database)
        stopped: int = states.exclude(problem="").update(problem="", problem_ms=None)
        _model("OutboxIdentity").objects.using(database).all().delete()
    return stopped


def _each(database: str, rows: Collection[int], destination: str, do: Callable[[QuerySet[Any]], int]) -> int:
    """Change messages that were set aside before this call, some at a time: each transaction is short."""
    aside = _chosen(database, destination, set_aside=True)
    chosen = aside.filter(pk__in=rows) if rows else aside
    ids = list(chosen.order_by("id").values_list("id", flat=True))
    done = 0
    for start in range(0, len(ids), BATCH):
        with transaction.atomic(using=database):
            done += do(aside.filter(pk__in=ids[start : start + BATCH]))
    return done


def _chosen(database: str, destination: str, *, set_aside: bool) -> QuerySet[Any]:
    rows: QuerySet[Any] = _model("OutboxMessage").objects.using(database)
    # Those that were set aside have an index of their own.
    rows = rows.filter(batch=0) if set_aside else rows.filter(WAITS)
    return rows.filter(destination=destination) if destination else rows


def _row(found: Any) -> OutboxRow:
    return OutboxRow(
        id=found.pk,
        destination=_name(found.destination),
        message_id=redact_forms(_name(found.message_id)),
        name=redact_forms(_name(found.name)),
        key=None if found.key is None else redact_forms(_name(found.key)),
        # In SQLite any column may have text.
        size=whole(found.size) or 0,
        published_ms=whole(found.published_ms, LAST_MS) or 0,
        due_ms=whole(found.due_ms, LAST_MS),
        is_claimed=bool(found.batch),
        is_set_aside=found.batch == 0,
        error=redact_text(_name(found.error)),
        failed_ms=whole(found.failed_ms, LAST_MS),
    )
