"""Pass on how steps of workflows have ended, so that the next ones start."""

import threading
from collections.abc import Iterable

from mq_django.conf import QueueConfig
from mq_django.consumers.service import Service
from mq_django.producers.workflow_steps import StepDelivery
from mq_django.transport.connections import open_transport

#: Messages in one call.
BATCH = 500
#: Seconds between two rounds while no step ends.
IDLE = 60.0


class StepService(Service):
    """Delivers the notes about steps that this consumer has settled. Supervisors deliver the rest."""

    name = "steps"

    def __init__(self, queues: Iterable[QueueConfig]) -> None:
        super().__init__()
        self.connection = None
        self._couriers = {
            config.name: StepDelivery(config, open_transport("consume", config.connection)) for config in queues
        }
        self._servers = {config.name: config.connection for config in queues}
        self._ended: dict[str, list[str]] = {}
        self._lock = threading.Lock()

    def settled(self, queue: str, message_ids: list[str]) -> None:
        """Have the notes about these messages of a queue delivered."""
        with self._lock:
            self._ended.setdefault(queue, []).extend(message_ids)
        self.wake()

    def run_once(self) -> float:
        """Deliver the notes of each queue."""
        with self._lock:
            ended, self._ended = self._ended, {}
        if ended:
            self.each(
                ended, lambda queue: self._deliver(queue, ended[queue]), called=str, server=self._servers.__getitem__
            )
        return 0.0 if self._ended else IDLE

    def _deliver(self, queue: str, message_ids: list[str]) -> None:
        for at in range(0, len(message_ids), BATCH):
            self._couriers[queue].deliver(message_ids[at : at + BATCH])
