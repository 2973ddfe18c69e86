"""Claims: which rows of the outbox a relay publishes next. Each transition is one short transaction of the database.

A transaction begins with an UPDATE, so that on SQLite it waits for other writers at its beginning, and does not fail
later. No lock lasts while rows are published.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import uuid4

from django.db import connections, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from mq_django.core import clock
from mq_django.core.ids import token
from mq_django.core.jsontext import whole
from mq_django.core.options import MAX_PARTITIONS
from mq_django.core.queue_configs import DeliveryOptions
from mq_django.core.texts import summary_of
from mq_django.models import OutboxIdentity, OutboxMessage, OutboxState
from mq_django.outbox.rows import partition_for_row, sizes_fit
from mq_django.stores.outbox_marks import ClaimName, Mark

# The statements between the look for rows and their publish, written out.
#
# A message waits for them. Django's query sets need about as long to compose a statement as a database to execute it.

#: The columns of a row, in the order of the model's fields.
_FIELDS = [field.attname for field in OutboxMessage._meta.concrete_fields]  # noqa: SLF001 - public in all but its name

#: With `first` the order is that of the index, so that the first row is found without a look at the others.
_NEXT = (
    "SELECT s.id, f.destination, s.part, s.parts, s.number, s.token, 1 FROM ("
    "SELECT destination FROM mq_django_outbox WHERE batch IS NULL AND destination > %s "
    "ORDER BY {first}destination LIMIT 1"
    ") f LEFT JOIN mq_django_outbox_state s ON s.destination = f.destination AND s.parts <> 0"
)
_OPEN = (
    "SELECT id, destination, part, parts, number, token, 0 FROM mq_django_outbox_state "
    "WHERE token <> '' AND problem = ''"
)
_FIND_WAITING = f"{_OPEN} UNION ALL {_NEXT}"
# MySQL counts only rows that it changes. Any number may stand there, also one that cannot be increased.
_LOCK = (
    "UPDATE mq_django_outbox_state SET number = CASE number WHEN 0 THEN 1 ELSE 0 END "
    "WHERE destination = %s AND part = -1 AND parts = 0"
)
_TAKE = (
    "UPDATE mq_django_outbox_state SET number = %s, token = %s "
    "WHERE id = %s AND number = %s AND token = '' AND problem = ''"
)
#: One statement sees one snapshot: with a row, also all that was committed before it.
_CANDIDATES = (
    "SELECT r.id, r.{key}, r.size, EXISTS ("
    "SELECT 1 FROM mq_django_outbox_state s WHERE s.destination = %s AND s.token <> '' AND s.parts <> %s"
    ") OR EXISTS ("
    "SELECT 1 FROM mq_django_outbox f WHERE f.batch IS NULL AND f.destination = %s AND f.parts < %s"
    ") OR EXISTS ("
    "SELECT 1 FROM mq_django_outbox m WHERE m.batch IS NULL AND m.destination = %s AND m.parts > %s"
    ") FROM mq_django_outbox r WHERE r.batch IS NULL AND r.destination = %s AND r.parts = %s AND r.part = %s{aside} "
    "ORDER BY {first}r.id LIMIT %s"
)
_ASIDE = (
    " AND NOT (r.{key} IS NOT NULL AND r.{key} IN ("
    "SELECT a.{key} FROM mq_django_outbox a WHERE a.batch = 0 AND a.destination = %s AND a.{key} IS NOT NULL))"
)
_UNLOCKED = "SELECT {columns} FROM mq_django_outbox WHERE id IN ({ids}) AND batch IS NULL FOR UPDATE SKIP LOCKED"
_MARK = "UPDATE mq_django_outbox SET batch = %s WHERE id IN ({ids})"
_CLAIMED = (
    "SELECT {columns} FROM mq_django_outbox "
    "WHERE batch = %s AND destination = %s AND parts = %s AND part = %s ORDER BY id"
)


class StateNumber(NamedTuple):
    """The row of a state, and the number of its last claim."""

    pk: int
    number: int


class Found(NamedTuple):
    """What a look has found."""

    #: The states with an open claim that are not stopped, in their order.
    open_states: Sequence[OutboxState]
    #: The first queue or topic with unclaimed rows; '': none has any.
    destination: str
    #: Of its states, by partition and number of partitions.
    numbers: dict[tuple[int, int], StateNumber]


class Candidate(NamedTuple):
    """A row that may be claimed."""

    pk: int
    key: str | None
    size: int
    #: There are rows, or open claims, of another number of partitions.
    has_others: bool


class ClaimStatements:
    """The statements of a relay for one database.

    Args:
        alias: the alias of the database.
    """

    def __init__(self, alias: str) -> None:
        self._alias = alias
        quote = connections[alias].ops.quote_name
        self._columns = ", ".join(map(quote, _FIELDS))
        # MySQL and MariaDB know that `batch` is NULL in all of them. With it they sort all rows; others do without it.
        first = "" if is_mysql(alias) else "batch, "
        self._next, self._find_waiting = _NEXT.format(first=first), _FIND_WAITING.format(first=first)
        # A word of MySQL.
        key = quote("key")
        self._candidates = _CANDIDATES.format(key=key, aside="", first=first and f"r.{first}")
        aside = _ASIDE.format(key=key)
        self._in_order = _CANDIDATES.format(key=key, aside=aside, first=first and f"r.{first}")

    def find_waiting(self) -> Found:
        """Return the open claims, and the first queue or topic with unclaimed rows."""
        return _found(self._select(self._find_waiting, [""]))

    def find_waiting_after(self, destination: str) -> Found:
        """Return the next queue or topic with unclaimed rows, by name."""
        return _found(self._select(self._next, [destination]))

    def lock(self, destination: str) -> bool:
        """Wait for the lock of a queue or topic until the end of the transaction; False: it has none yet."""
        return self._change(_LOCK, [destination]) > 0

    def take(self, state: StateNumber, token: str) -> bool:
        """Open the next claim of a state; False: its last claim is open, or is another one, or it is stopped."""
        return self._change(_TAKE, [state.number + 1, token, *state]) > 0

    def candidates(self, destination: str, part: int, parts: int, *, is_ordered: bool) -> list[Candidate]:
        """Return the next unclaimed rows of a partition, in their order, as many as a claim may have.

        Args:
            destination: the name of the queue or topic.
            part: the number of the partition; -1 if there are none.
            parts: the number of partitions.
            is_ordered: rows with the key of one that was set aside are left out.
        """
        statement, aside = (self._in_order, [destination]) if is_ordered else (self._candidates, [])
        values = [*[destination, parts] * 3, destination, parts, part, *aside, ROWS]
        return [Candidate(*row) for row in self._select(statement, values)]

    def unlocked(self, ids: Sequence[int]) -> list[OutboxMessage]:
        """Lock the unclaimed rows among some that no other transaction has locked, and return them in any order."""
        return self._messages(_UNLOCKED.format(columns=self._columns, ids=_numbers(ids)), []) if ids else []

    def mark(self, ids: Sequence[int], number: int) -> None:
        """Write the number of their claim into rows, of which there is at least one."""
        self._change(_MARK.format(ids=_numbers(ids)), [number])

    def claimed(self, state: OutboxState) -> list[OutboxMessage]:
        """Return the rows of the latest claim of a state, in their order."""
        partition = [state.number, state.destination, state.parts, state.part]
        return self._messages(_CLAIMED.format(columns=self._columns), partition)

    def _messages(self, statement: str, values: Sequence[Any]) -> list[OutboxMessage]:
        return [OutboxMessage.from_db(self._alias, _FIELDS, row) for row in self._select(statement, values)]

    def _select(self, statement: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        with connections[self._alias].cursor() as cursor:
            cursor.execute(statement, values)
            rows: Sequence[Sequence[Any]] = cursor.fetchall()
            return rows

    def _change(self, statement: str, values: Sequence[Any]) -> int:
        with connections[self._alias].cursor() as cursor:
            cursor.execute(statement, values)
            return int(cursor.rowcount)


def _found(rows: Sequence[Sequence[Any]]) -> Found:
    open_states, destination, numbers = list[OutboxState](), "", dict[tuple[int, int], StateNumber]()
    for pk, name, part, parts, number, claim, is_next in rows:
        if not is_next:
            open_states.append(OutboxState(pk=pk, destination=name, part=part, parts=parts, number=number, token=claim))
            continue
        destination = name
        if pk is not None:
            numbers[part, parts] = StateNumber(pk, number)
    return Found(sorted(open_states, key=lambda state: state.pk), destination, numbers)


def is_mysql(alias: str) -> bool:
    """Return whether a database is MySQL or MariaDB."""
    return connections[alias].vendor == "mysql"


def _numbers(ids: Sequence[int]) -> str:
    # Drivers need longer for parameters than for all else.
    return ", ".join([f"{pk:d}" for pk in ids])


#: Maximum rows of a claim, and maximum bytes of their bodies unless a single row has more.
ROWS, BYTES = 500, 2 * 1024 * 1024
#: The row of the state with this number of partitions serves as the lock.
LOCK = 0
#: The claim of rows that are kept until their messages are handled.
RETAINED = -1
#: The last number of a row or of a claim that Redis can tell from the next one.
LAST = 2**53 - 1
#: Rows in a claim, or with a value that is no number: SQLite may hold text, which sorts after any number.
_IN_CLAIM = Q(batch__gt=0) | Q(batch__lt=RETAINED) | Q(batch__gt=RETAINED, batch__lt=0)
NO_CLAIM = "The row is in no open claim, so its message may have been published, or not"
#: Statements that find their rows by their ids, for MySQL and MariaDB. These may look at all rows of a small table, and
#: wait for those that other transactions have locked.
_DELETE = "DELETE r FROM mq_django_outbox r FORCE INDEX (PRIMARY) WHERE r.id IN ({}) AND r.batch = %s"
_UPDATE = "UPDATE mq_django_outbox r FORCE INDEX (PRIMARY) SET r.batch = %s WHERE r.id IN ({}) AND r.batch = %s"


@dataclass(frozen=True, slots=True)
class Claim:
    """Rows that are published together, in their order, and what names them in Redis."""

    state_id: int
    destination: str
    part: int
    parts: int
    name: ClaimName
    rows: Sequence[OutboxMessage]


class OutboxTables:
    """The rows and claims in the outbox of one database.

    Args:
        alias: the alias of the database.
    """

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self._messages: QuerySet[OutboxMessage] = OutboxMessage.objects.using(alias)
        self._states: QuerySet[OutboxState] = OutboxState.objects.using(alias)
        self._statements = ClaimStatements(alias)
        #: Destination, partition and number of partitions -> its state by the latest look. Each is used once.
        self._numbers: dict[tuple[str, int, int], StateNumber] = {}
        self._outbox = ""

    def outbox_id(self) -> str:
        """Return the UUID of this outbox, as 32 hexadecimal digits. The first relay makes it."""
        if not self._outbox:
            identities = OutboxIdentity.objects.using(self.alias)
            self._outbox = identities.get_or_create(pk=1, defaults={"uuid": uuid4()})[0].uuid.hex
        return self._outbox

    def find_waiting(self) -> tuple[Sequence[OutboxState], str]:
        """Return the states with an open claim that are not stopped, and the first of destinations(); '': none."""
        found = self._statements.find_waiting()
        return found.open_states, self._note(found)

    def repair(self) -> bool:
        """Close claims that no relay can have made, and set aside the rows that are in no open claim.

        A relay changes a claim and its rows in one transaction, so only other programs leave such rows.

        Returns:
            Whether there may be more.
        """
        likely = self._states.exclude(token="", number__range=(0, LAST))
        found = likely.values_list("pk", "part", "parts", "number")
        wrong = [pk for pk, *partition, number in found if whole(number, LAST) is None or not is_partition(*partition)]
        if wrong:
            # No relay counts as fast as the clock, so Redis knows no later claim.
            self._states.filter(pk__in=wrong).update(number=clock.now_ms(), token="")
        partition = {name: OuterRef(name) for name in ("destination", "part", "parts")}
        claims = self._states.filter(**partition, number=OuterRef("batch")).exclude(token="")
        strays = self._messages.filter(_IN_CLAIM, ~Exists(claims))
        ids = list(strays.values_list("pk", flat=True)[:ROWS])
        if ids:
            # By the same conditions again: they may have been retried and claimed meanwhile.
            strays.filter(pk__in=ids).update(batch=0, error=NO_CLAIM, failed_ms=clock.now_ms())
        return len(ids) == ROWS

    def destinations(self, first: str) -> Iterator[str]:
        """Yield the names of the queues and topics with unclaimed rows, each after one query, and then the next.

        Args:
            first: the first one, by find_waiting().
        """
        name = first
        while name:
            yield name
            name = self._note(self._statements.find_waiting_after(name))

    def parts(self, destination: str, parts: int) -> list[int]:
        """Return the partitions for which there are unclaimed rows, by the number of partitions, which are several."""
        found = list[int]()
        # As in ClaimStatements.
        order = ("part",) if is_mysql(self.alias) else ("batch", "part")
        unclaimed = self._unclaimed(destination).filter(parts=parts).order_by(*order)
        while (part := unclaimed.values_list("part", flat=True).first()) is not None:
            found.append(part)
            if whole(part) is None and part != -1:  # a text, too, in SQLite
                break
            unclaimed = unclaimed.filter(part__gt=part)
        return found

    def earlier_parts(self, destination: str, parts: int) -> list[int]:
        """Return the other numbers of partitions by which rows for a destination were claimed."""
        states = self._states.filter(destination=destination).exclude(parts__in=(LOCK, parts))
        return list(states.order_by("parts").values_list("parts", flat=True).distinct())

    def claim(self, destination: DeliveryOptions, part: int, parts: int) -> Claim | None:
        """Claim the next unclaimed rows for a partition; None if there are none, or others go first.

        Args:
            destination: the whole queue or topic.
            part: the number of the partition; -1 if there are none.
            parts: the number of partitions by the settings.
        """
        name = destination.name
        state, secret = self._number_of(name, part, parts), token()
        with transaction.atomic(using=self.alias):
            self._lock(name)
            rows = self._next_rows(destination, part, parts) if self._statements.take(state, secret) else {}
            if not rows:
                transaction.set_rollback(True, using=self.alias)
                return None
            number = state.number + 1
            self._statements.mark(list(rows), number)
        open_state = OutboxState(pk=state.pk, destination=name, part=part, parts=parts, number=number, token=secret)
        locked = [row for row in rows.values() if row is not None]
        # What was locked is as it was read.
        return self.read(open_state) if len(locked) < len(rows) else self._claim_of(open_state, locked)

    def read(self, state: OutboxState) -> Claim:
        """Return the open claim of a state, with its rows."""
        return self._claim_of(state, self._statements.claimed(state))

    def _claim_of(self, state: OutboxState, rows: Sequence[OutboxMessage]) -> Claim:
        name = ClaimName(f"{self.outbox_id()}:{state.parts}", state.number, state.token)
        # By another number Redis cannot tell how far a claim is published: repair() sets the row aside later.
        rows = [row for row in rows if 0 < row.pk <= LAST]
        return Claim(state.pk, state.destination, state.part, state.parts, name, rows)

    def is_open(self, claim: Claim) -> bool:
        """Return whether a claim is still the open one of its state."""
        return self._state_of(claim).exists()

    def finish(
        self, claim: Claim, refused: Mapping[int, str], *, keeps: bool = False, dropped: Collection[int] = ()
    ) -> bool:
        """Delete the rows of a claim, all of which are published, and set those aside that Redis has noted as refused.

        Args:
            claim: an open claim.
            refused: the rows that are set aside, with the errors.
            keeps: the rows are kept until their messages are handled.
            dropped: the rows that are deleted all the same: another message has their unique key.

        Returns:
            False, and nothing is changed, if somebody else has done it.
        """
        with transaction.atomic(using=self.alias):
            if not self._state_of(claim).update(token=""):
                return False
            self._set_aside(claim, refused)
            self._end_rows(claim, [row.pk for row in claim.rows], keeps=keeps, dropped=dropped)
        return True

    def split(self, claim: Claim, mark: Mark, destination: DeliveryOptions, *, dropped: Collection[int] = ()) -> bool:
        """End a claim that was ended in Redis: by its mark some rows are published, the others are unclaimed again.

        Returns:
            False, and nothing is changed, if somebody else has done it.
        """
        with transaction.atomic(using=self.alias):
            self._lock(claim.destination)
            if not self._state_of(claim).update(token=""):
                return False
            self._set_aside(claim, mark.refused)
            published = [row.pk for row in claim.rows if row.pk <= mark.done]
            self._end_rows(claim, published, keeps=destination.keeps_rows, dropped=dropped)
            self._assign(list(self._rows_of(claim)), destination)
        return True

    def reassign(self, destination: DeliveryOptions) -> int:
        """Choose the partitions of unclaimed rows that are in none, or in one of another number of partitions.

        Returns the number of rows. One whose partition cannot be chosen is set aside.
        """
        with transaction.atomic(using=self.alias):
            self._lock(destination.name)
            rows = [row for found in self._misplaced(destination) for row in found.order_by("batch")[:ROWS]]
            free = self._unlocked([row.pk for row in rows])
            rows = [row for row in rows if row.pk in free]
            self._assign(rows, destination)
        return len(rows)

    def raise_number(self, claim: Claim, number: int) -> bool:
        """Give a claim a number, and another token: Redis knows later ones, because the database went back in time."""
        with transaction.atomic(using=self.alias):
            if not self._state_of(claim).update(number=number, token=token()):
                return False
            self._rows_of(claim).update(batch=number)
        return True

    def stop(self, claim: Claim, problem: str) -> bool:
        """Stop the partition of a claim, and return whether it was not stopped before."""
        return bool(self._state_of(claim).filter(problem="").update(problem=problem, problem_ms=clock.now_ms()))

    def _next_rows(self, destination: DeliveryOptions, part: int, parts: int) -> dict[int, OutboxMessage | None]:
        """Return the ids of the rows of the next claim, in their order, each as _unlocked() does.

        None while there are rows or open claims of another number of partitions, because those go first.
        """
        is_ordered = getattr(destination, "ordered", False)
        rows = self._statements.candidates(destination.name, part, parts, is_ordered=is_ordered)
        if any(row.has_others for row in rows):
            return {}
        rows = rows[: sizes_fit([row.size for row in rows], BYTES)]
        free = self._unlocked([row.pk for row in rows])
        claimed, waiting = dict[int, OutboxMessage | None](), set[str | None]()
        for pk, key, _, _ in rows:
            if pk in free and key not in waiting:
                claimed[pk] = free[pk]
            elif key is not None:
                # Rows of this key wait behind one that another transaction has locked.
                waiting.add(key)
        return claimed

    def _unlocked(self, ids: Sequence[int]) -> dict[int, OutboxMessage | None]:
        """Return the ids of rows that no other transaction has locked, and lock these rows, which are read then.

        If the database cannot skip locked rows, nothing is locked or read: all ids have None.
        """
        if not connections[self.alias].features.has_select_for_update_skip_locked:
            return dict.fromkeys(ids)
        return {row.pk: row for row in self._statements.unlocked(ids)}

    def has_others(self, destination: str, parts: int) -> bool:
        """Return whether there are unclaimed rows of another number of partitions."""
        return any(found.exists() for found in self._others(destination, parts))

    def is_misplaced(self, destination: DeliveryOptions) -> bool:
        """Return whether there are unclaimed rows of partitions that do not exist."""
        return any(found.exists() for found in self._misplaced(destination))

    def _others(self, destination: str, parts: int) -> list[QuerySet[OutboxMessage]]:
        """Return the unclaimed rows of fewer partitions, and of more: each query finds its rows by an index."""
        unclaimed = self._unclaimed(destination)
        return [unclaimed.filter(parts__lt=parts), unclaimed.filter(parts__gt=parts)]

    def _misplaced(self, destination: DeliveryOptions) -> list[QuerySet[OutboxMessage]]:
        """Return what _others() does, and the rows of a partition that does not exist."""
        parts, each = len(destination.parts) or 1, destination.each_part
        own, others = self._unclaimed(destination.name).filter(parts=parts), self._others(destination.name, parts)
        return [*others, own.filter(part__lt=each[0].number), own.filter(part__gt=each[-1].number)]

    def _assign(self, rows: Sequence[OutboxMessage], destination: DeliveryOptions) -> None:
        by_partition: dict[tuple[int, int], list[int]] = {}
        for row in rows:
            try:
                by_partition.setdefault(partition_for_row(row, destination), []).append(row.pk)
            except Exception as error:  # noqa: BLE001 - the columns may have anything
                aside = self._messages.filter(pk=row.pk)
                aside.update(batch=0, error=summary_of(error), failed_ms=clock.now_ms())
        for (part, parts), ids in by_partition.items():
            self._messages.filter(pk__in=ids).update(part=part, parts=parts, batch=None)

    def _set_aside(self, claim: Claim, refused: Mapping[int, str]) -> None:
        for row, error in refused.items():
            self._rows_of(claim).filter(pk=row).update(batch=0, error=error, failed_ms=clock.now_ms())

    def _end_rows(self, claim: Claim, ids: Sequence[int], *, keeps: bool, dropped: Collection[int] = ()) -> None:
        """Keep or delete the published rows of a claim."""
        number = claim.name.number
        if keeps:
            self.change([pk for pk in ids if pk not in dropped], number, RETAINED)
            ids = [pk for pk in ids if pk in dropped]
        self.change(ids, number, None)

    def change(self, ids: Sequence[int], batch: int, to: int | None) -> None:
        """Change the claim of the rows among some that have this claim; None: delete them."""
        if not ids:
            return
        if not is_mysql(self.alias):
            rows = self._messages.filter(pk__in=ids, batch=batch)
            _ = rows.delete() if to is None else rows.update(batch=to)
            return
        marks = ", ".join(["%s"] * len(ids))
        with connections[self.alias].cursor() as cursor:
            if to is None:
                cursor.execute(_DELETE.format(marks), [*ids, batch])
            else:
                cursor.execute(_UPDATE.format(marks), [to, *ids, batch])

    def _lock(self, destination: str) -> None:
        """Wait for other transactions that claim rows of a destination, or change their partitions."""
        while not self._statements.lock(destination):
            self._states.get_or_create(destination=destination, part=-1, parts=LOCK)

    def _number_of(self, destination: str, part: int, parts: int) -> StateNumber:
        """Return the state of a partition by the latest look, if it was found and this is the first claim since."""
        known = self._numbers.pop((destination, part, parts), None)
        if known is None:
            state, _ = self._states.get_or_create(destination=destination, part=part, parts=parts)
            known = StateNumber(state.pk, state.number)
        return known

    def _note(self, found: Found) -> str:
        self._numbers = {(found.destination, *partition): number for partition, number in found.numbers.items()}
        return found.destination

    def _unclaimed(self, destination: str) -> QuerySet[OutboxMessage]:
        return self._messages.filter(batch=None, destination=destination)

    def _rows_of(self, claim: Claim) -> QuerySet[OutboxMessage]:
        rows = self._messages.filter(pk__in=[row.pk for row in claim.rows])
        return rows.filter(batch=claim.name.number, destination=claim.destination, parts=claim.parts, part=claim.part)

    def _state_of(self, claim: Claim) -> QuerySet[OutboxState]:
        return self._states.filter(pk=claim.state_id, number=claim.name.number, token=claim.name.token)


def is_partition(part: object, parts: object) -> bool:
    """Return whether a partition may have this number among so many; the values may be of any type."""
    number = whole(parts, MAX_PARTITIONS)
    return whole(part, number - 1) is not None if number and number > 1 else (part, number) == (-1, 1)
