"""Take messages of one queue, no more than can be run soon."""

import logging
from collections.abc import Callable, Sequence

from mq_django.consumers.executor import Executor
from mq_django.consumers.pools import Job, LoopPool, ThreadPool
from mq_django.consumers.service import Service
from mq_django.consumers.settler import Settler
from mq_django.core.messages import Delivery, Undecodable
from mq_django.core.outcomes import Bury, SetAside
from mq_django.errors import ConnectionLost, StoreError
from mq_django.registry import Handler, find
from mq_django.stores.base import Settlement, Store
from mq_django.transport.connections import BLOCK_MS
from mq_django.transport.sessions import Session

logger = logging.getLogger(__name__)

#: Seconds until the next look when there is no room, if nobody wakes the fetcher before.
NO_ROOM = 1.0
#: Seconds between two looks at a paused queue; the board says at once when it goes on.
PAUSED = 0.05
#: Held deliveries looked at after a broken connection.
STRANDED = 5000


class Fetcher(Service):
    """Reads one queue and gives its messages to the pools. Blocked reads are served in turn: that is the fairness."""

    def __init__(
        self,
        store: Store,
        session: Session,
        consumer: str,
        *,
        settler: Settler,
        executor: Executor,
        threads: ThreadPool,
        loop: LoopPool,
        is_paused: Callable[[], bool],
        share: int,
    ) -> None:
        super().__init__()
        self.name = f"fetcher of {store.config.name}"
        self._store = store
        self._session = session
        self._consumer = consumer
        self._settler = settler
        self._executor = executor
        self._threads = threads
        self._loop_pool = loop
        self._is_paused = is_paused
        #: How many fetchers share the pools: while all of them block, each asks for its share of the room.
        self._share = share
        self._busy = True
        self._reconcile = False
        self._handlers: dict[str, Handler] = {}
        self._unknown: set[str] = set()

    def run_once(self) -> float:
        """Take what the pools have room for."""
        if self._is_paused():
            return PAUSED
        room = min(self._threads.room(self._settler.seconds), self._loop_pool.room())
        if room < 1:
            return NO_ROOM
        if self._reconcile:
            self._take_stranded()
        elif self._busy:
            taken = self._settler.settle_and_take(self._store, count=room)
            self._busy = bool(taken)
            self._dispatch(taken)
        else:
            taken = self._store.fetch(self._consumer, count=max(1, room // self._share), block_ms=BLOCK_MS)
            self._busy = True
            self._dispatch(taken)
        return 0.0

    def recover(self, error: StoreError) -> None:
        """Look for deliveries whose hand-out never reached us, once Redis answers again."""
        self._busy = True
        self._reconcile = self._reconcile or isinstance(error, ConnectionLost)

    def stop(self) -> None:
        """End the loop, and a blocked read at once."""
        super().stop()
        self._session.interrupt()

    def close(self) -> None:
        """Give the connection back."""
        self._session.close()

    def _take_stranded(self) -> None:
        """Run what Redis handed out with a reply that was lost."""
        held = self._store.held_by(self._consumer, limit=STRANDED)
        stranded = [item for item in held if (item.home, item.entry) not in self._settler.in_hand]
        self._reconcile = False
        if stranded:
            logger.warning("%d messages of queue %s were handed out unseen", len(stranded), self._store.config.name)
        self._dispatch(stranded)

    def _dispatch(self, taken: Sequence[Delivery | Undecodable]) -> None:
        self._settler.in_hand.update([(item.home, item.entry) for item in taken])
        for item in taken:
            if isinstance(item, Undecodable):
                self._bury(item)
                continue
            handler = self._handler(item.message.name)
            if handler is None:
                self._executor.settle(Settlement(item, SetAside()))
            elif handler.is_async:
                self._loop_pool.put(Job(item, handler, self._executor))
            else:
                self._threads.put(Job(item, handler, self._executor))

    def _handler(self, name: str) -> Handler | None:
        handler = self._handlers.get(name)
        if handler is None:
            handler = find(self._store.config.name, name)
            if handler is not None:
                self._handlers[name] = handler
            elif name not in self._unknown:
                self._unknown.add(name[:200])
                logger.warning(
                    "No handler for %r in queue %s: its messages wait until there is one",
                    *(name[:200], self._store.config.name),
                )
        return handler

    def _bury(self, item: Undecodable) -> None:
        logger.error("Entry %s of queue %s is buried: %s", item.entry.decode(), self._store.config.name, item.reason)
        self._executor.settle(Settlement(item, Bury(item.reason, reason="undecodable")))
