"""Pass each delivery to the pool that runs it, or to the settler."""

from collections.abc import Callable, Sequence
from itertools import repeat

from mq_django.consumers.decisions import unusable
from mq_django.consumers.worker.batches import Batches, BatchPath, Runner
from mq_django.consumers.worker.call_path import CallPath, WorkItem, path_of
from mq_django.consumers.worker.executor import Executor
from mq_django.consumers.worker.settler import Settler
from mq_django.core.logs import get_logger
from mq_django.core.messages import Delivery, Undecodable
from mq_django.core.outcomes import Bury, SetAside
from mq_django.registry import Handler, find, of_call
from mq_django.stores.base import Settlement
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
        if item.alone and self._isolate is not None:
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
