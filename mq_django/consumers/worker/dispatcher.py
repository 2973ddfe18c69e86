"""Pass each delivery to the pool that runs it, to the settler, or to a quarantine.

Messages that were running when a process died run alone, because one of them may have killed it. Consumers pass them on
to a quarantine: a process that runs one message at a time. Its death affects no other message. A quarantine holds only
the running message under its own name, so that it is known what ran even when the machine is gone. Messages that wait
are held under another name, the backlog. The quarantines of a supervisor share one backlog, named after the first of
them.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat

from mq_django.consumers.decisions import settled_as, unusable, used_up
from mq_django.consumers.service import Service
from mq_django.consumers.shared_state import SharedState
from mq_django.consumers.worker.batches import Batches, BatchPath, Runner
from mq_django.consumers.worker.call_path import CallPath, WorkItem, path_of
from mq_django.consumers.worker.executor import Executor
from mq_django.consumers.worker.settler import Settler
from mq_django.core.logs import get_logger
from mq_django.core.messages import Bury, Delivery, HandBack, SetAside, Undecodable
from mq_django.registry import Handler, find, of_call
from mq_django.stores.base import Settlement, Store
from mq_django.stores.settling import message_id

logger = get_logger(__name__)

#: Makes a named tuple in half the time that its own constructor takes.
_new = tuple.__new__

#: The most names whose handlers are cached, because publishers may use any number of names.
MAX_NAMES = 1000
#: The most names without a handler that are logged, each once.
MAX_UNKNOWN = 20


class Dispatcher:
    """Passes the deliveries of one queue to the pools, and settles those without a handler at once."""

    def __init__(
        self,
        queue: str,
        *,
        settler: Settler,
        executor: Executor,
        threads: Runner,
        loop: Runner,
        batches: Batches,
        isolate: Callable[[Delivery], None] | None = None,
    ) -> None:
        self._queue = queue
        self.settler = settler
        self._executor = executor
        self._threads = threads
        self._loop_pool = loop
        #: Called with deliveries that must run alone; None in a quarantine, where all do.
        self._isolate = isolate
        self._batches = batches
        #: The messages for handlers of batches that were taken together, by the name of the handler.
        self._collected: dict[str, list[Delivery]] = {}
        self._collecting: dict[str, BatchPath] = {}
        #: How messages are handled, by their name; and those whose handler gets one with a call, with its pool.
        self._paths: dict[str, CallPath] = {}
        self._starts: dict[str, tuple[CallPath, Runner]] = {}
        self._unknown: set[str] = set()

    def dispatch(self, taken: Sequence[Delivery | Undecodable]) -> None:
        """Start deliveries that this consumer now holds. An error of one is raised when the others are started."""
        try:
            known = {(item.stream, item.entry): item.message.id for item in taken}  # type: ignore[union-attr]
        except AttributeError:  # one could not be decoded: to check each would slow down all other batches
            known = {(item.stream, item.entry): message_id(item) for item in taken}
        self.settler.in_hand.update(known)
        failed: Exception | None = None
        collected, starts = self._collected, self._starts
        for item in taken:
            try:
                if type(item) is Delivery and not item.alone:
                    message = item.message
                    # Mostly a message of a name that is known. Headers may have options of the call.
                    if (start := starts.get(message.name)) is not None and not message.headers:
                        path, pool = start
                        pool.put(_new(WorkItem, (item, path, ())))
                        continue
                    if collected and message.attempt == 1 and (together := collected.get(message.name)) is not None:
                        together.append(item)
                        continue
                self._start(item)
            except Exception as error:  # noqa: BLE001 - the rest of its batch must run
                # Not in hand, it is found again like a delivery whose reply was lost.
                self.settler.in_hand.pop((item.stream, item.entry), None)
                failed = error
        if self._collected:
            self._collect()
        if failed is not None:
            raise failed

    def _start(self, item: Delivery | Undecodable) -> None:
        if isinstance(item, Undecodable):
            self._settle_unusable(item)
            return
        path = self._paths.get(item.message.name) or self._find(item.message.name)
        if path is None:
            self.settler.add(Settlement(item, SetAside()))
            return
        handler = path.handler
        if item.message.headers and (of_this := of_call(handler, item.message)) is not handler:
            path = self.path(of_this)
        if item.alone and (burial := used_up(self._executor.config, item, handler)) is not None:
            self.settler.add(settled_as(item, burial, handler))
            if handler.ended is not None:
                handler.ended(item.message, burial, 0.0, None)
        elif item.alone and self._isolate is not None:
            self._isolate(item)
        elif handler.batch and handler.once is not None and item.message.attempt > 1:
            # The inbox has to say what became of the earlier attempts of each message.
            self._threads.put(WorkItem(item, path, ((item, path),)))
        elif isinstance(path, BatchPath):
            self._collected.setdefault(handler.name, []).append(item)
            self._collecting[handler.name] = path
        else:
            (self._loop_pool if path.on_loop else self._threads).put(WorkItem(item, path))

    def path(self, handler: Handler) -> CallPath:
        """Return how the messages of a handler are handled in this queue."""
        if handler.batch:
            return BatchPath(handler, self._executor, self._batches.collector(handler))
        return path_of(handler, self._executor)

    def _collect(self) -> None:
        """Add the messages to the batches of their handlers, and make the calls that can be made."""
        collected, self._collected = self._collected, {}
        waits = False
        for name, deliveries in collected.items():
            path = self._collecting[name]
            path.collector.add(list(zip(deliveries, repeat(path))))
            # A quarantine runs each message alone.
            waits |= path.collector.ready(at_once=self._isolate is None) is not None
        if waits:
            self._batches.wake()

    def _find(self, name: str) -> CallPath | None:
        handler = find(self._queue, name)
        if handler is not None:
            return self.remember(name, handler)
        if name not in self._unknown and len(self._unknown) <= MAX_UNKNOWN:
            self._log_unknown(name)
        return None

    def remember(self, name: str, handler: Handler) -> CallPath:
        """Start further messages of a name without a look at what is registered."""
        path = self.path(handler)
        if len(self._paths) < MAX_NAMES:
            self._paths[name] = path
            if not handler.batch:
                self._starts[name] = path, self._loop_pool if path.on_loop else self._threads
        return path

    def _log_unknown(self, name: str) -> None:
        self._unknown.add(name)
        if len(self._unknown) <= MAX_UNKNOWN:
            logger.warning(
                "No handler for %r in queue %s: its messages wait until a consumer has one. Its module must be in an "
                "installed app, or in MODULES",
                name,
                self._queue,
            )
        else:
            logger.warning("Queue %s has messages with still more names without a handler; not logged", self._queue)

    def _settle_unusable(self, item: Undecodable) -> None:
        settlement = unusable(item)
        if isinstance(settlement.outcome, Bury):
            extra = {"queue": self._queue, "reason": settlement.outcome.reason}
            logger.error("Entry %s of queue %s buried: %s", item.entry, self._queue, item.reason, extra=extra)
        self.settler.add(settlement)


#: Seconds between two checks: of a consumer for a quarantine, and of a quarantine for messages.
CHECK_EVERY = 0.1
#: Deliveries that are read or passed on in one round trip.
BATCH = 100
#: Seconds between two checks whether the running message is settled.
CHECK_SETTLED_EVERY = 0.005


def backlog_of(quarantine: str) -> str:
    """Return the name of the backlog of a quarantine, and of those that share it."""
    return f"{quarantine}-line"


class Isolation(Service):
    """Passes messages that must run alone on to a quarantine."""

    name = "isolation"

    def __init__(
        self, consumer: str, shared_state: SharedState, stores: Mapping[int, Store], settlers: Sequence[Settler]
    ) -> None:
        super().__init__()
        self._consumer = consumer
        self._shared_state = shared_state
        self._stores = stores
        self._settlers = settlers
        self._waiting: dict[int, list[Delivery]] = defaultdict(list)
        self._lock = threading.Lock()

    def add(self, number: int, delivery: Delivery) -> None:
        """Add a delivery of a queue."""
        with self._lock:
            self._waiting[number].append(delivery)
        self._shared_state.want_quarantine()
        self.wake()

    def run_once(self) -> float:
        """Pass on the waiting messages when there is a quarantine."""
        if not any(self._waiting.values()):
            return 1.0
        quarantine = self._shared_state.quarantine()
        if not quarantine:
            self._shared_state.want_quarantine()
            return CHECK_EVERY
        self.each(
            self._stores.items(), lambda one: self._pass_on(*one, quarantine), called=lambda one: one[1].config.name
        )
        return CHECK_EVERY

    def hand_back(self) -> None:
        """Hand back the messages that still wait."""
        for number in self._stores:
            with self._lock:
                waiting, self._waiting[number] = self._waiting[number], []
            for delivery in waiting:
                self._settlers[number].add(Settlement(delivery, HandBack()))

    def _pass_on(self, number: int, store: Store, quarantine: str) -> None:
        with self._lock:
            batch, self._waiting[number] = self._waiting[number][:BATCH], self._waiting[number][BATCH:]
        if not batch:
            return
        receipts = [(delivery.stream, delivery.entry) for delivery in batch]
        try:
            store.reassign(self._consumer, backlog_of(quarantine), receipts)
        except BaseException:
            # They may have been passed on already, and passing on is idempotent.
            with self._lock:
                self._waiting[number] = [*batch, *self._waiting[number]]
            raise
        for receipt in receipts:
            self._settlers[number].in_hand.pop(receipt, None)


class QuarantineFetcher(Service):
    """The fetcher of a quarantine: it runs the messages of the backlog one at a time."""

    name = "quarantine"

    def __init__(
        self,
        consumer: str,
        backlog: str,
        shared_state: SharedState,
        stores: Sequence[Store],
        dispatchers: Sequence[Dispatcher],
    ) -> None:
        super().__init__()
        self.connection = None
        self._consumer = consumer
        self._backlog = backlog
        self._shared_state = shared_state
        self._queues = list(zip(stores, dispatchers, strict=True))
        #: When it last had a message to run, in seconds on the monotonic clock.
        self.busy_at = time.monotonic()

    def run_once(self) -> float:
        """Run all messages of the backlog."""
        # One fetcher for all servers, because only one message may run at a time.
        self.each(
            range(len(self._queues)),
            self._run_held,
            called=lambda number: self._queues[number][0].config.name,
            server=lambda number: self._queues[number][0].config.connection,
        )
        return CHECK_EVERY

    def _run_held(self, number: int) -> None:
        store, dispatcher = self._queues[number]
        # It takes nothing before a heartbeat announces it, because its messages could not be reclaimed until then.
        if time.monotonic() < self._shared_state.held_until(number):
            # A failed round trip may have moved a message to its own name already.
            self._run(store, dispatcher, self._consumer)
            self._run(store, dispatcher, self._backlog)

    def _run(self, store: Store, dispatcher: Dispatcher, holder: str) -> None:
        items = store.held_by(holder, limit=BATCH)
        for left, item in zip(range(len(items) - 1, -1, -1), items, strict=True):
            if self.stopping:
                return
            if left:
                # More messages wait than run, so another quarantine is useful.
                self._shared_state.want_quarantine()
            receipt = (item.stream, item.entry)
            # Another quarantine may have taken it already.
            if holder == self._consumer or not store.reassign(holder, self._consumer, [receipt]):
                dispatcher.dispatch([item])
                self._wait_for(dispatcher.settler, receipt)

    def _wait_for(self, settler: Settler, receipt: tuple[int, bytes]) -> None:
        self.busy_at = time.monotonic()
        # Waits until it is settled: a message that has only ended would be found pending and run again.
        while receipt in settler.in_hand and not self.stopping:
            self.progressed = self.busy_at = time.monotonic()
            time.sleep(CHECK_SETTLED_EVERY)
