"""Look at the clocks of running handlers, and take up messages whose handler has arrived."""

from collections.abc import Sequence

from mq_django.consumers.service import Service
from mq_django.consumers.shared_state import SharedState
from mq_django.consumers.worker.pools import Pool, ThreadPool
from mq_django.registry import names
from mq_django.stores.base import Store

#: Seconds between two looks at the clock: how late a timeout may be.
TICK = 0.1
#: Messages released by one script call.
BATCH = 500


class Timekeeper(Service):
    """Looks at every lane's clock."""

    name = "timekeeper"

    def __init__(self, threads: ThreadPool, loop: Pool) -> None:
        super().__init__()
        self._threads = threads
        self._pools = (threads, loop)

    def run_once(self) -> float:
        """Interrupt what is late, and give back what waits behind slow handlers."""
        self._threads.interrupt_late()
        for pool in self._pools:
            pool.look()
        return TICK


class Releaser(Service):
    """Makes unhandled messages ready when this consumer knows their names."""

    name = "releaser"

    def __init__(self, stores: Sequence[Store], shared_state: SharedState) -> None:
        super().__init__()
        self._stores = stores
        self._shared_state = shared_state
        #: At its start a consumer announces its names; later only when its supervisor saw something unhandled.
        self._announced = False

    def run_once(self) -> float:
        """Release what this consumer can handle."""
        asked = [
            store for n, store in enumerate(self._stores) if not self._announced or self._shared_state.unhandled(n)
        ]
        self.each(asked, self._release, called=lambda store: store.config.name)
        self._announced = True
        return 5.0

    def _release(self, store: Store) -> None:
        known = list(names(store.config.name))
        while store.release_unhandled(known, limit=BATCH):
            pass
