"""What publishing does inside a handler with `@exactly_once`."""

from mq_django.core.exactly_once import current_database
from mq_django.errors import OutboxRequired

OUTBOX_REQUIRED = (
    "A handler with @exactly_once publishes through the outbox of its database {using!r}, and this is not possible "
    "here. With on_commit=False the message is sent at once: also if the transaction is rolled back, and once more "
    "when the handler runs again"
)


def within_exactly_once(
    inside: str, using: str | None, *, on_commit: bool, outbox: bool | None
) -> tuple[str | None, bool | None]:
    """Return `using` and `outbox` of a publish inside a handler with `@exactly_once` on the database `inside`.

    A message that is sent at the commit is lost when the process ends right after it: its handler does not run again.
    So it is written into the outbox of that database, unless the caller sends at once on purpose.

    Raises:
        OutboxRequired: the message would be sent at the commit, or is for the outbox of another database.
    """
    if not on_commit and outbox is not True:
        return using or inside, outbox
    if outbox is False or using not in (None, inside):
        raise OutboxRequired(OUTBOX_REQUIRED.format(using=inside))
    return inside, True


def refuse_in_exactly_once(*, on_commit: bool) -> None:
    """Raise OutboxRequired inside a handler with `@exactly_once`, unless the caller acts at once on purpose.

    What is done at the commit is lost when the process ends right after it: its handler does not run again.
    """
    database = current_database()
    if on_commit and database is not None:
        raise OutboxRequired(OUTBOX_REQUIRED.format(using=database))
