"""One consumer: it fetches, runs and settles messages."""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from mq_django.conf import QueueConfig
from mq_django.consumers import liveness
from mq_django.consumers.decisions import Evidence, settlement
from mq_django.consumers.liveness import Liveness
from mq_django.consumers.service import Service
from mq_django.consumers.settlements import settle_for
from mq_django.consumers.shared_state import Running, SharedState
from mq_django.consumers.worker.dispatcher import Dispatcher
from mq_django.consumers.worker.executor import Executor
from mq_django.consumers.worker.fetcher import Fetcher
from mq_django.consumers.worker.grace import Grace
from mq_django.consumers.worker.isolation import Isolation, QuarantineFetcher
from mq_django.consumers.worker.loops import MAX_COROUTINES, LoopPool
from mq_django.consumers.worker.pools import ThreadPool
from mq_django.consumers.worker.room import Room
from mq_django.consumers.worker.settler import Settler, SettleService
from mq_django.consumers.worker.timekeeper import Releaser, Timekeeper
from mq_django.core.logs import get_logger
from mq_django.core.outcomes import Ack, Bury, Retry
from mq_django.errors import StoreError
from mq_django.stores import open_store
from mq_django.stores.base import Store, StreamEntry
from mq_django.transport.connections import open_session

logger = get_logger(__name__)

#: Held deliveries handed back in one round trip.
BATCH = 500
#: Seconds in which the fetchers must end. Blocked reads are interrupted.
STOP_FETCHING = 1.0
#: Seconds to settle the last outcomes while Redis cannot be reached. After that, the supervisor does it.
LAST_SETTLE = 5.0


def lanes(threads: int) -> int:
    """Return how many lanes a consumer's shared state has: its threads and its coroutines."""
    return threads + MAX_COROUTINES


class Consumer:
    """Runs the handlers of some queues. Its state only moves forward: running, quiet, stopped.

    With a backlog it is a quarantine: it fetches nothing, and runs the messages of the backlog one at a time.
    """

    def __init__(
        self,
        consumer_id: str,
        queues: Sequence[QueueConfig],
        *,
        threads: int,
        shared_state: SharedState,
        backlog: str = "",
    ) -> None:
        self.id = consumer_id
        self._queues = queues
        self._shared_state = shared_state
        self._threads = ThreadPool(threads, shared_state)
        self._loop = LoopPool(threads, shared_state)
        self._settling = SettleService()
        #: For the main thread only: a session belongs to one thread.
        self._stores = self._open()
        self._settlers = [
            Settler(store, config.name, self.id, self._settling.due, self._settling.full)
            for config, store in zip(queues, self._stores, strict=True)
        ]
        for settler, store in zip(self._settlers, self._open(), strict=True):
            self._settling.add(settler, store)
        self._backlog = backlog
        #: The names under which it holds messages.
        self.names = [self.id]
        self._isolation = Isolation(self.id, shared_state, self._open(), self._settlers)
        self._receiver: QuarantineFetcher | None = None
        if backlog:
            self._receiver = QuarantineFetcher(
                self.id, backlog, shared_state, self._open(), list(self._dispatchers(isolate=False))
            )
        self._fetchers: list[Service] = [self._receiver] if self._receiver else list(self._make_fetchers())
        self._threads.wake_fetchers = self._loop.wake_fetchers = self._wake_fetchers
        self._liveness = Liveness()
        self._services: list[Service] = [Timekeeper(self._threads, self._loop), self._settling, self._isolation]
        if not backlog:
            self._services.append(Releaser(self._open(), shared_state))

    def _open(self) -> list[Store]:
        """Open the stores on a connection of their own, for use in one thread."""
        session = open_session("chores")
        return [open_store(config, session) for config in self._queues]

    def _dispatchers(self, *, isolate: bool) -> Iterator[Dispatcher]:
        for number, (config, settler) in enumerate(zip(self._queues, self._settlers, strict=True)):
            yield Dispatcher(
                config.name,
                settler=settler,
                executor=Executor(config, number, self._shared_state, settler),
                threads=self._threads,
                loop=self._loop,
                isolate=self._isolation.adder(number) if isolate else None,
            )

    def _make_fetchers(self) -> Iterator[Fetcher]:
        for number, dispatcher in enumerate(self._dispatchers(isolate=True)):
            session = open_session("consume")
            yield Fetcher(
                open_store(self._queues[number], session),
                session,
                self.id,
                dispatcher=dispatcher,
                room=Room(self._queues[number].name, self._threads, self._loop),
                may_fetch=self._fetch_check(number),
                handled=partial(self._shared_state.handled, number),
                share=len(self._queues),
            )

    def _fetch_check(self, number: int) -> Callable[[], bool]:
        shared_state = self._shared_state
        return lambda: not shared_state.paused(number) and time.monotonic() < shared_state.held_until(number)

    def _wake_fetchers(self) -> None:
        for fetcher in self._fetchers:
            fetcher.wake()

    def start(self) -> None:
        """Start to fetch and run messages."""
        self._threads.start()
        self._loop.start()
        for service in (*self._services, *self._fetchers):
            service.start()

    def is_idle(self) -> bool:
        """Return whether this consumer holds nothing, and no message in the queues is ready, due or pending."""
        if any(settler.in_hand for settler in self._settlers):
            return False
        if self._receiver:
            return True
        for store in self._stores:
            promoted = store.promote(limit=BATCH)
            depths = store.depths()
            if promoted.moved or depths.ready or depths.parked or depths.pending:
                return False
        return True

    def idle_seconds(self) -> float:
        """Return for how many seconds a quarantine has had nothing to run; 0 for any other consumer."""
        return time.monotonic() - self._receiver.busy_at if self._receiver else 0.0

    def settled(self) -> int:
        """Return how many deliveries this consumer has settled."""
        return sum(settler.settled for settler in self._settlers)

    def stuck(self) -> list[str]:
        """Return a description of each loop and thread that has ended or is stuck."""
        progress = {**self._threads.progress(), **self._loop.progress()}
        for service in (*self._services, *self._fetchers):
            progress |= service.progress()
        return self._liveness.look(progress, limit=liveness.STUCK)

    def never_ends(self, running: Running) -> bool:
        """Return whether a delivery cannot end because a coroutine blocks its event loop."""
        return self._loop.is_blocked() and running.receipt in self._loop.receipts()

    def note_counts(self) -> None:
        """Write to the shared state how many deliveries were handled so far, and how many have failed."""
        for number, settler in enumerate(self._settlers):
            ended = settler.ended
            self._shared_state.count(number, ended[Ack], ended[Retry] + ended[Bury])

    def inherit_backlog(self) -> None:
        """Take over the quarantine backlog, to hand it back at the stop in place of the dead supervisor."""
        self.names = [self.id, self._backlog] if self._backlog else [self.id]

    def quiet(self) -> None:
        """Stop fetching, and finish the messages that are here."""
        self._stop_fetching()
        self._isolation.hand_back()

    def stop(self, grace: Grace) -> bool:
        """Stop fetching, hand back unstarted messages, and let running handlers finish within the grace period.

        Returns whether all handlers have ended. Messages of the others are handed back as well.
        """
        self._stop_fetching()
        self._loop.stop()
        self._threads.stop()
        self._isolation.hand_back()
        ended = all([self._threads.join(grace), self._loop.join(grace)])
        for service in self._services:
            service.stop()
        for service in self._services:
            service.join(1.0)
        self._settle_remaining()
        return ended

    def _stop_fetching(self) -> None:
        for fetcher in self._fetchers:
            fetcher.stop()
        give_up = time.monotonic() + STOP_FETCHING
        for fetcher in self._fetchers:
            fetcher.join(max(0.0, give_up - time.monotonic()))
        self._isolation.stop()
        self._isolation.join(1.0)
        # An interrupted read may still have been assigned messages. They are handed back now, not only at the end.
        try:
            self._for_each_queue(lambda number: self._settle_held(number, known=set(self._settlers[number].in_hand)))
        except StoreError as error:
            logger.warning("Messages assigned to this consumer at its end could not be handed back yet: %s", error)

    def _settle_remaining(self) -> None:
        give_up = time.monotonic() + LAST_SETTLE
        if not self._settling.join(LAST_SETTLE):
            logger.warning("Unsettled messages stay pending until they are reclaimed")
            return
        while True:
            try:
                self._settling.settle_all()
                self._settling.try_refused()
                self._for_each_queue(self._settle_held)
            except StoreError as error:
                if time.monotonic() > give_up:
                    logger.warning("Unsettled messages stay pending until they are reclaimed: %s", error)
                    return
                time.sleep(0.1)
            else:
                return

    def _for_each_queue(self, do: Callable[[int], None]) -> None:
        self._settling.each(range(len(self._queues)), do, called=lambda number: self._queues[number].name)

    def _settle_held(self, number: int, *, known: Collection[StreamEntry] = ()) -> None:
        """Settle the deliveries that this consumer holds, except the `known` ones."""
        store, config, shared_state = self._stores[number], self._queues[number], self._shared_state
        for name in self.names:
            while held := store.held_by(name, limit=BATCH + len(known)):
                unknown = [item for item in held if (item.stream, item.entry) not in known][:BATCH]
                if not unknown:
                    break
                # Read after the list, so that deliveries handled in between are acked and not handed back.
                evidence = Evidence(results=shared_state.results(), late=shared_state.late(time.monotonic()))
                settle_for(store, name, [settlement(config, number, item, evidence) for item in unknown])
