"""Make unhandled messages ready while consumers in other programs announce that they handle them."""

import time
from collections.abc import Collection

from mq_django.consumers.by_server import ServerQueues, open_stores
from mq_django.consumers.service import Service
from mq_django.stores.members import ANY_NAME

#: Messages released by one script call, and in one round of a queue that our consumers fetch from, too. These set the
#: messages that they get aside again, so the others get a share of each small round, and most of a large one is lost.
BATCH, PORTION = 500, 50
#: Seconds between two rounds after messages were released, and at most this share of the time is spent on rounds.
AGAIN, SHARE = 0.05, 0.05
#: Seconds between two rounds while there are unhandled messages, and otherwise, unless the service is woken.
TICK, IDLE = 1.0, 60.0


class AnnouncedReleaser(Service):
    """Releases unhandled messages of the names that consumers announce. Our own consumers release theirs themselves."""

    name = "releaser"

    def __init__(self, queues: ServerQueues) -> None:
        super().__init__()
        self._stores = open_stores(queues)
        #: By queue: the announced names, and the number of unhandled messages at the latest promotion.
        self._names: dict[int, Collection[str]] = dict.fromkeys(queues, ())
        self._unhandled = dict.fromkeys(queues, 0)
        self._is_idle = True
        #: The number of messages that the latest round has released.
        self._released = 0

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
        numbers = [number for number in self._stores if self._needs_round(number)]
        self._is_idle, self._released, began = not numbers, 0, time.monotonic()
        self.each(numbers, self._release, called=lambda number: self._stores[number].config.name)
        if self._released:
            return min(TICK, max(AGAIN, (time.monotonic() - began) / SHARE))
        return TICK if numbers else IDLE

    def _needs_round(self, number: int) -> bool:
        return bool(self._unhandled[number] and self._names[number])

    def _wake_for(self, number: int) -> None:
        if self._is_idle and self._needs_round(number):
            self.wake()

    def _release(self, number: int) -> None:
        store, names = self._stores[number], self._names[number]
        found = None if ANY_NAME in names else names
        if store.config.consume:
            self._released += store.release_unhandled(found, limit=max(1, PORTION // len(found or [ANY_NAME])))
            return
        # No more than there were: consumers with older code may set messages aside again at once.
        left = self._unhandled[number]
        while left > 0 and not self.stopping and (moved := store.release_unhandled(found, limit=BATCH)):
            left -= moved
            self._released += moved
            self.progressed = time.monotonic()
