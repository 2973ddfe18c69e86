"""Delete the rows of the inbox that are older than INBOX_RETENTION."""

import time
from collections.abc import Mapping, Sequence

from django.db import connections

from mq_django.conf import QueueConfig
from mq_django.consumers.service import Service
from mq_django.inbox.passes import databases_of
from mq_django.inbox.retention import delete_old

#: Seconds between two rounds.
EVERY = 600.0
#: Batches of one database in a row. More wait for the next round.
IN_A_ROW = 100
#: Seconds until the next round when a database had more.
SOON = 1.0


class InboxTrimmer(Service):
    """Deletes old rows in some databases. Any number of processes may do so."""

    name = "inbox trimmer"

    def __init__(self, databases: Sequence[str]) -> None:
        super().__init__()
        # It uses no Redis.
        self.connection = None
        self._databases = databases
        self._has_more = False

    def run_once(self) -> float:
        """Delete what is old in every database."""
        self._has_more = False
        self.each(self._databases, self._trim, called=lambda using: f"database {using}")
        return SOON if self._has_more else EVERY

    def progress(self) -> Mapping[str, object]:
        """See Service.progress(). How long a database lets it wait is a setting of the project, and is no failure."""
        found = super().progress()
        return {name: None if value is None else time.monotonic() for name, value in found.items()}

    def _trim(self, using: str) -> None:
        try:
            for _ in range(IN_A_ROW):
                if self.stopping or not delete_old(using):
                    return
                self.progressed = time.monotonic()
            self._has_more = True
        finally:
            # Idle for most of the time, so it holds no connection.
            connections[using].close()


def inbox_trimmers(queues: Sequence[QueueConfig]) -> list[InboxTrimmer]:
    """Return the service that deletes old rows, if a handler of these queues has `@exactly_once`."""
    found = {using for config in queues for using in databases_of(config.name)}
    return [InboxTrimmer(sorted(found))] if found else []
