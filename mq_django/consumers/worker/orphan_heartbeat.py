"""Send the heartbeats of a supervisor that has died."""

import time
from collections.abc import Sequence

from mq_django.consumers.by_server import ServerQueues, connection_of, open_session_to
from mq_django.consumers.service import Service, held_for, interval
from mq_django.consumers.shared_state import SharedState
from mq_django.core.logs import get_logger
from mq_django.errors import StoreError
from mq_django.stores import open_members

logger = get_logger(__name__)


class OrphanHeartbeat(Service):
    """Sends heartbeats for a consumer whose supervisor has died, while its last handlers finish."""

    name = "orphan's heartbeat"

    def __init__(
        self, supervisor: str, consumers: Sequence[str], queues: ServerQueues, shared_state: SharedState
    ) -> None:
        super().__init__()
        self.connection = connection_of(queues)
        session = open_session_to(queues)
        self._supervisor = supervisor
        self._consumers = consumers
        self._queues = queues
        self._members = {number: open_members(config, session) for number, config in queues.items()}
        self._timeouts = {number: config.visibility_timeout.total_seconds() for number, config in queues.items()}
        self._shared_state = shared_state

    def run_once(self) -> float:
        """Send one heartbeat to every queue, under the supervisor's name."""
        self.each(self._members, self._beat, called=self._name)
        return min(interval(timeout) for timeout in self._timeouts.values())

    def _beat(self, number: int) -> None:
        began = time.monotonic()
        members = self._members[number]
        if members.keep_alive(self._supervisor):
            until = began + held_for(self._timeouts[number])
            self._shared_state.hold_until(number, until, since=members.held_since)

    def _name(self, number: int) -> str:
        return self._queues[number].name

    def end(self) -> None:
        """Stop, and remove the consumer. Without this it would stay registered until its heartbeat expires."""
        self.stop()
        if not self.join(1.0):
            return
        try:
            self.each(self._members, lambda n: self._members[n].leave(self._consumers), called=self._name)
        except StoreError as error:
            logger.warning("Consumer %s remains registered until its heartbeat expires: %s", self._consumers[0], error)
