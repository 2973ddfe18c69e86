"""The thread that settles outcomes that no fetch has taken along within a few milliseconds."""

import threading
import time

from mq_django.consumers.service import Service
from mq_django.consumers.worker.settler import Settler
from mq_django.stores.base import Store

#: Seconds for which an outcome may wait to be sent in a batch. With the round trip it is settled within 10 ms.
MAX_WAIT = 0.006
#: Seconds until outcomes that Redis refused are tried again.
TRY_AGAIN = 1.0


class SettleService(Service):
    """Settles outcomes that no fetch has taken along within a few milliseconds."""

    name = "settler"

    def __init__(self) -> None:
        super().__init__()
        self.due = threading.Event()
        self.full = threading.Event()
        self._settlers: list[tuple[Settler, Store]] = []
        self._tried = 0.0

    def add(self, settler: Settler, store: Store) -> None:
        """Add a queue's settler, with a store on this service's own connection."""
        self._settlers.append((settler, store))

    def run_once(self) -> float:
        """Wait for an outcome, and a moment for more, then settle them."""
        if self.due.wait(1.0):
            self.full.wait(MAX_WAIT)
            self.settle_all()
        if time.monotonic() - self._tried > TRY_AGAIN:
            self.try_refused()
        return 0.0

    def stop(self) -> None:
        """End the loop, and interrupt its wait."""
        super().stop()
        self.due.set()

    def settle_all(self) -> None:
        """Settle everything of every queue."""
        # Cleared first: outcomes that are added meanwhile set them again.
        self.due.clear()
        self.full.clear()
        for settler, store in self._settlers:
            try:
                while len(settler):
                    settler.settle(store)
            except BaseException:
                self.due.set()
                raise

    def try_refused(self) -> None:
        """Settle again the outcomes that Redis refused."""
        self._tried = time.monotonic()
        self.each(self._settlers, lambda one: one[0].try_refused(one[1]), called=lambda one: one[0].queue)
