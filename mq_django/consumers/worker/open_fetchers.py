"""Make the fetchers of a consumer."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from mq_django.conf import QueueConfig, get_config
from mq_django.consumers.by_server import by_server
from mq_django.consumers.service import Service
from mq_django.consumers.shared_state import SharedState
from mq_django.consumers.worker.dispatcher import Dispatcher
from mq_django.consumers.worker.fetchers import Demand, FetchedPartition, Fetcher, PartitionFetcher, QueueReader
from mq_django.consumers.worker.measured_store import measured
from mq_django.consumers.worker.resting import RestingQueues
from mq_django.stores import open_store
from mq_django.stores.base import Store
from mq_django.stores.line_store import Shares
from mq_django.stores.partition_transport import PartitionTransport
from mq_django.stores.stream_store import StreamStore
from mq_django.transport.cluster_transport import AnySession
from mq_django.transport.connections import open_session
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
