"""Interrupt handlers past their timeout, and release messages that have a handler now."""

from collections.abc import Iterator, Mapping

from mq_django.consumers.by_server import ServerQueues, assign, open_stores
from mq_django.consumers.service import Service
from mq_django.consumers.shared_state import SharedState
from mq_django.consumers.worker.pools import Pool, ThreadPool
from mq_django.registry import names
from mq_django.stores.base import Store

#: Seconds between two checks: how late a timeout may be.
TICK = 0.1
#: Messages released by one script call.
BATCH = 500


class Timekeeper(Service):
    """Enforces the timeouts of the lanes."""

    name = "timekeeper"

    def __init__(self, threads: ThreadPool, loop: Pool) -> None:
        super().__init__()
        self._threads = threads
        self._pools = (threads, loop)

    def run_once(self) -> float:
        """Interrupt late handlers, and hand back messages that wait behind slow ones."""
        self._threads.interrupt_late()
        for pool in self._pools:
            pool.look()
        return TICK


class Releaser(Service):
    """Releases unhandled messages for which this consumer has a handler."""

    name = "releaser"

    def __init__(self, stores: Mapping[int, Store], shared_state: SharedState) -> None:
        super().__init__()
        self._stores = stores
        self._shared_state = shared_state
        #: Each queue is checked once at the start, and later only when its supervisor has seen unhandled messages.
        self.has_checked_all = False

    def run_once(self) -> float:
        """Release the messages that this consumer can handle."""
        asked = [
            store for n, store in self._stores.items() if not self.has_checked_all or self._shared_state.unhandled(n)
        ]
        self.each(asked, self._release, called=lambda store: store.config.name)
        self.has_checked_all = True
        return 5.0

    def _release(self, store: Store) -> None:
        known = list(names(store.config.name))
        while store.release_unhandled(known, limit=BATCH):
            pass


def releasers(servers: Mapping[str, ServerQueues], shared_state: SharedState) -> Iterator[Releaser]:
    """Yield a releaser for the queues on each server."""
    for share in servers.values():
        releaser = Releaser(open_stores(share), shared_state)
        assign([releaser], share.values(), servers=len(servers))
        yield releaser
