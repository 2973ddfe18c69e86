"""Rows that are kept until their messages are handled: OUTBOX with KEEP_UNTIL "handled".

A row whose message is published is kept. When the message has ended, its consumer notes the id in Redis, together with
the ack; what deletes messages in other ways notes it, too. Relays read that, and delete the rows. What Redis has lost
is published again from the rows that are left.
"""

import time
from collections.abc import Callable

from django.db import transaction
from django.db.models import QuerySet

from mq_django.conf import QueueConfig
from mq_django.core.logs import get_logger
from mq_django.errors import NotPermitted, WrongKeyType
from mq_django.models import OutboxMessage
from mq_django.outbox.claims import RETAINED, OutboxTables
from mq_django.outbox.place_relay import with_parts
from mq_django.stores.ended_messages import EndedMessages
from mq_django.transport.connections import open_wire

logger = get_logger(__name__)

#: Seconds between two rounds, and between two of partitions that are none any more.
PAUSE, LOOK = 2.0, 60.0
#: Rows that one statement changes.
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
        self._wire = open_wire("chores", queue.connection)
        self._ended = self._ended_of(queue)
        self._rows = OutboxMessage.objects.using(tables.alias).filter(destination=queue.name)
        self._next_round = self._next_look = 0.0

    def _ended_of(self, queue: QueueConfig) -> list[EndedMessages]:
        outbox = self._tables.outbox_id()
        return [EndedMessages(part, self._wire, outbox) for part in queue.each_part]

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
            self._next_round = time.monotonic() + LOOK
            logger.warning("Rows for queue %s stay in the outbox after their messages: %s", self._queue.name, error)
            return False
        if has_more:
            self._next_round = 0.0
        return has_more

    def _read_all(self) -> bool:
        has_more = any([self._read(ended) for ended in self._ended])  # noqa: C419 - all of them
        if time.monotonic() >= self._next_look:
            for parts in self._tables.earlier_parts(self._queue.name, len(self._queue.each_part)):
                earlier = self._ended_of(with_parts(self._queue, parts))
                has_more = any([self._read(ended) for ended in earlier]) or has_more  # noqa: C419 - as above
            if not has_more:
                self._next_look = time.monotonic() + LOOK
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
