"""The messages of an outbox, and what an operator does with those that were set aside."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from django.db import transaction
from django.db.models import QuerySet

from mq_django.core.numbers import LAST_MS, whole
from mq_django.core.redaction import redact_forms, redact_text
from mq_django.inspector.outbox_views import WAITS
from mq_django.models import OutboxIdentity, OutboxMessage, OutboxState

#: Rows that one statement changes: SQLite and MariaDB limit its parameters and locks.
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
        limit: the most messages.
    """
    rows = _chosen(database, destination, set_aside=set_aside).order_by("id")
    # Without it also the rows of numbers that no database gives.
    rows = rows.filter(id__gt=after) if after else rows
    found = list(rows.defer("body")[: limit + 1])
    more = len(found) > limit
    return OutboxPage(rows=list(map(_row, found[:limit])), after=found[limit - 1].pk if more else None)


def get(database: str, row: int) -> OutboxRow | None:
    """Return a message by the number of its row; None if it is no longer there."""
    found = OutboxMessage.objects.using(database).defer("body").filter(pk=row).first()
    return None if found is None else _row(found)


def retry(database: str, rows: Collection[int] = (), *, destination: str = "") -> int:
    """Let messages that were set aside be published again; return how many there were.

    Args:
        database: the alias of the database.
        rows: the numbers of their rows; none: all that were set aside.
        destination: only those of a queue or topic; "": of all.
    """
    return _each(database, rows, destination, lambda chosen: chosen.update(batch=None, error="", failed_ms=None))


def discard(database: str, rows: Collection[int] = (), *, destination: str = "") -> int:
    """Delete messages that were set aside, and return how many there were. See retry() for the arguments."""
    return _each(database, rows, destination, lambda chosen: chosen.delete()[0])


def renew(database: str) -> int:
    """Give the outbox of a copied database an identity of its own; return how many queues and topics were stopped."""
    with transaction.atomic(using=database):
        stopped = OutboxState.objects.using(database).exclude(problem="").update(problem="", problem_ms=None)
        OutboxIdentity.objects.using(database).all().delete()
    return stopped


def _each(database: str, rows: Collection[int], destination: str, do: Callable[[QuerySet[OutboxMessage]], int]) -> int:
    """Change messages that were set aside before this call, some at a time: each transaction is short."""
    aside = _chosen(database, destination, set_aside=True)
    chosen = aside.filter(pk__in=rows) if rows else aside
    ids = list(chosen.order_by("id").values_list("id", flat=True))
    done = 0
    for start in range(0, len(ids), BATCH):
        with transaction.atomic(using=database):
            done += do(aside.filter(pk__in=ids[start : start + BATCH]))
    return done


def _chosen(database: str, destination: str, *, set_aside: bool) -> QuerySet[OutboxMessage]:
    rows = OutboxMessage.objects.using(database)
    # Those that were set aside have an index of their own.
    rows = rows.filter(batch=0) if set_aside else rows.filter(WAITS)
    return rows.filter(destination=destination) if destination else rows


def _row(found: OutboxMessage) -> OutboxRow:
    return OutboxRow(
        id=found.pk,
        destination=found.destination,
        message_id=redact_forms(found.message_id),
        name=redact_forms(found.name),
        key=None if found.key is None else redact_forms(found.key),
        # In SQLite any column may have text.
        size=whole(found.size) or 0,
        published_ms=whole(found.published_ms, LAST_MS) or 0,
        due_ms=whole(found.due_ms, LAST_MS),
        is_claimed=bool(found.batch),
        error=redact_text(found.error),
        failed_ms=whole(found.failed_ms, LAST_MS),
    )
