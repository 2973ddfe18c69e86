"""The sink that writes publications into the outbox of a database."""

from collections.abc import Sequence

from django.db import connections

from mq_django.core.handler_options import is_manual
from mq_django.core.publication import Publication
from mq_django.outbox.insertion import database_of, insert
from mq_django.transport import test_mode


class OutboxSink:
    """Writes a row for each publication, in the transaction of a database, or at once if there is none.

    Args:
        using: the alias of the database; None: as the routers say.
        at_once: in a test with `mq_django.testing`, publish without waiting for the commit.
    """

    def __init__(self, using: str | None, *, at_once: bool) -> None:
        self._alias = database_of(using)
        self._at_once = at_once

    @property
    def awaits(self) -> str | None:
        """See Sink.awaits. With autocommit off nothing says when there is a commit."""
        is_now = (self._at_once and test_mode.relay is not None) or is_manual(connections[self._alias])
        return None if is_now else self._alias

    def send(self, publications: Sequence[Publication]) -> Sequence[str | None]:
        """See Sink.send(). The ids are the messages' own, because what a relay finds is known only later.

        Raises:
            NoOutbox: the database has no outbox.
        """
        insert(publications, self._alias, at_once=self._at_once)
        return [message.id for message, _, _ in publications]
