"""Orders in a database: what writers commit, and what consumers have done with it.

The effects are rows without unique keys, so that a second one can be counted.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.db import connections

from mq_django.models import OutboxMessage, OutboxState

#: By vendor, a column that numbers rows in the order of their inserts.
_NUMBERED = {
    "sqlite": "integer PRIMARY KEY AUTOINCREMENT",
    "postgresql": "bigserial PRIMARY KEY",
    "mysql": "bigint AUTO_INCREMENT PRIMARY KEY",
}
_TABLES = (
    "CREATE TABLE proof_key (name varchar(40) PRIMARY KEY, number integer NOT NULL)",
    "CREATE TABLE proof_order (id varchar(40) PRIMARY KEY, key_name varchar(40) NOT NULL, number integer NOT NULL)",
    "CREATE TABLE proof_booking (id {numbered}, order_id varchar(40) NOT NULL)",
    "CREATE TABLE proof_entry (id {numbered}, order_id varchar(40) NOT NULL)",
    "CREATE TABLE proof_idle (id {numbered}, note varchar(40) NOT NULL)",
)
#: Databases that lock single rows.
LOCKS_ROWS = ("postgresql", "mysql")


class Orders:
    """The tables of orders in one database.

    Args:
        alias: the alias of the database.
    """

    def __init__(self, alias: str = "default") -> None:
        self.alias = alias

    def create(self, keys: Sequence[str]) -> None:
        """Create the tables, with a row for each key."""
        for table in _TABLES:
            self._execute(table.format(numbered=_NUMBERED[connections[self.alias].vendor]))
        for key in keys:
            self._execute("INSERT INTO proof_key (name, number) VALUES (%s, 0)", [key])

    def write(self, order: str, key: str) -> int:
        """Write an order in the open transaction, and return its number: orders of a key wait for each other."""
        lock = " FOR UPDATE" if connections[self.alias].vendor in LOCKS_ROWS else ""
        ((number,),) = self._rows("SELECT number FROM proof_key WHERE name = %s" + lock, [key])
        self._execute("UPDATE proof_key SET number = %s WHERE name = %s", [number + 1, key])
        row = [order, key, number + 1]
        self._execute("INSERT INTO proof_order (id, key_name, number) VALUES (%s, %s, %s)", row)
        return int(number) + 1

    def book(self, order: str) -> None:
        """Write the effect of the handler of an order."""
        self._execute("INSERT INTO proof_booking (order_id) VALUES (%s)", [order])

    def enter(self, orders: Sequence[str]) -> None:
        """Write the effects of the handler of a batch."""
        places = ", ".join(["(%s)"] * len(orders))
        self._execute("INSERT INTO proof_entry (order_id) VALUES " + places, orders)

    def count(self, table: str) -> int:
        """Return how many rows a table has."""
        ((number,),) = self._rows(f"SELECT COUNT(*) FROM {table}")
        return int(number)

    def committed(self) -> dict[str, tuple[str, int]]:
        """Return the orders: id -> key and number."""
        return {
            order: (key, number) for order, key, number in self._rows("SELECT id, key_name, number FROM proof_order")
        }

    def effects(self, table: str) -> list[str]:
        """Return the ids of the orders with effects in a table, in the order of these, one for each effect."""
        return [order for (order,) in self._rows(f"SELECT order_id FROM {table} ORDER BY id")]

    def outbox(self) -> tuple[int, int]:
        """Return how many rows the outbox has, and how many claims are open or stopped."""
        states = OutboxState.objects.using(self.alias).exclude(parts=0)
        return OutboxMessage.objects.using(self.alias).count(), states.exclude(token="", problem="").count()

    @contextmanager
    def idle_session(self) -> Iterator[None]:
        """Hold a session that has written, and neither commits nor ends. SQLite would let nobody else write."""
        if connections[self.alias].vendor not in LOCKS_ROWS:
            yield
            return
        connection = connections.create_connection(self.alias)
        try:
            connection.set_autocommit(False)
            with connection.cursor() as cursor:
                cursor.execute("INSERT INTO proof_idle (note) VALUES ('idle')")
            yield
        finally:
            connection.close()

    def _execute(self, sql: str, values: Sequence[Any] = ()) -> None:
        with connections[self.alias].cursor() as cursor:
            cursor.execute(sql, values)

    def _rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        with connections[self.alias].cursor() as cursor:
            cursor.execute(sql, values)
            return list(cursor.fetchall())
