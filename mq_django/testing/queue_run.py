"""Handle the ready messages of one queue in the caller's thread, with the parts of a consumer."""

import asyncio
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field, replace

from asgiref.sync import async_to_sync

from mq_django.conf import QueueConfig
from mq_django.consumers.service import SERVER_ERRORS
from mq_django.consumers.worker.batch_rows import BatchRows
from mq_django.consumers.worker.batches import Batches
from mq_django.consumers.worker.cancels import Cancels
from mq_django.consumers.worker.databases import Databases
from mq_django.consumers.worker.dispatcher import Dispatcher
from mq_django.consumers.worker.executor import Executor
from mq_django.consumers.worker.lanes import WorkItem
from mq_django.consumers.worker.settler import Settler
from mq_django.core import handler_context
from mq_django.core.exceptions import repr_of
from mq_django.core.messages import Delivery, Message, Undecodable
from mq_django.core.outcomes import HandBack, Outcome, SetAside
from mq_django.core.step_ids import STEP_NAME
from mq_django.errors import EndlessRun, TestKitError
from mq_django.producers.step_courier import StepCourier
from mq_django.registry import Handler, batches, find, names
from mq_django.stores import open_store
from mq_django.stores.base import Settlement, Store
from mq_django.testing import ticks
from mq_django.testing.lane import CallerCoroutineLane, CallerLane, UnsharedState
from mq_django.testing.savepoints import CommitHooks
from mq_django.transport.connections import open_wire

#: The consumer that takes the messages.
CONSUMER = "test"
#: Messages that one script call makes ready.
BATCH = 500

#: What a handler may raise without ending the test, because a consumer treats it like an exception. Any other
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
    #: What the handler or its middleware has raised.
    exception: BaseException | None = field(default=None, compare=False)
    #: How long the handler ran.
    seconds: float = field(default=0.0, compare=False)


def mostly(handled: Sequence[Handled]) -> str:
    """Return which messages were handled most often, and how many came from schedules, for an error."""
    names = Counter(each.message.name for each in handled if each.message is not None)
    listed = ", ".join(f"{repr_of(name)} ({count} times)" for name, count in names.most_common(3))
    fired = sum(each.message is not None and each.message.id in ticks.ids() for each in handled)
    of_schedules = f"; {fired} messages came from schedules that fire on the way" if fired else ""
    return f"Most often handled: {listed or 'none'}{of_schedules}"


class NotingSettler(Settler):
    """A settler that knows which outcomes were added last."""

    _added: Sequence[Settlement] = ()

    def add(self, settlement: Settlement) -> None:
        """See Settler.add()."""
        self._added = (*self._added, settlement)
        super().add(settlement)

    def pop_added(self) -> Sequence[Settlement]:
        """Return the outcomes that were added since the last call."""
        added, self._added = self._added, ()
        return added


class QueueRun:
    """Handles the ready messages of one queue or partition. Each is settled before the next one is taken.

    So a handler that looks at its queue finds only its own message pending. That costs one round trip for a message. In
    a queue with a handler that has `batch`, as many messages are taken as it may get.
    """

    executor_class: type[Executor] = Executor

    def __init__(self, config: QueueConfig, databases: Databases) -> None:
        self._name = config.public_name
        self._store: Store = open_store(config, open_wire("consume", config.connection))
        self._store.create_groups()
        self._lane, self._coroutine_lane = CallerLane(databases), CallerCoroutineLane(databases)
        self._settler = NotingSettler(self._store, config.name, CONSUMER, threading.Event(), threading.Event())
        self._courier = StepCourier(config, open_wire("consume", config.connection))
        self._settler.steps_ended = lambda _, message_ids: self._courier.deliver(message_ids)
        self._cancels = Cancels(self._store)
        self._executor = self.executor_class(config, 0, UnsharedState(), self._settler, self._cancels)
        self._dispatcher = Dispatcher(
            config.name,
            settler=self._settler,
            executor=self._executor,
            threads=self,
            loop=self,
            batches=Batches(UnsharedState(), self, self, BatchRows(0)),
        )
        #: The handler of the latest message, and what it has raised, by the id of the message.
        self._handler = ""
        self._raised: dict[str, BaseException] = {}

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
            listed = sorted(each for each in names(self._name) if not each.startswith(STEP_NAME))
            known = ", ".join(listed) or "none"
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
        handler = job.handler
        self._handler = handler.where
        hooks = CommitHooks()
        # In a copied context, as in a consumer: locale, time zone and context variables end with the message.
        copy_context().run(self._run, job._replace(handler=self._noting(handler)))
        # Those of middleware and of receivers. The handler's own have run.
        hooks.run()

    def _make_ready(self) -> None:
        """Make due messages ready, and unhandled ones that have a handler by now."""
        promoted = self._store.promote(limit=BATCH)
        while promoted.moved >= BATCH:
            promoted = self._store.promote(limit=BATCH)
        if promoted.unhandled:
            known = list(names(self._name))
            while self._store.release_unhandled(known, limit=BATCH):
                pass

    def _handle(self, items: Sequence[Delivery | Undecodable], *, raise_errors: bool) -> list[Handled]:
        """Run the deliveries of a call; they are settled later, also if an error is raised."""
        self._handler, self._raised = "", {}
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
        raised, self._raised = self._raised, {}
        for error in raised.values():
            if raise_errors or not isinstance(error, HANDLED_LIKE_EXCEPTIONS):
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
        handler_context.enter()
        delivery, handler, executor = job
        if handler.on_loop:
            async_to_sync(executor.run_coroutine)(self._coroutine_lane, delivery, handler)
        else:
            executor.run(self._lane, delivery, handler)

    def _noting(self, handler: Handler) -> Handler:
        """Return a handler that notes its exception when it has ended."""

        def ended(message: Message, outcome: Outcome, seconds: float, raised: BaseException | None) -> None:
            self._note(message, raised)
            if handler.ended is not None:
                handler.ended(message, outcome, seconds, raised)

        async def aended(message: Message, outcome: Outcome, seconds: float, raised: BaseException | None) -> None:
            self._note(message, raised)
            if handler.aended is not None:
                await handler.aended(message, outcome, seconds, raised)

        return replace(handler, ended=ended, aended=aended)

    def _note(self, message: Message, raised: BaseException | None) -> None:
        if raised is not None:
            self._raised[message.id] = raised

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
