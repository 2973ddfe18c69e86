"""The parts of a consumer without its loops: a test turns them by hand."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from mq_django.conf import get_config
from mq_django.consumers.processes import Grace
from mq_django.consumers.shared_state import SharedState
from mq_django.consumers.worker.batches import Batches
from mq_django.consumers.worker.call_path import WorkItem
from mq_django.consumers.worker.dispatcher import Dispatcher
from mq_django.consumers.worker.executor import Executor
from mq_django.consumers.worker.fetchers import Demand, Fetcher, QueueReader
from mq_django.consumers.worker.loops import LoopPool
from mq_django.consumers.worker.pools import ThreadPool
from mq_django.consumers.worker.settler import Settler, SettleService
from mq_django.core.messages import Delivery, Message
from mq_django.registry import Handler
from mq_django.stores import open_store
from mq_django.stores.base import Store
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Session
from tests.waiting import wait_until

_numbers = itertools.count(1)


class Pools:
    """What the queues of a consumer share: its slots, its shared state, and its collected outcomes."""

    def __init__(self, threads: int, batch: int = 0) -> None:
        self.shared_state = SharedState.create(threads + 100, batches=threads + 16, batch=batch)
        self.threads = ThreadPool(threads, self.shared_state)
        self.loop = LoopPool(threads, self.shared_state)
        self.batches = Batches(self.shared_state, self.threads, self.loop, threads)
        self.settling = SettleService()

    def dispatcher_of(
        self, queue: str, store: Store, number: int = 0, isolate: Callable[[Delivery], None] | None = None
    ) -> tuple[Dispatcher, Settler, Executor]:
        """Return what gives the messages of a store to the slots, and what is then done with them."""
        settler = Settler(store, store.config.name, "me", self.settling.due, self.settling.full)
        executor = Executor(store.config, number, self.shared_state, settler)
        dispatcher = Dispatcher(
            queue,
            settler=settler,
            executor=executor,
            threads=self.threads,
            loop=self.loop,
            batches=self.batches,
            isolate=isolate,
        )
        return dispatcher, settler, executor

    def demand_of(self, queue: str) -> Demand:
        return Demand(queue, self.threads, self.loop, self.batches)

    def start(self) -> None:
        self.threads.start()
        self.loop.start()

    def close(self) -> None:
        self.threads.stop()
        self.loop.stop()
        grace = Grace(60.0)
        for slot in self.threads.slots:
            if slot.thread.ident:
                slot.thread.join(grace.left())
        assert self.loop.join(grace), "a coroutine did not end"


class Rig(Pools):
    """A consumer's pools, settler, dispatcher and fetcher for a queue or a group, with `handlers` by name."""

    def __init__(
        self,
        *,
        threads: int = 2,
        batch: int = 0,
        queue: str = "default",
        isolate: Callable[[Delivery], None] | None = None,
        **handlers: Any,
    ) -> None:
        super().__init__(threads, batch)
        self.config = get_config().queue(queue)
        self.session = Session(get_client("consume"))
        self.store = open_store(self.config, self.session)
        self.dispatcher, self.settler, self.executor = self.dispatcher_of(queue, self.store, isolate=isolate)
        for name, call in handlers.items():
            self.handle(name, call)
        self.may_fetch = True
        self.reader = QueueReader(self.store, self.session, "me", self.dispatcher, lambda: self.shared_state.handled(0))
        self.fetcher = Fetcher(
            self.reader,
            self.session,
            demand=self.demand_of("default"),
            may_fetch=lambda: self.may_fetch,
            share=1,
        )
        self.threads.wake_fetchers = self.loop.wake_fetchers = self.fetcher.wake

    def handle(self, name: str, call: Any, **options: Any) -> None:
        self.dispatcher.remember(name, Handler(name=name, queue=self.settler.queue, call=call, **options))

    def item(
        self, call: Any, data: Any = None, *, message_id: str = "", timeout: float | None = None, **options: Any
    ) -> WorkItem:
        """Return a message of its own as a slot gets it, which `call` handles."""
        entry = b"1-%d" % next(_numbers)
        message = Message(message_id or entry.decode(), options.pop("name", "n"), data, self.settler.queue)
        limit = None if timeout is None else timedelta(seconds=timeout)
        handler = Handler(name=message.name, queue=message.queue, call=call, timeout=limit, **options)
        return WorkItem(Delivery(message, 0, entry, b"null"), self.dispatcher.path(handler))

    def put(self, call: Any, data: Any = None, **options: Any) -> Delivery:
        """Let a slot handle such a message, and return its delivery."""
        item = self.item(call, data, **options)
        (self.loop if item.path.handler.is_async else self.threads).put(item)
        return item.delivery

    def outcomes(self, count: int = 1) -> list[Any]:
        """Wait for so many outcomes, and return all that wait to be settled."""
        wait_until(lambda: len(self.settler) >= count)
        return [settlement.outcome for settlement in self.settler._take()]

    def settled(self) -> dict[Any, Any]:
        """Return the outcomes that wait, by the messages' data, or by the reason for what is none."""
        found = {}
        for settlement in self.settler._take():
            item = settlement.delivery
            found[str(item.message.data) if isinstance(item, Delivery) else item.reason] = settlement.outcome
        return found

    def close(self) -> None:
        super().close()
        self.session.close()


@contextmanager
def running(*, threads: int, batch: int = 0, queue: str = "default") -> Iterator[Rig]:
    """Start a rig's pools, and end them."""
    rig = Rig(threads=threads, batch=batch, queue=queue)
    rig.start()
    try:
        yield rig
    finally:
        rig.close()
