"""Choose what the relay of an outbox publishes next, for each queue and topic of one server."""

import time
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from contextlib import suppress
from functools import partial

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
from mq_django.models import OutboxMessage, OutboxState
from mq_django.outbox.claims import RETAINED, OutboxTables, is_partition
from mq_django.outbox.insertion import aliases_with_rows, database_of, table_needed
from mq_django.outbox.publishing import Announce, PartitionRelay, with_parts
from mq_django.outbox.rows import publication_of, publication_unique
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


#: Seconds after which the open claim of another process is continued, if it has not changed.
TAKE_OVER = 1.0


class DatabaseRelay:
    """Publishes the rows of one database.

    Args:
        alias: the alias of the database.
        destinations: the queues and topics, by name.
        announce: is called when a message is published.
        take_over: seconds after which the open claim of another process is continued.
    """

    def __init__(
        self,
        alias: str,
        destinations: Mapping[str, DeliveryOptions],
        announce: Announce,
        *,
        take_over: float = TAKE_OVER,
    ) -> None:
        self.tables = OutboxTables(alias)
        self._destinations = destinations
        self._announce = announce
        self._take_over = take_over
        #: By destination, number of partitions, and partition.
        self._partitions: dict[tuple[str, int, int], PartitionRelay] = {}
        #: By queue.
        self._retained: dict[str, RetainedRows] = {}
        #: State -> its open claim of another process, and since when it is known, on the monotonic clock.
        self._seen: dict[int, tuple[int, str, float]] = {}
        #: Destinations whose number of partitions is recorded.
        self._checked: set[str] = set()
        #: When the tables are repaired again, on the monotonic clock.
        self._next_repair = 0.0

    def steps(self) -> Iterator[tuple[DeliveryOptions, Callable[[], bool]]]:
        """Yield what there is to do: the partition, and a function that does it and returns whether there may be more.

        Without rows it takes one query. The next queue or topic is looked for when all steps of one are done.

        Raises:
            DatabaseError: from the database.
        """
        if time.monotonic() >= self._next_repair and not self.tables.repair():
            self._next_repair = time.monotonic() + SEARCH
        # First: an id may be used again by a row that is published in this round.
        yield from self._retained_steps()
        open_states, first = self.tables.find_waiting()
        known_states = [state for state in open_states if state.destination in self._destinations]
        states = [state for state in known_states if is_partition(state.part, state.parts)]
        for state in states:
            partition = self._partition(state.destination, state.parts, state.part)
            yield partition.partition, partial(self._continue, state, partition)
        open_partitions = {(state.destination, state.parts, state.part) for state in states}
        for key, known in self._partitions.items():
            if key not in open_partitions:
                # Another process may have finished it.
                known.claim = None
        for name in self.tables.destinations(first):
            if name in self._destinations:
                yield from self._waiting_steps(name, open_partitions)

    def _retained_steps(self) -> Iterator[tuple[DeliveryOptions, Callable[[], bool]]]:
        """Yield the queues whose rows are kept until their messages are handled."""
        for name, each in self._destinations.items():
            if each.keeps_rows and isinstance(each, QueueConfig):
                retained = self._retained.get(name)
                if retained is None:
                    retained = self._retained[name] = RetainedRows(self.tables, each)
                if retained.is_due:
                    yield each, retained.step

    @property
    def is_waiting(self) -> bool:
        """Return whether a claim of this process is open, because a queue is full or a replica is slow."""
        return any(partition.claim is not None for partition in self._partitions.values())

    def _waiting_steps(
        self, name: str, open_partitions: Container[tuple[str, int, int]]
    ) -> Iterator[tuple[DeliveryOptions, Callable[[], bool]]]:
        whole = self._destinations[name]
        parts = len(whole.parts) or 1
        if parts == 1:
            partition = self._partition(name, 1, whole.number)
            if (name, 1, whole.number) not in open_partitions:
                yield partition.partition, partial(self._advance_only, partition)
            return
        found = self.tables.parts(name, parts)
        if self.tables.has_others(name, parts) or not all(is_partition(part, parts) for part in found):
            yield whole, partial(self._reassign, whole)
        for part in found:
            if is_partition(part, parts) and (name, parts, part) not in open_partitions:
                partition = self._partition(name, parts, part)
                yield partition.partition, partial(self._advance, partition)

    def _advance_only(self, partition: PartitionRelay) -> bool:
        """Advance a destination without partitions; if it has no rows, look for rows of other partitions."""
        return partition.advance() or (partition.claim is None and self._reassign(partition.destination, only=True))

    def _advance(self, partition: PartitionRelay) -> bool:
        if partition.destination.parts and partition.destination.name not in self._checked:
            partition.check_count()
            self._checked.add(partition.destination.name)
        return partition.advance()

    def _continue(self, state: OutboxState, partition: PartitionRelay) -> bool:
        """Go on with an open claim: with that of this process, or with one that nobody seems to go on with."""
        name = None if partition.claim is None else partition.claim.name
        if name is None or (name.number, name.token) != (state.number, state.token):
            partition.claim = None
            if not self._may_take_over(state):
                return False
            partition.resume(self.tables.read(state))
        if partition.parts == (len(self._destinations[state.destination].parts) or 1):
            return partition.advance()
        whole = self._destinations[state.destination]
        self._partition(state.destination, len(whole.parts) or 1, whole.each_part[0].number).check_count()
        partition.end(whole)
        return True

    def _may_take_over(self, state: OutboxState) -> bool:
        number, token, since = self._seen.get(state.pk, (0, "", 0.0))
        if (number, token) != (state.number, state.token):
            since = time.monotonic()
            self._seen[state.pk] = (state.number, state.token, since)
        return time.monotonic() - since >= self._take_over

    def _reassign(self, whole: DeliveryOptions, *, only: bool = False) -> bool:
        if only and not self.tables.is_misplaced(whole):
            return False
        self._partition(whole.name, len(whole.parts) or 1, whole.each_part[0].number).check_count()
        return self.tables.reassign(whole) > 0

    def _partition(self, name: str, parts: int, part: int) -> PartitionRelay:
        found = self._partitions.get((name, parts, part))
        if found is None:
            whole = with_parts(self._destinations[name], parts)
            found = self._partitions[name, parts, part] = PartitionRelay(self.tables, whole, part, self._announce)
        return found


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
    aside = OutboxMessage.objects.using(alias).filter(batch=0)
    return aside.filter(destination__in=destinations).count()
