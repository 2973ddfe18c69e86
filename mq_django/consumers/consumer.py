"""One consumer: a process that fetches, runs and settles."""

import logging
import time
from collections.abc import Callable, Sequence

from mq_django.conf import QueueConfig
from mq_django.consumers.board import Board
from mq_django.consumers.executor import Executor
from mq_django.consumers.fetcher import Fetcher
from mq_django.consumers.grace import Grace
from mq_django.consumers.pools import MAX_COROUTINES, LoopPool, ThreadPool
from mq_django.consumers.service import Service
from mq_django.consumers.settler import Settler, SettleService
from mq_django.consumers.timekeeper import Releaser, Timekeeper
from mq_django.core.outcomes import HandBack
from mq_django.errors import StoreError
from mq_django.stores import open_store
from mq_django.stores.base import Settlement, Store
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Session

logger = logging.getLogger(__name__)

#: Held deliveries given back by one trip.
BATCH = 500
#: Seconds to settle the last outcomes while Redis is away; what then is unsettled, the supervisor's reclaiming finds.
LAST_SETTLE = 5.0


def lanes(threads: int) -> int:
    """Return how many lanes a consumer's board has: its threads and its coroutines."""
    return threads + MAX_COROUTINES


class Consumer:
    """Runs the handlers of some queues. Its life goes one way: running, quiet, stopped."""

    def __init__(self, consumer_id: str, queues: Sequence[QueueConfig], *, threads: int, board: Board) -> None:
        self.id = consumer_id
        self._queues = queues
        self._board = board
        self._threads = ThreadPool(threads, board)
        self._loop = LoopPool(threads, board)
        self._settling = SettleService()
        self._fetchers: list[Fetcher] = []
        self._settlers: list[Settler] = []
        client = get_client("consume")
        self._session = Session(client)
        self._stores: list[Store] = [open_store(config, self._session) for config in queues]
        for number, config in enumerate(queues):
            self._add_queue(number, config)
        self._threads.wake_fetchers = self._wake_fetchers
        releaser_session = Session(client)
        self._services: list[Service] = [
            Timekeeper(self._threads),
            Releaser([open_store(config, releaser_session) for config in queues], board),
            self._settling,
        ]

    def _add_queue(self, number: int, config: QueueConfig) -> None:
        session = Session(get_client("consume"))
        store = open_store(config, session)
        settler = Settler(store, config.name, self.id, self._settling.due, self._settling.full)
        self._settling.add(settler, self._stores[number])
        self._settlers.append(settler)
        self._fetchers.append(
            Fetcher(
                store,
                session,
                self.id,
                settler=settler,
                executor=Executor(config, number, self._board, settler),
                threads=self._threads,
                loop=self._loop,
                is_paused=self._paused_check(number),
                share=len(self._queues),
            )
        )

    def _paused_check(self, number: int) -> Callable[[], bool]:
        return lambda: self._board.paused(number)

    def _wake_fetchers(self) -> None:
        for fetcher in self._fetchers:
            fetcher.wake()

    def start(self) -> None:
        """Begin to fetch and run."""
        self._threads.start()
        self._loop.start()
        for service in (*self._services, *self._fetchers):
            service.start()

    def is_idle(self) -> bool:
        """Tell whether nothing is in hand here, and nothing ready, due or pending in the queues."""
        if any(settler.in_hand for settler in self._settlers):
            return False
        for store in self._stores:
            promoted = store.promote(limit=BATCH)
            depths = store.depths()
            if promoted.moved or depths.ready or depths.pending:
                return False
        return True

    def stop(self, grace: Grace) -> bool:
        """Fetch no more, finish what runs while the grace lasts, and hand back the rest.

        Returns whether every handler had ended by then.
        """
        for fetcher in self._fetchers:
            fetcher.stop()
        for fetcher in self._fetchers:
            fetcher.join(2.0)
        self._loop.stop()
        self._threads.hand_back_waiting()
        self._threads.stop()
        ended = all([self._threads.join(grace), self._loop.join(grace)])
        for service in self._services:
            service.stop()
        for service in self._services:
            service.join(1.0)
        self._settle_the_rest()
        return ended

    def _settle_the_rest(self) -> None:
        give_up = time.monotonic() + LAST_SETTLE
        while True:
            try:
                self._settling.settle_all()
                for store in self._stores:
                    self._hand_back_held(store)
            except StoreError as error:
                if time.monotonic() > give_up:
                    logger.warning("What was unsettled stays pending until it is reclaimed: %s", error)
                    return
                time.sleep(0.1)
            else:
                return

    def _hand_back_held(self, store: Store) -> None:
        """Give back what still runs, and what a read brought after it was interrupted."""
        while held := store.held_by(self.id, limit=BATCH):
            store.settle(self.id, [Settlement(delivery, HandBack()) for delivery in held])
