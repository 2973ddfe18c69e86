"""Handle the ready messages of queues in the thread of a test."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from asgiref.sync import async_to_sync, sync_to_async

from mq_django import registry
from mq_django.conf import QueueConfig, get_config
from mq_django.consumers.service import SERVER_ERRORS
from mq_django.consumers.shared_state import ASYNC_BATCHES, SharedState
from mq_django.consumers.worker.batches import Batches
from mq_django.consumers.worker.breakers import Cancels
from mq_django.consumers.worker.call_path import Slot, WorkItem
from mq_django.consumers.worker.databases import Databases, databases_within
from mq_django.consumers.worker.dispatcher import Dispatcher
from mq_django.consumers.worker.executor import Executor
from mq_django.consumers.worker.loops import CoroutineSlot
from mq_django.consumers.worker.settler import Settler
from mq_django.core import running_handler
from mq_django.core.ids import STEP_NAME
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.core.logs import get_logger
from mq_django.core.messages import Delivery, HandBack, Message, Outcome, SetAside, Undecodable
from mq_django.core.texts import listing, repr_of
from mq_django.errors import EndlessRun, StoreError, TestKitError, UnknownQueue
from mq_django.producers.asynchronous import asynchronous, refuse_event_loop
from mq_django.producers.sinks import publication_sent
from mq_django.producers.workflow_steps import StepDelivery
from mq_django.registry import Handler, batches, find, largest_batch, names
from mq_django.signals import handler_finished, handler_started
from mq_django.stores import open_store
from mq_django.stores.base import Settlement, Store
from mq_django.testing.recording import Records, StartedRuns, run_supervised
from mq_django.testing.transactions import CommitHooks, Savepoints, relay
from mq_django.transport.connections import open_transport
from mq_django.transport.test_server import standing_time

# The caller's thread, in the place of a consumer's threads and event loop.


@cache
def _unshared(batch: int) -> SharedState:
    """Return what a consumer shares with its supervisor, for calls of up to `batch` messages: nobody reads it."""
    return SharedState.create(1, batches=ASYNC_BATCHES, batch=batch)


class CallerSlot(Slot):
    """Runs functions in the caller's thread. Nothing can interrupt them, so their timeouts do not apply."""

    def __init__(self, databases: Databases) -> None:
        super().__init__(0)
        self.databases = databases

    def call(self, function: Callable[[Any], Any], argument: object, timeout: float | None) -> Any:
        """See Slot.call()."""
        savepoints = Savepoints()
        try:
            return function(argument)
        finally:
            savepoints.leave()

    def cancel(self, job: WorkItem, *, force: bool) -> None:
        """Do nothing."""


class CallerCoroutineSlot(CoroutineSlot):
    """Runs coroutine functions, one at a time. Their database operations are in the caller's thread."""

    def __init__(self, databases: Databases) -> None:
        super().__init__(0)
        self.databases = databases

    async def call(self, function: Callable[[Any], Any], argument: object, timeout: float | None) -> Any:
        """See Slot.call()."""
        savepoints = await sync_to_async(Savepoints)()
        try:
            return await super().call(function, argument, timeout)
        finally:
            await sync_to_async(savepoints.leave)()


# Handle each message as soon as it is published, as tests of other task backends expect it.


@contextmanager
def handling(handle_ready: Callable[[], object]) -> Iterator[None]:
    """Call a function after each publish of a block, and at its end raise the first error of one.

    A publisher is not the place for errors of a handler: in production it never sees them.

    Args:
        handle_ready: handles what is ready, also what handlers publish meanwhile.
    """
    errors: list[Exception] = []
    is_active = False

    def handle(**_: Any) -> None:
        nonlocal is_active
        if is_active:
            return
        is_active = True
        try:
            handle_ready()
        except Exception as error:  # noqa: BLE001 - raised below
            errors.append(error)
        finally:
            is_active = False

    publication_sent.connect(handle)
    try:
        yield
    finally:
        publication_sent.disconnect(handle)
    if errors:
        raise errors[0]


# The messages that schedules publish, and what their handlers publish, while the time of a test moves.
#
# A schedule goes on for ever, and so may the messages that it leads to. Their retries and delays do not move
# the time.


class _Ticks:
    """The ids of messages that come from ticks."""

    ids: set[str] = set()
    #: A tick fires, or the handler of a message that comes from one runs.
    is_active = False
    #: How many blocks of noted() run.
    depth = 0


def ids() -> set[str]:
    """Return the ids of the messages that come from ticks."""
    return _Ticks.ids


@contextmanager
def noted() -> Iterator[None]:
    """Note the messages that come from ticks while a block runs."""
    if not _Ticks.depth:
        _Ticks.ids = set()
        publication_sent.connect(_on_sent)
        handler_started.connect(_on_started)
        handler_finished.connect(_on_finished)
    _Ticks.depth += 1
    try:
        yield
    finally:
        _Ticks.depth -= 1
        if not _Ticks.depth:
            publication_sent.disconnect(_on_sent)
            handler_started.disconnect(_on_started)
            handler_finished.disconnect(_on_finished)


@contextmanager
def firing() -> Iterator[None]:
    """Let what is published while a block runs count as ticks."""
    _Ticks.is_active = True
    try:
        yield
    finally:
        _Ticks.is_active = False


def _on_sent(message_id: str, **_: Any) -> None:
    if _Ticks.is_active:
        _Ticks.ids.add(message_id)


def _on_started(message: Message, **_: Any) -> None:
    _Ticks.is_active = message.id in _Ticks.ids


def _on_finished(**_: Any) -> None:
    _Ticks.is_active = False


# Handle the ready messages of one queue in the caller's thread, with the parts of a consumer.

#: The consumer that takes the messages.
CONSUMER = "test"
#: Messages that a script call makes ready.
BATCH = 500

#: Exceptions that end no test when a handler raises them, because a consumer treats them like any. Any other
#: BaseException is for the test: Ctrl-C, and the outcomes of pytest.
HANDLED_LIKE_EXCEPTIONS = (Exception, SystemExit, GeneratorExit, asyncio.CancelledError)


@dataclass(frozen=True, slots=True)
class Handled:
    """A message that was handled, or that no handler could get."""

    #: None: the entry was not a valid message.
    message: Message | None
    #: The final outcome: `Ack`, `Retry` with its delay, `Bury`, `Expire`, `HandBack`, or `SetAside` without a handler.
    outcome: Outcome
    #: The dotted path of the handler; "" if there is none.
    handler: str = ""
    #: The text of the error, as the dead-letter queue has it; "" if there is none.
    error: str = ""
    #: The exception of the handler or its middleware.
    exception: BaseException | None = field(default=None, compare=False)
    #: How long the handler ran.
    seconds: float = field(default=0.0, compare=False)


def mostly(handled: Sequence[Handled]) -> str:
    """Return which messages were handled most often, and how many came from schedules, for an error."""
    names = Counter(each.message.name for each in handled if each.message is not None)
    listed = ", ".join(f"{repr_of(name)} ({count} times)" for name, count in names.most_common(3))
    of_ticks = ids()
    fired = sum(each.message is not None and each.message.id in of_ticks for each in handled)
    of_schedules = f"; {fired} messages came from schedules that fire on the way" if fired else ""
    return f"Most often handled: {listed or 'none'}{of_schedules}"


class NotingSettler(Settler):
    """A settler that knows which outcomes were added last."""

    _added: Sequence[Settlement] = ()

    def add(self, settlement: Settlement) -> None:
        """See Settler.add()."""
        self._added = (*self._added, settlement)
        super().add(settlement)

    def add_all(self, settlements: Sequence[Settlement]) -> None:
        """See Settler.add_all()."""
        self._added = (*self._added, *settlements)
        super().add_all(settlements)

    def pop_added(self) -> Sequence[Settlement]:
        """Return the outcomes that were added since the last call."""
        added, self._added = self._added, ()
        return added


class NotingExecutor(Executor):
    """An executor that knows what handlers have raised."""

    #: By the id of the message.
    raised: Mapping[str, BaseException] = {}

    def finish(
        self,
        delivery: Delivery,
        handler: Handler,
        outcome: Outcome,
        seconds: float,
        raised: BaseException | None,
        **options: Any,
    ) -> Outcome:
        """See Executor.finish()."""
        if raised is not None:
            self.raised = {**self.raised, delivery.message.id: raised}
        return super().finish(delivery, handler, outcome, seconds, raised, **options)


class QueueRun:
    """Handles the ready messages of one queue or partition. Each is settled before the next one is taken.

    So a handler that looks at its queue finds only its own message pending. That costs one round trip for a message. In
    a queue with a handler that has `batch`, as many messages are taken as it may get.
    """

    executor_class: type[NotingExecutor] = NotingExecutor

    def __init__(self, config: QueueConfig, databases: Databases) -> None:
        self._name = config.public_name
        self._store: Store = open_store(config, open_transport("consume", config.connection))
        self._store.create_groups()
        self._slot, self._coroutine_slot = CallerSlot(databases), CallerCoroutineSlot(databases)
        self._settler = NotingSettler(self._store, config.name, CONSUMER, threading.Event(), threading.Event())
        self._step_delivery = StepDelivery(config, open_transport("consume", config.connection))
        self._settler.steps_ended = lambda _, message_ids: self._step_delivery.deliver(message_ids)
        self._cancels = Cancels(self._store)
        state = _unshared(largest_batch())
        self._executor = self.executor_class(config, 0, state, self._settler, self._cancels)
        self._dispatcher = Dispatcher(
            config.name,
            settler=self._settler,
            executor=self._executor,
            threads=self,
            loop=self,
            batches=Batches(state, self, self, 0),
        )
        self._settler.reports.wake = self._send_streamed
        #: The handler of the latest message.
        self._handler = ""

    def _send_streamed(self) -> None:
        """Send what a handler has streamed, as a thread of a consumer does within milliseconds."""
        with suppress(StoreError):
            self._store.append(CONSUMER, self._settler.reports.streaming())

    def handle_ready(self, handled: list[Handled], *, raise_errors: bool, limit: int) -> bool:
        """Handle what is due or ready, add it to `handled`, and return whether there was anything.

        Raises:
            EndlessRun: `handled` would have more than `limit` items.
            BaseException: that of a handler, after its outcome is settled.
        """
        before = len(handled)
        self._cancels.read()
        self._make_ready()
        taken = self._store.take(CONSUMER, count=self._count(limit - before))
        while taken:
            if len(handled) >= limit:
                self._hand_back(taken)
                raise EndlessRun(
                    f"After {limit} messages, queue {self._name!r} still has ready ones: handlers publish endlessly, "
                    f"or limit= is too low. {mostly(handled)}"
                )
            calls = self._calls(taken)
            for at, items in enumerate(calls, 1):
                try:
                    handled += (found := self._handle(items, raise_errors=raise_errors))
                    if raise_errors:
                        self._refuse_unhandled(found)
                except BaseException:
                    # Settles what has run, too.
                    self._hand_back([item for items in calls[at:] for item in items])
                    raise
            taken = self._settle_and_take(self._count(limit - len(handled)))
        return len(handled) > before

    def _refuse_unhandled(self, handled: Sequence[Handled]) -> None:
        name = next((each.message.name for each in handled if each.message and each.outcome == SetAside()), None)
        if name is not None:
            known = listing(each for each in names(self._name) if not each.startswith(STEP_NAME))
            raise TestKitError(
                f"Queue {self._name!r} has no handler of {repr_of(name, 300)}. Known: {known:.1000}. With "
                "raise_errors=False it is set aside, as by a consumer"
            )

    def on_low(self) -> None:
        """Do nothing: nothing is fetched meanwhile."""

    def _count(self, most: int) -> int:
        """Return how many messages to take."""
        return max(1, min(max(batches(self._name).values(), default=1), BATCH, most))

    def _calls(self, taken: Sequence[Delivery | Undecodable]) -> Sequence[Sequence[Delivery | Undecodable]]:
        """Return messages by the call that gets them."""
        calls: list[list[Delivery | Undecodable]] = []
        batches: dict[str, list[Delivery | Undecodable]] = {}
        for item in taken:
            handler = find(self._name, item.message.name) if isinstance(item, Delivery) else None
            if handler is None or not handler.batch:
                calls.append([item])
            elif len(batch := batches.setdefault(handler.name, [])) in (0, handler.batch):
                calls.append([item])
                batches[handler.name] = calls[-1]
            else:
                batch.append(item)
        return calls

    def put(self, job: WorkItem, /) -> None:
        """Run a delivery now. The dispatcher calls this."""
        self._handler = job.path.handler.where
        hooks = CommitHooks()
        # In a copied context, as in a consumer: locale, time zone and context variables end with the message.
        copy_context().run(self._run, job)
        # Those of middleware and of receivers. The handler's own have run.
        hooks.run()

    def _make_ready(self) -> None:
        """Make due messages ready, and unhandled ones that have a handler by now."""
        promoted = self._store.promote(limit=BATCH)
        while promoted.moved:
            promoted = self._store.promote(limit=BATCH)
        if promoted.unhandled:
            known = list(names(self._name))
            while self._store.release_unhandled(known, limit=BATCH):
                pass

    def _handle(self, items: Sequence[Delivery | Undecodable], *, raise_errors: bool) -> list[Handled]:
        """Run the deliveries of a call; they are settled later, also if an error is raised."""
        self._handler, self._executor.raised = "", {}
        try:
            self._dispatcher.dispatch(items)
        except BaseException:
            ended = {(each.delivery.stream, each.delivery.entry) for each in self._settler.pop_added()}
            for item in items:
                if (item.stream, item.entry) not in ended:
                    # It was interrupted before it had an outcome.
                    self._settler.add(Settlement(item, HandBack()))
            self._settler.pop_added()
            raise
        raised, self._executor.raised = self._executor.raised, {}
        for error in raised.values():
            if raise_errors or not issubclass(type(error), HANDLED_LIKE_EXCEPTIONS):
                self._settler.pop_added()
                raise error
        return [self._handled(each, raised) for each in self._settler.pop_added()]

    def _handled(self, settlement: Settlement, raised: Mapping[str, BaseException]) -> Handled:
        item, outcome = settlement.delivery, settlement.outcome
        message = item.message if isinstance(item, Delivery) else None
        error = None if message is None else raised.get(message.id)
        text, seconds = str(getattr(outcome, "error", "")), (settlement.micros or 0) / 1e6
        return Handled(message, outcome, self._handler, text, error, seconds)

    def _run(self, job: WorkItem) -> None:
        running_handler.enter()
        if job.path.on_loop:
            async_to_sync(self._await)(job)
        else:
            job.path.run_in_thread(self._slot, job)

    async def _await(self, job: WorkItem) -> None:
        await job.path.run(self._coroutine_slot, job)

    def _settle_and_take(self, count: int) -> Sequence[Delivery | Undecodable]:
        """Settle what has run, and take the next messages, in one round trip if possible."""
        try:
            return self._settler.settle_and_take(self._store, count=count)
        except SERVER_ERRORS:
            raise
        except Exception:  # noqa: BLE001 - an outcome that cannot be written is settled in another form
            self._settle()
            return self._store.take(CONSUMER, count=count)

    def _settle(self) -> None:
        self._settler.settle(self._store)
        self._settler.try_refused(self._store)

    def _hand_back(self, taken: Sequence[Delivery | Undecodable]) -> None:
        for item in taken:
            self._settler.add(Settlement(item, HandBack()))
        self._settle()


logger = get_logger(__name__)

#: More messages in one run are taken for an endless one.
LIMIT = 10_000


def run(*queues: str, raise_errors: bool = True, limit: int = LIMIT) -> list[Handled]:
    """Handle everything that is ready or due, also what handlers publish meanwhile, until nothing is ready.

    Messages run one after another in the caller's thread, with its database connections, through the same code as in
    a consumer: middleware, signals, retries, dead letters, limits and the results of tasks. Two things differ. The
    timeouts of functions do not apply. And in the transaction of a test nothing is committed: on-commit hooks of a
    handler run right after it, and if it catches an error of the database outside `atomic()`, all its changes are
    rolled back.

    Args:
        queues: names of queues, of groups such as `orders:billing`, or of topics, which stand for all their groups.
            None: all queues of this project, and all groups with a subscriber.
        raise_errors: raise what a handler raises, after it is settled, and TestKitError for a message that nobody
            handles. With False only what is no `Exception` is raised, such as `KeyboardInterrupt` and the outcomes of
            pytest.
        limit: maximum messages.

    Returns:
        What was handled, in this order.

    Raises:
        EndlessRun: more than `limit` messages became ready.
        UnknownQueue: there is no such queue, group or topic.
        SynchronousOnlyOperation: this thread runs an event loop, which has to await arun().
        TestKitError: a name is no string, or no handler has the name of a message.
        NoServer, ConfigurationError, ConnectionLost: there is no usable server for tests.
    """
    handled: list[Handled] = []
    run_into(handled, queues, raise_errors=raise_errors, limit=limit)
    if not handled and (waiting := "\n".join(filter(None, [Records().waiting(), StartedRuns().waiting()]))):
        # Shown with the failure of a test.
        logger.warning("Nothing is ready. %s", "; ".join(map(str.strip, waiting.splitlines())))
    return handled


arun = asynchronous(run)


def run_into(handled: list[Handled], queues: Sequence[str], *, raise_errors: bool, limit: int) -> None:
    """Handle everything that is ready like run(), and add it to a list, which may have up to `limit` items."""
    refuse_event_loop(": await mq.arun() in place of mq.run()")
    relay()
    with databases_within() as databases, standing_time():
        runs = [QueueRun(config, databases) for config in configs_of(queues)]

        def handle_ready() -> bool:
            return any([each.handle_ready(handled, raise_errors=raise_errors, limit=limit) for each in runs])  # noqa: C419

        while handle_ready() or (run_supervised() and handle_ready()):
            pass


def ensure_groups() -> None:
    """Create the groups of all subscribers, so that those that start at the end get what is published from now on."""
    config = get_config()
    for name in _groups():
        for part in config.queue(name).each_part:
            open_store(part, open_transport("chores", part.connection)).create_groups()


def configs_of(queues: Sequence[str]) -> list[QueueConfig]:
    """Return the options of queues and groups, and of the partitions of a queue that has any: see run().

    Raises:
        UnknownQueue: there is no such queue, group or topic.
        TestKitError: a name is no string.
    """
    config = get_config()
    if not queues:
        own = [found for found in config.queues.values() if not found.external]
        return _parts([*own, *(config.queue(name) for name in _groups())])
    found: list[str] = []
    for name in [queues] if isinstance(queues, str) else queues:
        if not isinstance(name, str):
            raise TestKitError(f"A queue is named by a string, not {repr_of(name)}")
        if GROUP_SEPARATOR in name and name not in registry.groups() and not registry.own_names(name):
            known = listing(registry.groups())
            raise UnknownQueue(f"No subscriber has the group {repr_of(name)}; known: {known}")
        found += registry.groups(name) if name in config.topics else [name]
    return _parts([config.queue(name) for name in dict.fromkeys(found)])


def _parts(configs: Sequence[QueueConfig]) -> list[QueueConfig]:
    return [part for config in configs for part in config.each_part]


def _groups() -> list[str]:
    """Return the groups with a subscriber whose topic is configured."""
    topics = get_config().topics
    return [name for name in registry.groups() if name.partition(GROUP_SEPARATOR)[0] in topics]
