"""The parts of a consumer without its loops: a test turns them by hand."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mq_django.conf import get_config
from mq_django.consumers.shared_state import SharedState
from mq_django.consumers.worker.batches import Batches
from mq_django.consumers.worker.dispatcher import Dispatcher
from mq_django.consumers.worker.executor import Executor
from mq_django.consumers.worker.fetchers import Demand, Fetcher, QueueReader
from mq_django.consumers.worker.loops import LoopPool
from mq_django.consumers.worker.pools import ThreadPool
from mq_django.consumers.worker.settler import Settler, SettleService
from mq_django.consumers.worker.slots import Grace
from mq_django.core.messages import Delivery
from mq_django.registry import Handler
from mq_django.stores import open_store
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Session


class Rig:
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
        self.config = get_config().queue(queue)
        self.shared_state = SharedState.create(threads + 100, batches=threads + 16, batch=batch)
        self.threads = ThreadPool(threads, self.shared_state)
        self.loop = LoopPool(threads, self.shared_state)
        self.batches = Batches(self.shared_state, self.threads, self.loop, threads)
        self.settling = SettleService()
        self.session = Session(get_client("consume"))
        self.store = open_store(self.config, self.session)
        self.settler = Settler(self.store, queue, "me", self.settling.due, self.settling.full)
        self.executor = Executor(self.config, 0, self.shared_state, self.settler)
        self.dispatcher = Dispatcher(
            queue,
            settler=self.settler,
            executor=self.executor,
            threads=self.threads,
            loop=self.loop,
            batches=self.batches,
            isolate=isolate,
        )
        for name, call in handlers.items():
            self.handle(name, call)
        self.may_fetch = True
        self.reader = QueueReader(self.store, self.session, "me", self.dispatcher, lambda: self.shared_state.handled(0))
        self.fetcher = Fetcher(
            self.reader,
            self.session,
            demand=Demand("default", self.threads, self.loop, self.batches),
            may_fetch=lambda: self.may_fetch,
            share=1,
        )
        self.threads.wake_fetchers = self.loop.wake_fetchers = self.fetcher.wake

    def handle(self, name: str, call: Any, **options: Any) -> None:
        self.dispatcher.remember(name, Handler(name=name, queue=self.settler.queue, call=call, **options))

    def start(self) -> None:
        self.threads.start()
        self.loop.start()

    def settled(self) -> dict[Any, Any]:
        """Return the outcomes that wait, by the messages' data, or by the reason for what is none."""
        found = {}
        for settlement in self.settler._take():
            item = settlement.delivery
            found[str(item.message.data) if isinstance(item, Delivery) else item.reason] = settlement.outcome
        return found

    def close(self) -> None:
        self.threads.stop()
        self.loop.stop()
        grace = Grace(10.0)
        for slot in self.threads.slots:
            if slot.thread.ident:
                slot.thread.join(grace.left())
        assert self.loop.join(grace), "a coroutine did not end"
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
