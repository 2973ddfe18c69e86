"""A table that handlers write to, so that their effects can be counted."""

from django.db import connections


class Effects:
    """The rows that handlers have written to a database."""

    def __init__(self, using):
        self.using = using

    def create(self):
        self._execute("CREATE TABLE IF NOT EXISTS effects (message varchar(255) NOT NULL)")

    def clear(self):
        for table in ("effects", "mq_django_inbox", "mq_django_inbox_pass"):
            self._execute(f"DELETE FROM {table}")

    def add(self, message):
        self._execute("INSERT INTO effects (message) VALUES (%s)", [message.id])

    def all(self):
        """Return the ids of the messages, one for each effect."""
        with connections[self.using].cursor() as cursor:
            cursor.execute("SELECT message FROM effects ORDER BY message")
            return [row[0] for row in cursor.fetchall()]

    def _execute(self, sql, values=()):
        with connections[self.using].cursor() as cursor:
            cursor.execute(sql, values)
