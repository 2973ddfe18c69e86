"""For how long the inbox knows a message, and what happens to one that it may have forgotten."""

from mq_django.conf import get_config
from mq_django.core import clock
from mq_django.core.outcomes import Ack, Bury
from mq_django.inbox.inbox_tables import inbox_messages
from mq_django.inbox.once import Once
from mq_django.inbox.passes import Pass

UNCERTAIN = (
    "This message may have been handled longer ago than INBOX_RETENTION, and the inbox does not know it any more. "
    "Redrive it if its effects are not there"
)

#: Rows deleted by one statement, which is short, so that no other writer waits for it.
BATCH = 1000


def oldest_ms() -> int:
    """Return since when the inbox has rows, in milliseconds since 1970."""
    return clock.now_ms() - round(get_config().inbox_retention.total_seconds() * 1000)


def is_forgotten(published_ms: int | None, known: Pass) -> bool:
    """Return whether the row of a message that comes again may be deleted by now, in this pass."""
    oldest = oldest_ms()
    return published_ms is not None and published_ms < oldest and known.raised_ms < oldest


def outcome_of_forgotten(once: Once) -> Ack | Bury:
    """Return how a message was acked that may be forgotten, or a burial with the reason `uncertain`.

    Raises:
        Postponed: another delivery of it runs now.
        DatabaseError, InterfaceError: the database cannot say.
    """
    return once.look() or Bury(UNCERTAIN, reason="uncertain")


def delete_old(using: str) -> bool:
    """Delete one batch of rows of a database that are older than INBOX_RETENTION; return whether there may be more.

    Any number of processes may do so.

    Args:
        using: the alias of the database.
    """
    rows = inbox_messages().objects.using(using)
    old = rows.filter(created_ms__lt=oldest_ms()).order_by("created_ms").values_list("digest", flat=True)
    found = list(old[:BATCH])
    if found:
        rows.filter(pk__in=found).delete()
    return len(found) == BATCH
