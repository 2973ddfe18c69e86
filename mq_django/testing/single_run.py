"""Handle one message of a queue, and recover it if its outcome is lost."""

from mq_django.conf import QueueConfig
from mq_django.consumers.decisions import Evidence
from mq_django.consumers.supervisor.reclaimer import reclaim
from mq_django.consumers.worker.databases import Databases
from mq_django.core.messages import Delivery, Message, Undecodable
from mq_django.stores import open_members
from mq_django.testing.queue_run import CONSUMER, Handled, QueueRun
from mq_django.transport.connections import open_wire


class SingleRun(QueueRun):
    """Handles one message of a queue.

    Args:
        config: of the queue.
        databases: the connections of the thread.
        only: the message, while those before it stay pending; None: the next one.
    """

    def __init__(self, config: QueueConfig, databases: Databases, *, only: Message | None = None) -> None:
        super().__init__(config, databases)
        self._only = only

    def finish(self, *, raise_errors: bool = False) -> Handled | None:
        """Handle the message and settle it. Return None if it is not ready."""
        handled = self._handle_next(raise_errors=raise_errors)
        self._settle()
        return handled

    def lose_outcome(self) -> None:
        """Handle the message, and let it be delivered again, as when the consumer is taken for dead meanwhile."""
        self._handle_next(raise_errors=False)
        self.recover(Evidence(lost=True))

    def recover(self, evidence: Evidence) -> None:
        """Settle what the consumer holds, and remove it from its queue, as a supervisor does for a dead one.

        Args:
            evidence: what the supervisor knows about it.
        """
        config = self._store.config
        reclaim(self._store, 0, CONSUMER, evidence)
        open_members(config, open_wire("chores", config.connection)).leave([CONSUMER])
        # It is retried without a delay.
        self._make_ready()

    def next_item(self) -> Delivery | Undecodable | None:
        """Take the message; None if it is not ready."""
        self._make_ready()
        while taken := self._store.take(CONSUMER, count=1):
            (item,) = taken
            if self._only is None:
                return item
            if isinstance(item, Delivery) and item.message.id == self._only.id:
                # Redis has the time at which it was written.
                return item._replace(message=item.message._replace(published_ms=self._only.published_ms))
        return None

    def _handle_next(self, *, raise_errors: bool) -> Handled | None:
        item = self.next_item()
        return None if item is None else self._handle([item], raise_errors=raise_errors)[0]
