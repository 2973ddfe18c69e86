"""Handle the ready messages of one queue in the caller's thread, with the parts of a consumer."""

import asyncio
import threading
from collections.abc import Sequence
from contextvars import copy_context
from dataclasses import dataclass, field, replace

from asgiref.sync import async_to_sync

from mq_django.conf import QueueConfig
from mq_django.consumers.service import SERVER_ERRORS
from mq_django.consumers.worker.cancels import Cancels
from mq_django.consumers.worker.databases import Databases
from mq_django.consumers.worker.dispatcher import Dispatcher
from mq_django.consumers.worker.executor import Executor
from mq_django.consumers.worker.handler_thread import WorkItem
from mq_django.consumers.worker.settler import Settler
from mq_django.core import handler_context
from mq_django.core.messages import Delivery, Message, Undecodable
from mq_django.core.outcomes import HandBack, Outcome
from mq_django.errors import EndlessRun
from mq_django.producers.step_courier import StepCourier
from mq_django.registry import Handler, names
from mq_django.stores import open_store
from mq_django.stores.base import Settlement, Store
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


class LatestSettler(Settler):
    """A settler that knows the latest outcome."""

    _latest: Settlement | None = None

    def add(self, settlement: Settlement) -> None:
        """See Settler.add()."""
        self._latest = settlement
        super().add(settlement)

    def pop_latest(self) -> Settlement | None:
        """Return the outcome that was added since the last call, or None."""
        latest, self._latest = self._latest, None
        return latest


class QueueRun:
    """Handles the ready messages of one queue or partition. Each is settled before the next one is taken.

    So a handler that looks at its queue finds only its own message pending. That costs one round trip for a message.
    """

    executor_class: type[Executor] = Executor

    def __init__(self, config: QueueConfig, databases: Databases) -> None:
        self._name = config.public_name
        self._store: Store = open_store(config, open_wire("consume", config.connection))
        self._store.create_groups()
        self._lane, self._coroutine_lane = CallerLane(databases), CallerCoroutineLane(databases)
        self._settler = LatestSettler(self._store, config.name, CONSUMER, threading.Event(), threading.Event())
        self._courier = StepCourier(config, open_wire("consume", config.connection))
        self._settler.steps_ended = lambda _, message_ids: self._courier.deliver(message_ids)
        self._cancels = Cancels(self._store)
        self._executor = self.executor_class(config, 0, UnsharedState(), self._settler, self._cancels)
        self._dispatcher = Dispatcher(
            config.name, settler=self._settler, executor=self._executor, threads=self, loop=self
        )
        #: The handler of the latest message, and what it has raised.
        self._handler = ""
        self._raised: list[BaseException] = []

    def handle_ready(self, handled: list[Handled], *, raise_errors: bool, limit: int) -> bool:
        """Handle what is due or ready, add it to `handled`, and return whether there was anything.

        Raises:
            EndlessRun: `handled` would have more than `limit` items.
            BaseException: that of a handler, after its outcome is settled.
        """
        before = len(handled)
        self._cancels.read()
        self._make_ready()
        taken = self._store.take(CONSUMER, count=1)
        while taken:
            if len(handled) >= limit:
                self._hand_back(taken)
                raise EndlessRun(
                    f"After {limit} messages, queue {self._name!r} still has ready ones: handlers publish endlessly, "
                    "or limit= is too low"
                )
            for at, item in enumerate(taken, 1):
                try:
                    handled.append(self._handle(item, raise_errors=raise_errors))
                except BaseException:
                    # Settles what has run, too.
                    self._hand_back(taken[at:])
                    raise
            taken = self._settle_and_take()
        return len(handled) > before

    def put(self, job: WorkItem, /) -> None:
        """Run a delivery now. The dispatcher calls this."""
        delivery, handler, _ = job
        self._handler = handler.where
        hooks = CommitHooks()
        # In a copied context, as in a consumer: locale, time zone and context variables end with the message.
        copy_context().run(self._run, delivery, self._noting(handler))
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

    def _handle(self, item: Delivery | Undecodable, *, raise_errors: bool) -> Handled:
        """Run a delivery; it is settled later, also if its error is raised."""
        self._handler, self._raised = "", []
        try:
            self._dispatcher.dispatch([item])
        except BaseException:
            if self._settler.pop_latest() is None:
                # It was interrupted before it had an outcome.
                self._settler.add(Settlement(item, HandBack()))
            raise
        settlement, error = self._settler.pop_latest(), next(iter(self._raised), None)
        self._raised = []
        assert settlement is not None
        if error is not None and (raise_errors or not isinstance(error, HANDLED_LIKE_EXCEPTIONS)):
            raise error
        message, outcome = item.message if isinstance(item, Delivery) else None, settlement.outcome
        text, seconds = str(getattr(outcome, "error", "")), (settlement.micros or 0) / 1e6
        return Handled(message, outcome, self._handler, text, error, seconds)

    def _run(self, delivery: Delivery, handler: Handler) -> None:
        handler_context.enter()
        if handler.is_async:
            async_to_sync(self._executor.run_coroutine)(self._coroutine_lane, delivery, handler)
        else:
            self._executor.run(self._lane, delivery, handler)

    def _noting(self, handler: Handler) -> Handler:
        """Return a handler that notes its exception when it has ended."""

        def ended(message: Message, outcome: Outcome, seconds: float, raised: BaseException | None) -> None:
            self._note(raised)
            if handler.ended is not None:
                handler.ended(message, outcome, seconds, raised)

        async def aended(message: Message, outcome: Outcome, seconds: float, raised: BaseException | None) -> None:
            self._note(raised)
            if handler.aended is not None:
                await handler.aended(message, outcome, seconds, raised)

        return replace(handler, ended=ended, aended=aended)

    def _note(self, raised: BaseException | None) -> None:
        if raised is not None:
            self._raised.append(raised)

    def _settle_and_take(self) -> Sequence[Delivery | Undecodable]:
        """Settle what has run, and take the next message, in one round trip if possible."""
        try:
            return self._settler.settle_and_take(self._store, count=1)
        except SERVER_ERRORS:
            raise
        except Exception:  # noqa: BLE001 - an outcome that cannot be written is settled in another form
            self._settle()
            return self._store.take(CONSUMER, count=1)

    def _settle(self) -> None:
        self._settler.settle(self._store)
        self._settler.try_refused(self._store)

    def _hand_back(self, taken: Sequence[Delivery | Undecodable]) -> None:
        for item in taken:
            self._settler.add(Settlement(item, HandBack()))
        self._settle()
