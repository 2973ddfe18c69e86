"""Keep, find, cancel, reschedule and count the rows of an outbox."""

import time
from collections.abc import Callable, Collection
from contextlib import suppress

from django.db import transaction
from django.db.models import QuerySet

from mq_django.conf import QueueConfig
from mq_django.core import clock
from mq_django.core.jsontext import dumps
from mq_django.core.keys import UNIQUE_PREFIX
from mq_django.core.logs import get_logger
from mq_django.core.publication import Publication
from mq_django.core.queue_configs import DeliveryOptions
from mq_django.errors import DecodeError, NotPermitted, WrongKeyType
from mq_django.models import OutboxMessage
from mq_django.outbox.claims import RETAINED, OutboxTables
from mq_django.outbox.insertion import aliases_with_rows, database_of, table_needed
from mq_django.outbox.rows import publication_of, publication_unique, with_parts
from mq_django.stores.activity import recorded
from mq_django.stores.outbox_marks import EndedMessages
from mq_django.transport.connections import open_transport

# Rows that are kept until their messages are handled: OUTBOX with KEEP_UNTIL "handled".
#
# A row whose message is published is kept. When the message has ended, its consumer notes the id in Redis, together
# with the ack; what deletes messages in other ways notes it, too. Relays read that, and delete the rows. What Redis
# has lost is published again from the rows that are left.

logger = get_logger(__name__)

#: Seconds between two rounds, and between two looks for what changes rarely.
PAUSE, SEARCH = 2.0, 60.0
#: Rows that a statement changes.
BATCH = 500


class RetainedRows:
    """The rows for one queue in the outbox of one database that are kept.

    Args:
        tables: the outbox.
        queue: the whole queue.
    """

    def __init__(self, tables: OutboxTables, queue: QueueConfig) -> None:
        self._tables = tables
        self._queue = queue
        self._transport = open_transport("chores", queue.connection)
        self._ended = self._ended_of(queue)
        self._rows = OutboxMessage.objects.using(tables.alias).filter(destination=queue.name)
        self._next_round = self._next_search = 0.0

    def _ended_of(self, queue: QueueConfig) -> list[EndedMessages]:
        outbox = self._tables.outbox_id()
        return [EndedMessages(part, self._transport, outbox) for part in queue.each_part]

    @property
    def is_due(self) -> bool:
        """Return whether the pause after the last round is over."""
        return time.monotonic() >= self._next_round

    def step(self) -> bool:
        """Delete rows of messages that have ended, and return whether there may be more to do at once.

        Raises:
            StoreError: Redis cannot be reached, or refuses.
            DatabaseError: from the database.
        """
        # First, so that an error is not met again at once.
        self._next_round = time.monotonic() + PAUSE
        try:
            has_more = self._read_all()
        except (NotPermitted, WrongKeyType) as error:
            # It concerns these rows alone, and must not hold up what is published.
            self._next_round = time.monotonic() + SEARCH
            logger.warning("Rows for queue %s stay in the outbox after their messages: %s", self._queue.name, error)
            return False
        if has_more:
            self._next_round = 0.0
        return has_more

    def _read_all(self) -> bool:
        has_more = any([self._read(ended) for ended in self._ended])  # noqa: C419 - all of them
        if time.monotonic() >= self._next_search:
            for parts in self._tables.earlier_parts(self._queue.name, len(self._queue.each_part)):
                earlier = self._ended_of(with_parts(self._queue, parts))
                has_more = any([self._read(ended) for ended in earlier]) or has_more  # noqa: C419 - as above
            if not has_more:
                self._next_search = time.monotonic() + SEARCH
        return has_more

    def _read(self, ended: EndedMessages) -> bool:
        last, ids = ended.read()
        slices = [ids[at : at + BATCH] for at in range(0, len(ids), BATCH)]
        if any(self._rows.filter(message_id__in=each, batch__gt=0).exists() for each in slices):
            # Published, and not kept yet, because their claim is not finished. The same is read again then.
            return False
        for each in slices:
            rows = self._rows.filter(message_id__in=each, batch=RETAINED)
            self._tables.change(list(rows.values_list("pk", flat=True)), RETAINED, None)
        if last:
            ended.done(last)
        return bool(last)


def retained_count(alias: str, destination: str) -> int:
    """Return how many rows for a queue are kept."""
    return _retained(alias, destination).count()


@recorded("republish outbox", queue=lambda given: given["queue"].name, about="alias")
def republish(alias: str, queue: QueueConfig) -> int:
    """Let the rows that are kept be published again, because Redis has lost their messages; return their number.

    Args:
        alias: the alias of the database.
        queue: the whole queue.

    Raises:
        StoreError: Redis cannot be reached, or refuses: it is asked first which messages have ended.
        DatabaseError: from the database.
    """
    retained = RetainedRows(OutboxTables(alias), queue)
    while retained.step():
        pass
    return _each(alias, queue.name, lambda rows: rows.update(batch=None))


@recorded("forget outbox", queue="destination", about="alias")
def forget(alias: str, destination: str) -> int:
    """Delete the rows that are kept, so that Redis alone has their messages; return their number."""
    return _each(alias, destination, lambda rows: rows.delete()[0])


def _each(alias: str, destination: str, do: Callable[[QuerySet[OutboxMessage]], int]) -> int:
    """Change rows that are kept, some at a time: SQLite and MariaDB limit parameters and locks."""
    rows, done = _retained(alias, destination), 0
    ids = list(rows.order_by("pk").values_list("pk", flat=True))
    for at in range(0, len(ids), BATCH):
        with transaction.atomic(using=alias):
            done += do(rows.filter(pk__in=ids[at : at + BATCH]))
    return done


def _retained(alias: str, destination: str) -> QuerySet[OutboxMessage]:
    return OutboxMessage.objects.using(alias).filter(destination=destination, batch=RETAINED)


# Rows that wait in the outbox: find, cancel and count them.


def find_row(destination: DeliveryOptions, named: str) -> Publication | None:
    """Return the publication in the row of a message, claimed or not; None if there is none that can be read.

    A row that was set aside does not count, because nobody publishes it; nor one that is published and kept.

    Args:
        destination: the queue.
        named: the id of the message, or `u:` and its unique key: then the latest one.
    """
    for alias in aliases_with_rows():
        with table_needed(alias):
            row = _named(alias, destination, named).exclude(batch__lte=0).order_by("pk").last()
        if row is not None:
            with suppress(DecodeError):
                return publication_of(row, with_parts(destination, row.parts))
    return None


def cancel_row(using: str | None, destination: DeliveryOptions, named: str) -> bool:
    """Delete the row of a message that no relay has claimed, and return whether there was one.

    Args:
        using: the alias of the database; None: as the routers say.
        destination: the queue.
        named: the id of the message, or `u:` and its unique key: then of all with this key.

    Raises:
        NoOutbox: the database has no outbox.
    """
    alias = database_of(using)
    with table_needed(alias):
        deleted, _ = _named(alias, destination, named).filter(batch=None).delete()
    return deleted > 0


def reschedule_row(
    using: str | None, destination: DeliveryOptions, named: str, *, delay_ms: int | None, due_ms: int | None
) -> bool:
    """Change the due time in the row of a delayed message that no relay has claimed; return whether there was one.

    Args:
        using: the alias of the database; None: as the routers say.
        destination: the queue.
        named: as for cancel_row().
        delay_ms: milliseconds from now; None: `due_ms`.
        due_ms: milliseconds since 1970.

    Raises:
        NoOutbox: the database has no outbox.
    """
    new_ms = due_ms if delay_ms is None else clock.now_ms() + delay_ms
    alias = database_of(using)
    with table_needed(alias):
        rows = _named(alias, destination, named).filter(batch=None, due_ms__isnull=False)
        return rows.update(due_ms=new_ms) > 0


def _named(alias: str, destination: DeliveryOptions, named: str) -> QuerySet[OutboxMessage]:
    """Return the rows of messages with an id or a unique key."""
    rows = OutboxMessage.objects.using(alias).filter(destination=destination.name)
    if not named.startswith(UNIQUE_PREFIX):
        return rows.filter(message_id=named)
    # Few messages wait here, and not for long: the key has no index.
    key = named.removeprefix(UNIQUE_PREFIX)
    likely = rows.exclude(batch__lte=0).filter(body__contains=dumps({"unique": key})[1:-1].decode())
    return rows.filter(pk__in=[row.pk for row in likely if publication_unique(row) == key])


def count_pending(alias: str, destinations: Collection[str]) -> int:
    """Return how many rows wait for a relay, claimed or not."""
    return OutboxMessage.objects.using(alias).filter(destination__in=destinations).exclude(batch__lte=0).count()


def count_set_aside(alias: str, destinations: Collection[str]) -> int:
    """Return how many rows were set aside, because their messages cannot be published."""
    return OutboxMessage.objects.using(alias).filter(destination__in=destinations, batch=0).count()
