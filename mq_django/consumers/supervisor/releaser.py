"""Make unhandled messages ready while consumers in other programs announce that they handle them."""

from collections.abc import Collection, Sequence

from mq_django.conf import QueueConfig
from mq_django.consumers.service import Service
from mq_django.stores import open_store
from mq_django.stores.members import ANY_NAME
from mq_django.transport.connections import open_session

#: Messages released by one script call.
BATCH = 500
#: Seconds between two rounds while there is something to release, and otherwise, unless the service is woken.
TICK, IDLE = 1.0, 60.0


class AnnouncedReleaser(Service):
    """Releases unhandled messages of the names that consumers announce. Our own consumers release theirs themselves."""

    name = "releaser"

    def __init__(self, queues: Sequence[QueueConfig]) -> None:
        super().__init__()
        session = open_session("chores")
        self._stores = [open_store(config, session) for config in queues]
        #: By queue: the announced names, and the number of unhandled messages at the latest promotion.
        self._names: list[Collection[str]] = [()] * len(queues)
        self._unhandled = [0] * len(queues)
        self._is_idle = True

    def announced(self, number: int, names: Collection[str]) -> None:
        """Set the names that the consumers of a queue announce."""
        self._names[number] = names
        self._wake_for(number)

    def seen(self, number: int, unhandled: int) -> None:
        """Set how many unhandled messages a queue has."""
        self._unhandled[number] = unhandled
        self._wake_for(number)

    def run_once(self) -> float:
        """Release the messages of each queue that has unhandled messages and announced names."""
        numbers = [number for number in range(len(self._stores)) if self._needs_round(number)]
        self._is_idle = not numbers
        self.each(numbers, self._release, called=lambda number: self._stores[number].config.name)
        return TICK if numbers else IDLE

    def _needs_round(self, number: int) -> bool:
        return bool(self._unhandled[number] and self._names[number])

    def _wake_for(self, number: int) -> None:
        if self._is_idle and self._needs_round(number):
            self.wake()

    def _release(self, number: int) -> None:
        names, store = self._names[number], self._stores[number]
        # No more than there were: consumers that do not know a name may set its messages aside again at once.
        left = self._unhandled[number]
        while left > 0 and (moved := store.release_unhandled(None if ANY_NAME in names else names, limit=BATCH)):
            left -= moved
