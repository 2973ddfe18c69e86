"""One consumer: it fetches, runs and settles messages. It makes the fetchers of its queues."""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial

from mq_django.conf import QueueConfig, get_config
from mq_django.consumers.decisions import Evidence, settle_for, settlement
from mq_django.consumers.processes import Grace
from mq_django.consumers.service import (
    STUCK,
    Liveness,
    ServerQueues,
    Service,
    assign,
    by_server,
    open_session_to,
    open_stores,
)
from mq_django.consumers.shared_state import Running, SharedState
from mq_django.consumers.worker.batches import Batches
from mq_django.consumers.worker.breakers import open_cancels
from mq_django.consumers.worker.call_path import Slot
from mq_django.consumers.worker.dispatcher import Dispatcher, Isolation, QuarantineFetcher
from mq_django.consumers.worker.executor import Executor
from mq_django.consumers.worker.fetchers import Demand, FetchedPartition, Fetcher, PartitionFetcher, QueueReader
from mq_django.consumers.worker.loops import MAX_COROUTINES, LoopPool
from mq_django.consumers.worker.measured_store import measured
from mq_django.consumers.worker.pools import ThreadPool
from mq_django.consumers.worker.progress import (
    Canceller,
    ProgressReporter,
    Releaser,
    RunningTasks,
    StreamSender,
    Timekeeper,
)
from mq_django.consumers.worker.resting import RestingQueues
from mq_django.consumers.worker.settler import Settler, SettleService
from mq_django.consumers.worker.stacks import SlotStacks, StackAnswers, open_answers
from mq_django.core.logs import get_logger
from mq_django.core.messages import Ack, Bury, Retry, StepEnd
from mq_django.errors import StoreError
from mq_django.producers.workflow_steps import StepDelivery
from mq_django.registry import lingers
from mq_django.stores import open_store
from mq_django.stores.base import Store, StreamEntry
from mq_django.stores.line_store import Shares
from mq_django.stores.partition_transport import PartitionTransport
from mq_django.stores.stream_store import StreamStore
from mq_django.transport.cluster_transport import AnySession
from mq_django.transport.connections import open_session, open_transport
from mq_django.transport.sessions import Session


def _may_rest(config: QueueConfig) -> bool:
    """Return whether a queue is a plain one: all others wait for something else, too."""
    return config.store == "stream" and not (config.is_partition or config.limits)


class Fetchers:
    """Makes the fetchers of a consumer.

    Args:
        consumer: its name.
        queues: the queues and partitions that it handles.
        dispatchers: of the queues, by number.
        shared_state: what the supervisor says about the queues.
        demand: returns how much a fetcher of the queue with this name may fetch.
    """

    def __init__(
        self,
        consumer: str,
        queues: Sequence[QueueConfig],
        dispatchers: Sequence[Dispatcher],
        shared_state: SharedState,
        demand: Callable[[str], Demand],
    ) -> None:
        self._consumer = consumer
        self._queues = queues
        self._dispatchers = dispatchers
        self._shared_state = shared_state
        self._demand = demand

    def open(self) -> Iterator[Service]:
        """Yield the fetchers, each with a connection of its own."""
        groups = list(self._fetched_together())
        resting = self._open_resting(numbers[0] for numbers in groups)
        yield from resting.values()
        for numbers in groups:
            config = self._queues[numbers[0]]
            session = open_session("consume", config.connection)
            demand = self._demand(config.public_name)
            if config.is_partition:
                parts = [self._partition(number, session) for number in numbers]
                whole = get_config().queue(config.public_name)
                shares = Shares(whole, session, f"{self._consumer}:{numbers[0]}") if whole.limits.of_queue else None
                yield PartitionFetcher(config.public_name, parts, session, demand=demand, shares=shares)
            else:
                reader = self._reader(numbers[0], session, open_store(config, session))
                may_fetch, rest = self._fetch_check(numbers[0]), resting.get(config.connection)
                rest = rest if _may_rest(config) else None
                yield Fetcher(reader, session, demand=demand, may_fetch=may_fetch, share=len(groups), resting=rest)

    def _open_resting(self, numbers: Iterable[int]) -> dict[str, RestingQueues]:
        """Return the readers of queues at rest by connection, where there are several such queues."""
        may_rest: dict[str, list[str]] = {}
        for config in map(self._queues.__getitem__, numbers):
            if _may_rest(config):
                may_rest.setdefault(config.connection, []).append(config.name)
        found: dict[str, RestingQueues] = {}
        for connection, names in may_rest.items():
            session = open_session("consume", connection)
            # On a cluster, no read is for several queues.
            if len(names) > 1 and isinstance(session, Session):
                found[connection] = RestingQueues(session, self._consumer, connection=connection, first=names[0])
        return found

    def _fetched_together(self) -> Iterator[Sequence[int]]:
        """Yield the numbers of the queues that each fetcher reads."""
        for share in by_server(self._queues).values():
            parts: dict[str, list[int]] = {}
            for number, config in share.items():
                if config.is_partition:
                    parts.setdefault(config.public_name, []).append(number)
                else:
                    yield [number]
            yield from parts.values()

    def _partition(self, number: int, session: AnySession) -> FetchedPartition:
        config = self._queues[number]
        transport = PartitionTransport(config, session)
        store = open_store(config, transport)
        assert isinstance(store, StreamStore)
        reader = self._reader(number, session, store)
        prefers = partial(self._shared_state.prefers, number)
        return FetchedPartition(reader, transport, store, self._fetch_check(number), prefers)

    def _reader(self, number: int, session: AnySession, store: Store) -> QueueReader:
        handled = partial(self._shared_state.handled, number)
        return QueueReader(measured(store), session, self._consumer, self._dispatchers[number], handled)

    def _fetch_check(self, number: int) -> Callable[[], bool]:
        shared_state = self._shared_state
        return lambda: not shared_state.paused(number) and time.monotonic() < shared_state.held_until(number)


# Pass on how steps of workflows have ended, so that the next ones start.

#: Messages in one call.
STEPS_AT_ONCE = 500
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
        for at in range(0, len(message_ids), STEPS_AT_ONCE):
            self._couriers[queue].deliver(message_ids[at : at + STEPS_AT_ONCE])


logger = get_logger(__name__)

#: Held deliveries handed back in one round trip.
BATCH = 500
#: Seconds in which the fetchers must end. Blocked reads are interrupted.
STOP_FETCHING = 1.0
#: Seconds to settle the last outcomes while Redis cannot be reached. After that, the supervisor does it.
LAST_SETTLE = 5.0


def slots(threads: int) -> int:
    """Return how many slots a consumer's shared state has: its threads and its coroutines."""
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
        self._batches = Batches(shared_state, self._threads, self._loop, threads)
        self._servers = by_server(queues)
        #: One per server, in the same order.
        self._settling = [SettleService() for _ in self._servers]
        self._cancels = open_cancels(queues)
        #: For the main thread only: a session belongs to one thread.
        self._stores = self._open()
        self._settlers = self._make_settlers()
        self._backlog = backlog
        #: The names under which it holds messages.
        self.names = [self.id]
        self._isolations = [
            Isolation(self.id, shared_state, open_stores(share), self._settlers) for share in self._servers.values()
        ]
        self._receiver: QuarantineFetcher | None = None
        if backlog:
            self._receiver = QuarantineFetcher(
                self.id, backlog, shared_state, self._open(), list(self._dispatchers(isolate=False))
            )
        self._fetchers: list[Service] = [self._receiver] if self._receiver else list(self._make_fetchers())
        self._threads.wake_fetchers = self._loop.wake_fetchers = self._wake_fetchers
        self._liveness = Liveness()
        self._steps = StepService(queues)
        for settler in self._settlers:
            settler.steps_ended = self._steps.settled
        self._services: list[Service] = [Timekeeper(self._threads, self._loop), *self._settling, *self._isolations]
        self._services += [self._steps, *([self._batches] if lingers() else [])]
        self._releasing: list[Releaser] = []
        answers = open_answers(queues, self.id, SlotStacks(self._threads, self._loop, shared_state).take)
        for number, share in enumerate(self._servers.values()):
            services = list(self._services_of(share, answers))
            self._services += services
            services += [self._settling[number], self._isolations[number]]
            assign(services, share.values(), servers=len(self._servers))

    def _services_of(self, share: ServerQueues, answers: Sequence[StackAnswers]) -> Iterator[Service]:
        """Yield what looks at the running handlers of the queues on one server, and releases messages there."""
        slots: list[Slot] = [*self._threads.slots, *self._loop.slots]
        cancels = {number: self._cancels[number] for number in share}
        yield Canceller(cancels, {number: answers[number] for number in share}, self._shared_state, slots)
        books = {number: self._settlers[number].reports for number in share}
        tasks = RunningTasks(share, self.id, self._shared_state, slots)
        yield ProgressReporter(books, tasks, self._shared_state, open_session_to(share))
        if streams := {number: book for number, book in books.items() if book.config.stream is not None}:
            yield StreamSender(streams, self.id, open_session_to(share))
        if not self._backlog:
            self._releasing.append(Releaser(open_stores(share), self._shared_state))
            yield self._releasing[-1]

    def _open(self) -> list[Store]:
        """Open the stores on sessions of their own, for use in one thread."""
        stores = {number: store for share in self._servers.values() for number, store in open_stores(share).items()}
        return [stores[number] for number in range(len(self._queues))]

    def _make_settlers(self) -> list[Settler]:
        settlers: dict[int, Settler] = {}
        for service, share in zip(self._settling, self._servers.values(), strict=True):
            for number, store in open_stores(share).items():
                settlers[number] = Settler(store, store.config.name, self.id, service.due, service.full)
                service.add(settlers[number], measured(store))
        return [settlers[number] for number in range(len(self._queues))]

    def _dispatchers(self, *, isolate: bool) -> Iterator[Dispatcher]:
        servers = zip(self._isolations, self._servers.values(), strict=True)
        isolations = {number: isolation for isolation, share in servers for number in share}
        for number, (config, settler) in enumerate(zip(self._queues, self._settlers, strict=True)):
            yield Dispatcher(
                config.public_name,
                settler=settler,
                executor=Executor(config, number, self._shared_state, settler, self._cancels[number]),
                threads=self._threads,
                loop=self._loop,
                batches=self._batches,
                isolate=partial(isolations[number].add, number) if isolate else None,
            )

    def _make_fetchers(self) -> Iterator[Service]:
        dispatchers = list(self._dispatchers(isolate=True))
        demand = partial(Demand, threads=self._threads, loop=self._loop, batches=self._batches)
        return Fetchers(self.id, self._queues, dispatchers, self._shared_state, demand).open()

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
        if not all(releaser.has_checked_all for releaser in self._releasing):
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
        return self._liveness.check(progress, limit=STUCK)

    def never_ends(self, running: Running) -> bool:
        """Return whether a delivery cannot end because a coroutine blocks its event loop."""
        return self._loop.is_blocked() and running.receipt in self._loop.receipts()

    def is_blocked(self) -> bool:
        """Return whether its event loop is blocked, and it is not known by which delivery."""
        return bool(self._loop.suspects)

    def note_counts(self) -> None:
        """Write to the shared state how many deliveries were handled so far, how many have failed, and their times."""
        for number, settler in enumerate(self._settlers):
            ended = settler.ended
            handled, failed = ended[Ack] + ended[StepEnd], ended[Retry] + ended[Bury]
            self._shared_state.count(number, handled, failed, settler.micros)

    def inherit_backlog(self) -> None:
        """Take over the quarantine backlog, to hand it back at the stop in place of the dead supervisor."""
        self.names = [self.id, self._backlog] if self._backlog else [self.id]

    def quiet(self) -> None:
        """Stop fetching, and finish the messages that are here."""
        self._stop_fetching()
        self._hand_back_isolated()

    def stop(self, grace: Grace) -> bool:
        """Stop fetching, hand back unstarted messages, and let running handlers finish within the grace period.

        Returns whether all handlers have ended. Messages of the others are handed back as well.
        """
        self._stop_fetching()
        for settler in self._settlers:
            settler.reports.stopping.set()
        self._batches.hand_back()
        self._loop.stop()
        self._threads.stop()
        self._hand_back_isolated()
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
        for isolation in self._isolations:
            isolation.stop()
        for isolation in self._isolations:
            isolation.join(1.0)
        # An interrupted read may still have been assigned messages. They are handed back now, not only at the end.
        try:
            self._for_each_queue(lambda number: self._settle_held(number, known=set(self._settlers[number].in_hand)))
        except StoreError as error:
            logger.warning("Messages assigned to this consumer at its end could not be handed back yet: %s", error)

    def _hand_back_isolated(self) -> None:
        for isolation in self._isolations:
            isolation.hand_back()

    def _settle_remaining(self) -> None:
        give_up = time.monotonic() + LAST_SETTLE
        left = list(zip(self._settling, self._servers.values(), strict=True))
        if not all(service.join(max(0.0, give_up - time.monotonic())) for service, _ in left):
            logger.warning("Unsettled messages stay pending until they are reclaimed")
        while left:
            # A server that is down does not keep the others from being settled.
            failed = [(*one, error) for one in left if (error := self._settle_on(*one)) is not None]
            left = [(service, share) for service, share, _ in failed]
            if left and time.monotonic() > give_up:
                logger.warning("Unsettled messages stay pending until they are reclaimed: %s", failed[0][2])
                return
            if left:
                time.sleep(0.1)

    def _settle_on(self, service: SettleService, share: ServerQueues) -> StoreError | None:
        """Settle what is left on one server, and return the error if that fails."""
        if not service.join(0):
            return None
        try:
            service.settle_all()
            service.try_refused()
            service.each(share, self._settle_held, called=self._name)
            service.count_stale()
        except StoreError as error:
            return error
        return None

    def _name(self, number: int) -> str:
        return self._queues[number].name

    def _for_each_queue(self, do: Callable[[int], None]) -> None:
        queues, servers = range(len(self._queues)), lambda number: self._queues[number].connection
        self._settling[0].each(queues, do, called=self._name, server=servers)

    def _settle_held(self, number: int, *, known: Collection[StreamEntry] = ()) -> None:
        """Settle the deliveries that this consumer holds, except the `known` ones."""
        store, config, shared_state = self._stores[number], self._queues[number], self._shared_state
        for name in self.names:
            while held := store.held_by(name, limit=BATCH + len(known)):
                unknown = [item for item in held if (item.stream, item.entry) not in known][:BATCH]
                if not unknown:
                    break
                # Read after the list, so that deliveries handled in between are acked and not handed back. Those past
                # their timeout beside a blocked event loop did not cause that.
                running = self._loop.suspects
                late = [each for each in shared_state.late(time.monotonic()) if each not in running]
                cancelled = store.cancel_requests() if self._cancels[number].ids else {}
                evidence = Evidence(results=shared_state.results(), running=running, late=late, cancelled=cancelled)
                settle_for(store, name, [settlement(config, number, item, evidence) for item in unknown])
