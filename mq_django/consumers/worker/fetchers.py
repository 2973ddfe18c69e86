"""The fetchers of a consumer: one for each queue, and one for all partitions of a queue that are on one server."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from mq_django.conf import QueueConfig, get_config
from mq_django.consumers.by_server import by_server
from mq_django.consumers.shared_state import SharedState
from mq_django.consumers.worker.dispatcher import Dispatcher
from mq_django.consumers.worker.fetcher import Fetcher
from mq_django.consumers.worker.measured_store import measured
from mq_django.consumers.worker.partition_fetcher import FetchedPartition, PartitionFetcher
from mq_django.consumers.worker.queue_reader import QueueReader
from mq_django.consumers.worker.room import Room
from mq_django.stores import open_store
from mq_django.stores.base import Store
from mq_django.stores.partition_wire import PartitionWire
from mq_django.stores.shares import Shares
from mq_django.stores.stream_store import StreamStore
from mq_django.transport.cluster_wires import AnySession
from mq_django.transport.connections import open_session


class Fetchers:
    """Makes the fetchers of a consumer.

    Args:
        consumer: its name.
        queues: the queues and partitions that it handles.
        dispatchers: those of the queues, by number.
        shared_state: what the supervisor says about the queues.
        room: returns how much a fetcher of the queue with this name may fetch.
    """

    def __init__(
        self,
        consumer: str,
        queues: Sequence[QueueConfig],
        dispatchers: Sequence[Dispatcher],
        shared_state: SharedState,
        room: Callable[[str], Room],
    ) -> None:
        self._consumer = consumer
        self._queues = queues
        self._dispatchers = dispatchers
        self._shared_state = shared_state
        self._room = room

    def open(self) -> Iterator[Fetcher | PartitionFetcher]:
        """Yield the fetchers, each with a connection of its own."""
        groups = list(self._fetched_together())
        for numbers in groups:
            config = self._queues[numbers[0]]
            session = open_session("consume", config.connection)
            room = self._room(config.public_name)
            if config.is_partition:
                parts = [self._partition(number, session) for number in numbers]
                whole = get_config().queue(config.public_name)
                shares = Shares(whole, session, f"{self._consumer}:{numbers[0]}") if whole.limits.of_queue else None
                yield PartitionFetcher(config.public_name, parts, session, room=room, shares=shares)
            else:
                reader = self._reader(numbers[0], session, open_store(config, session))
                may_fetch = self._fetch_check(numbers[0])
                yield Fetcher(reader, session, room=room, may_fetch=may_fetch, share=len(groups))

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
        wire = PartitionWire(config, session)
        store = open_store(config, wire)
        assert isinstance(store, StreamStore)
        reader = self._reader(number, session, store)
        prefers = partial(self._shared_state.prefers, number)
        return FetchedPartition(reader, wire, store, self._fetch_check(number), prefers)

    def _reader(self, number: int, session: AnySession, store: Store) -> QueueReader:
        handled = partial(self._shared_state.handled, number)
        return QueueReader(measured(store), session, self._consumer, self._dispatchers[number], handled)

    def _fetch_check(self, number: int) -> Callable[[], bool]:
        shared_state = self._shared_state
        return lambda: not shared_state.paused(number) and time.monotonic() < shared_state.held_until(number)
