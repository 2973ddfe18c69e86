"""Write into the ledger, and compare its columns."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count
from django.utils import timezone

from example_project.ledger.models import Accepted, Handled
from mq_django import Message


def accept(message_id: str, *, queue: str, name: str, expires_at: datetime | None = None) -> None:
    """Note that a message was published, in the transaction around the publish."""
    Accepted.objects.create(message_id=message_id, queue=queue, name=name, expires_at=expires_at)


def handle(message: Message) -> None:
    """Note that a message was handled, in the transaction of what its handler did."""
    handle_task(message.id, attempt=message.attempt)


def handle_task(message_id: str, *, attempt: int) -> None:
    """Note that a task ran, in the transaction of what it did."""
    Handled.objects.create(message_id=message_id, attempt=attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """What the two columns say."""

    accepted: int
    #: Accepted messages that a handler dealt with.
    handled: int
    #: Times that a handler dealt with a message once more than needed: at least once is not exactly once.
    repeated: int
    #: Accepted messages that no handler dealt with yet: id -> `queue/name`.
    open: dict[str, str]
    #: Those of them that are too old to be handled.
    expired: frozenset[str]
    #: Accepted messages that a handler dealt with, by their names.
    by_name: Mapping[str, int]


def accepted_ids() -> set[str]:
    """Return the ids of all accepted messages."""
    return set(Accepted.objects.values_list("message_id", flat=True))


def balance() -> Balance:
    """Compare the columns."""
    accepted = {row.message_id: row for row in Accepted.objects.all()}
    now = timezone.now()
    times = dict(Handled.objects.values_list("message_id").annotate(times=Count("pk")))
    return Balance(
        accepted=len(accepted),
        handled=len(accepted.keys() & times.keys()),
        repeated=sum(times.values()) - len(times),
        open={key: f"{row.queue}/{row.name}" for key, row in accepted.items() if key not in times},
        expired=frozenset(
            key for key, row in accepted.items() if key not in times and row.expires_at and row.expires_at <= now
        ),
        by_name=Counter(row.name for key, row in accepted.items() if key in times),
    )
