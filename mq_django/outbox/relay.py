"""Publish the rows of an outbox: a relay for each queue, topic or partition, and one for the whole database."""

import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import partial

from mq_django import errors
from mq_django.conf import QueueConfig
from mq_django.core.logs import get_logger
from mq_django.core.publication import Publication
from mq_django.core.queue_configs import DeliveryOptions
from mq_django.models import OutboxMessage, OutboxState
from mq_django.outbox.claims import ROWS, Claim, OutboxTables, is_partition
from mq_django.outbox.rows import Chunk, next_chunk, with_parts
from mq_django.outbox.stored_rows import SEARCH, RetainedRows
from mq_django.stores import open_publisher
from mq_django.stores.outbox_marks import Mark, NotNext, OutboxMarks, OutboxTransport
from mq_django.stores.partition_transport import check_reply, record_command
from mq_django.transport import test_mode
from mq_django.transport.connections import open_transport
from mq_django.transport.sessions import ReplicaTransport

logger = get_logger(__name__)

#: Is called with the destination, a publication and the id that Redis knows, when it is published.
Announce = Callable[[DeliveryOptions, Publication, str], None]

#: Errors of Redis that do not concern the rows: they wait until it accepts them.
WAITS = (
    *(errors.ConnectionLost, errors.ConnectionRejected, errors.ReadOnly, errors.ServerBusy, errors.WrongNode),
    *(errors.NotPermitted, errors.QueueClosed, errors.RedisOutOfMemory, errors.WrongKeyType),
)

COPIED = (
    "Redis knows another claim {number} of this outbox: the database is a copy of another one, has a copy, or was "
    "restored. Give a copy an identity of its own, or let no relay use it"
)
WENT_BACK = (
    "Database %r went back in time: Redis knows claim %d of the outbox for %s, and the database claim %d. Up to %d "
    "messages from row %d on may be published a second time"
)


class PartitionRelay:
    """Publishes the rows of one partition, claim after claim. Any number of processes may do so.

    Args:
        tables: the outbox.
        destination: the queue or topic, with as many partitions as the rows were placed by.
        part: the number of the partition; -1 if there are none.
        announce: is called when a message is published.
    """

    def __init__(self, tables: OutboxTables, destination: DeliveryOptions, part: int, announce: Announce) -> None:
        self.destination = destination
        self.part = part
        self.parts = len(destination.parts) or 1
        self.partition = destination.parts[part] if destination.parts else destination
        self._tables = tables
        self._announce = announce
        transport = open_transport("produce", self.partition.connection)
        # Servers of tests have no replicas.
        self._replica = ReplicaTransport(transport) if self._waits_for_replica() else None
        self._transport = OutboxTransport(self.partition, self._replica or transport)
        self._store = open_publisher(self.partition, self._transport)
        self._marks = OutboxMarks(self.partition, self._replica or transport)
        #: Rows of one script call. It is halved while the queue is full.
        self._most = ROWS
        self.claim: Claim | None = None
        #: Up to which row it is published, the rows that Redis has refused, and whether a replica has all that.
        self._done = 0
        self._refused: Mapping[int, str] = {}
        self._is_confirmed = True
        #: Rows whose messages are not published, because another one has their unique key.
        self._dropped: set[int] = set()

    def _waits_for_replica(self) -> bool:
        return self.partition.durability == "replica" and not test_mode.is_on()

    def check_count(self) -> None:
        """Record and check the number of partitions.

        Raises:
            QueueClosed: there is another number in Redis than the settings say, or it is being changed.
        """
        transport = open_transport("produce", self.destination.connection)
        check_reply(self.destination, transport.pipeline([record_command(self.destination)])[0])

    def resume(self, claim: Claim) -> None:
        """Go on with an open claim, of whatever process, by its mark in Redis."""
        self.claim, self._done, self._refused, self._is_confirmed = claim, 0, {}, True
        self._dropped = set()

    def advance(self) -> bool:
        """Publish the rows of the open claim, or of a new one.

        Returns:
            Whether there may be more to do at once. False: there are no rows, or the queue is full.

        Raises:
            QueueClosed: the number of partitions is another one, or is being changed.
            StoreError: Redis cannot be reached, or refuses.
            DatabaseError: from the database.
        """
        if self.claim is None:
            claim = self._tables.claim(self.destination, self.part, self.parts)
            if claim is None:
                return False
            self.resume(claim)
        while self.claim is not None and (rows := [row for row in self.claim.rows if row.pk > self._done]):
            if self._is_held_up(self.claim, rows):
                # The next claim leaves out the rows of keys that were set aside.
                self.end(self.destination)
                return self.claim is None
            if not self._publish(self.claim, rows):
                return False
        if self.claim is not None and not self._has_replica(self.claim):
            return False
        if self.claim is not None:
            keeps = self.destination.keeps_rows
            self._tables.finish(self.claim, self._refused, keeps=keeps, dropped=self._dropped)
            self.claim = None
        return True

    def _is_held_up(self, claim: Claim, rows: Sequence[OutboxMessage]) -> bool:
        """Return whether the rows that come next have the key of one that was refused, and must wait for it."""
        if not self._refused or not getattr(self.destination, "ordered", False):
            return False
        keys = {row.key for row in claim.rows if row.pk in self._refused and row.key is not None}
        return any(row.key in keys for row in rows)

    def end(self, whole: DeliveryOptions) -> None:
        """End the open claim before all of its rows are published. The others are unclaimed again.

        Args:
            whole: the destination with the number of partitions that it has now. Theirs are chosen again.
        """
        assert self.claim is not None
        self._begin_confirmation()
        try:
            mark = self._marks.end(self.claim.name)
        except NotNext as found:
            self._follow(self.claim, found.mark)
            return
        if self._replica is not None and not self._replica.is_confirmed():
            return
        self._tables.split(self.claim, mark, whole, dropped=self._dropped)
        self.claim = None

    def _publish(self, claim: Claim, rows: Sequence[OutboxMessage]) -> bool:
        """Publish what comes next, and return whether to go on."""
        chunk = next_chunk(rows, self.destination, self._most)
        if not isinstance(chunk, Chunk):
            self._refuse(claim, chunk.last, chunk.reason)
            return True
        count = len(chunk.publications)
        try:
            self._send(claim, chunk)
        except NotNext as found:
            self._follow(claim, found.mark)
        except errors.QueueFull:
            self._most = max(1, count // 2)
            return count > 1
        except WAITS:
            raise
        except errors.StoreError as error:
            self._most = max(1, count // 2)
            if count == 1:
                self._refuse(claim, chunk.rows[-1], str(error))
        return True

    def _send(self, claim: Claim, chunk: Chunk) -> None:
        self._begin_confirmation()
        self._transport.begin(claim.name, self._done, chunk.rows[-1], answers=chunk.answers, refuses=chunk.refuses)
        ids: Sequence[str | None] = ()
        try:
            ids = self._store.publish(chunk.publications)
        except errors.AlreadyPublished:
            if not chunk.refuses:
                raise
        self._most = min(ROWS, self._most * 2)
        if self._transport.mark is not None:
            self._note(self._transport.mark)
        for row, each, message_id in zip(chunk.rows, chunk.publications, ids, strict=False):
            if message_id is not None:
                self._announce(self.destination, each, message_id)
                if message_id != each.message.id:
                    self._dropped.add(row)

    def _refuse(self, claim: Claim, row: int, reason: str) -> None:
        try:
            self._begin_confirmation()
            self._note(self._marks.refuse(claim.name, self._done, [(row, reason)]))
        except NotNext as found:
            self._follow(claim, found.mark)

    def _note(self, mark: Mark) -> None:
        self._done, self._refused = mark.done, mark.refused
        self._is_confirmed = self._is_confirmed and (self._replica is None or self._replica.is_confirmed())

    def _begin_confirmation(self) -> None:
        if self._replica is not None:
            self._replica.begin()

    def _has_replica(self, claim: Claim) -> bool:
        """Return whether a replica has what was published of a claim, if that is asked for.

        Until one has, the rows remain: after a failover they are published by the mark that the new master has.
        """
        if self._is_confirmed or self._replica is None:
            return True
        self._replica.begin()
        try:
            self._marks.refuse(claim.name, self._done)
        except NotNext as found:
            self._follow(claim, found.mark)
            return False
        self._is_confirmed = self._replica.is_confirmed()
        if not self._is_confirmed:
            logger.info("No replica has confirmed the messages of the outbox for %s yet", self.partition.name)
        return self._is_confirmed

    def _follow(self, claim: Claim, mark: Mark) -> None:
        """Do what a mark says that is another one than expected."""
        if mark.word == "GAP":
            is_same = (mark.number, mark.token) == (claim.name.number, claim.name.token)
            self._done, self._refused = (mark.done, mark.refused) if is_same else (0, {})
            self._is_confirmed = self._replica is None
            return
        self.claim = None
        if not self._tables.is_open(claim):
            # Another process has finished it meanwhile.
            return
        if mark.word == "ENDED":
            # The relay that ended it may have been killed.
            self._tables.split(claim, mark, self.destination, dropped=self._dropped)
        if mark.word == "BEHIND" and self._tables.raise_number(claim, mark.number + 1):
            first = claim.rows[0].pk if claim.rows else 0
            count, claimed = len(claim.rows), claim.name.number
            logger.error(WENT_BACK, self._tables.alias, mark.number, self.partition.name, claimed, count, first)
        why = COPIED.format(number=mark.number)
        if mark.word == "FOREIGN" and self._tables.stop(claim, why):
            text = "The outbox of database %r for %s is stopped: %s"
            logger.error(text, self._tables.alias, self.partition.name, why)


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
        #: Whether the last round has left such a claim to the other process.
        self.is_watching = False
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
        self.is_watching = False
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
                self.is_watching = True
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
