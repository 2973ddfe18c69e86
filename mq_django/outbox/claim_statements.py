"""The statements between the look for rows and their publish, written out.

A message waits for them. Django's query sets need about as long to compose a statement as a database to execute it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db import connections

from mq_django.models import OutboxMessage, OutboxState

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
_LOOK = f"{_OPEN} UNION ALL {_NEXT}"
_LOCK = "UPDATE mq_django_outbox_state SET number = number + 1 WHERE destination = %s AND part = -1 AND parts = 0"
_TAKE = (
    "UPDATE mq_django_outbox_state SET number = %s, token = %s "
    "WHERE id = %s AND number = %s AND token = '' AND problem = ''"
)
#: One statement sees what was committed at one moment: with a row, also whatever was committed before it.
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
        self._next, self._look = _NEXT.format(first=first), _LOOK.format(first=first)
        # A word of MySQL.
        key = quote("key")
        self._candidates = _CANDIDATES.format(key=key, aside="", first=first and f"r.{first}")
        aside = _ASIDE.format(key=key)
        self._in_order = _CANDIDATES.format(key=key, aside=aside, first=first and f"r.{first}")

    def look(self) -> Found:
        """Return the open claims, and the first queue or topic with unclaimed rows."""
        return _found(self._select(self._look, [""]))

    def look_after(self, destination: str) -> Found:
        """Return the next queue or topic with unclaimed rows, by name."""
        return _found(self._select(self._next, [destination]))

    def lock(self, destination: str) -> bool:
        """Wait for the lock of a queue or topic until the end of the transaction; False: it has none yet."""
        return self._change(_LOCK, [destination]) > 0

    def take(self, state: StateNumber, token: str) -> bool:
        """Open the next claim of a state; False: its last claim is open, or is another one, or it is stopped."""
        return self._change(_TAKE, [state.number + 1, token, *state]) > 0

    def candidates(self, destination: str, part: int, parts: int, most: int, *, is_ordered: bool) -> list[Candidate]:
        """Return the next unclaimed rows of a place, in their order.

        Args:
            destination: the name of the queue or topic.
            part: the number of the partition; -1 if there are none.
            parts: the number of partitions.
            most: the most rows.
            is_ordered: rows with the key of one that was set aside are left out.
        """
        others = [destination, parts] * 3
        place: list[Any] = [destination, parts, part]
        if is_ordered:
            place.append(destination)
        statement = self._in_order if is_ordered else self._candidates
        return [Candidate(*row) for row in self._select(statement, [*others, *place, most])]

    def unlocked(self, ids: Sequence[int]) -> list[OutboxMessage]:
        """Lock those of some unclaimed rows that no other transaction has locked, and return them in any order."""
        return self._messages(_UNLOCKED.format(columns=self._columns, ids=_numbers(ids)), []) if ids else []

    def mark(self, ids: Sequence[int], number: int) -> None:
        """Write the number of their claim into rows, of which there is at least one."""
        self._change(_MARK.format(ids=_numbers(ids)), [number])

    def claimed(self, state: OutboxState) -> list[OutboxMessage]:
        """Return the rows of the latest claim of a state, in their order."""
        place = [state.number, state.destination, state.parts, state.part]
        return self._messages(_CLAIMED.format(columns=self._columns), place)

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
    for pk, name, part, parts, number, token, is_next in rows:
        if not is_next:
            open_states.append(OutboxState(pk=pk, destination=name, part=part, parts=parts, number=number, token=token))
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
