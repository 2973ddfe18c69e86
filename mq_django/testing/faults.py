"""Let the process that handles a message die at a point, and recover the message as a supervisor does."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from mq_django.conf import QueueConfig
from mq_django.consumers.decisions import Evidence
from mq_django.consumers.shared_state import Receipt
from mq_django.consumers.supervisor.reclaimer import reclaim
from mq_django.consumers.worker.call_path import WorkItem
from mq_django.consumers.worker.databases import Databases, databases_within
from mq_django.core.messages import Delivery, Message, Outcome, Undecodable
from mq_django.core.texts import repr_of
from mq_django.errors import TestKitError
from mq_django.producers.asynchronous import refuse_event_loop
from mq_django.registry import Handler
from mq_django.stores import open_members
from mq_django.testing.recording import Records
from mq_django.testing.runs import (
    CONSUMER,
    HANDLED_LIKE_EXCEPTIONS,
    Handled,
    NotingExecutor,
    QueueRun,
    configs_of,
)
from mq_django.testing.transactions import CommitHooks
from mq_django.transport.connections import open_transport

# Handle one message of a queue, and recover it if its outcome is lost.


class SingleRun(QueueRun):
    """Handles one message of a queue.

    Args:
        config: of the queue.
        databases: the connections of the thread.
        only: the message, while those before it stay pending; None: the next one.
    """

    def __init__(self, config: QueueConfig, databases: Databases, *, only: Message | None = None) -> None:
        super().__init__(config, databases)
        self._only = only

    def finish(self, *, raise_errors: bool = False) -> Handled | None:
        """Handle the message and settle it. Return None if it is not ready."""
        handled = self._handle_next(raise_errors=raise_errors)
        self._settle()
        return handled

    def lose_outcome(self) -> None:
        """Handle the message, and let it be delivered again, as when the consumer is taken for dead meanwhile."""
        self._handle_next(raise_errors=False)
        self.recover(Evidence(lost=True))

    def recover(self, evidence: Evidence) -> None:
        """Settle what the consumer holds, and remove it from its queue, as a supervisor does for a dead one.

        Args:
            evidence: what the supervisor knows about it.
        """
        config = self._store.config
        reclaim(self._store, 0, CONSUMER, evidence)
        open_members(config, open_transport("chores", config.connection)).leave([CONSUMER])
        # It is retried without a delay.
        self._make_ready()

    def next_item(self) -> Delivery | Undecodable | None:
        """Take the message; None if it is not ready."""
        self._make_ready()
        while taken := self._store.take(CONSUMER, count=1):
            (item,) = taken
            if self._only is None:
                return item
            if isinstance(item, Delivery) and item.message.id == self._only.id:
                # Redis has the time at which it was written.
                return item._replace(message=item.message._replace(published_ms=self._only.published_ms))
        return None

    def _handle_next(self, *, raise_errors: bool) -> Handled | None:
        item = self.next_item()
        return None if item is None else self._handle([item], raise_errors=raise_errors)[0]


BEFORE_HANDLER, BEFORE_ON_COMMIT, AFTER_EFFECT = "before_handler", "before_on_commit", "after_effect"
POINTS = (BEFORE_HANDLER, BEFORE_ON_COMMIT, AFTER_EFFECT)

#: Another delivery that the dead process was running, so that it is not known which of both has ended it.
_ANOTHER = Receipt(0, -1, b"")


class ProcessDied(BaseException):
    """The process died. It is no `Exception`, so that a handler's `except Exception` does not catch it."""


def crash_at(point: str, *queues: str) -> Message:
    """Handle the next ready message up to a point, let the process die there, and recover the message.

    Nothing is settled at the point. Then the message is recovered as a supervisor does when one of its processes has
    ended: this counts as an attempt, and the message is ready again, or a dead letter after its last attempt. A test
    then calls run(), and checks that the effects are there, and that none is there twice.

        emails.publish("receipt", {"order": 7})
        mq.crash_at("after_effect")
        mq.run()
        assert len(mailoutbox) == 1

    The points:

    - "before_handler": the message was fetched, and its function was not called.
    - "before_on_commit": the function has changed the database, and its on-commit hooks have not run, so what it
      publishes at a commit is lost. In the transaction of a test that is when the function has ended. Without one it is
      the first commit with a hook, or else the end of the function.
    - "after_effect": the function and its hooks have run, and the outcome is not settled.

    A dead process runs no `finally` and leaves no `with` block. Here they run, but no `except Exception` does.

    Args:
        point: one of these.
        queues: as for run(). The first one with a ready message is used.

    Returns:
        The message.

    Raises:
        TestKitError: there is no such point, or no message is ready.
        UnknownQueue: there is no such queue, group or topic.
        SynchronousOnlyOperation: this thread runs an event loop.
    """
    refuse_event_loop(": await sync_to_async(mq.crash_at)(...) in place of mq.crash_at(...)")
    if point not in POINTS:
        raise TestKitError(f"crash_at() takes one of {', '.join(POINTS)}, not {repr_of(point)}")
    configs = configs_of(queues)
    with databases_within() as databases:
        for config in configs:
            message = FatalRun(config, databases, point).die()
            if message is not None:
                return message
    names = ", ".join(repr(config.name) for config in configs)
    raise TestKitError("\n".join(filter(None, [f"No message is ready in {names}", Records().waiting()])))


class DyingExecutor(NotingExecutor):
    """An executor whose process may die in a handler, and dies in any case before an outcome is settled."""

    def judge_error(self, delivery: Delivery, handler: Handler, error: BaseException, *, is_cancelled: bool) -> Outcome:
        """See Executor.judge_error()."""
        if isinstance(error, ProcessDied):
            raise error
        return super().judge_error(delivery, handler, error, is_cancelled=is_cancelled)

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
        # What is for the test, such as pytest.fail(), must come out.
        if raised is None or issubclass(type(raised), HANDLED_LIKE_EXCEPTIONS):
            raise ProcessDied
        return super().finish(delivery, handler, outcome, seconds, raised, **options)

    def finish_ack(self, delivery: Delivery, seconds: float, *, keeps_result: bool) -> None:
        """See Executor.finish_ack()."""
        raise ProcessDied

    def finish_acks(self, row: int, deliveries: Sequence[Delivery], seconds: float) -> None:
        """See Executor.finish_acks()."""
        raise ProcessDied


class FatalRun(SingleRun):
    """Handles one message of a queue in a process that dies at a point.

    Args:
        config, databases, only: see SingleRun.
        point: see crash_at().
    """

    executor_class = DyingExecutor

    def __init__(self, config: QueueConfig, databases: Databases, point: str, *, only: Message | None = None) -> None:
        super().__init__(config, databases, only=only)
        self._databases = databases
        self._point = point

    def die(self, *, among_others: bool = False) -> Message | None:
        """Die at the point, and recover. Return the message that was running; None: no message got there.

        Args:
            among_others: the process was running other messages, too, so that no attempt is charged.
        """
        while (item := self.next_item()) is not None:
            try:
                self._handle([item], raise_errors=False)
            except ProcessDied:
                # The outcomes that the settler has not sent are lost, too.
                assert isinstance(item, Delivery)
                self._databases.clean_up()
                receipt = Receipt.of(0, item.stream, item.entry)
                self.recover(Evidence(running=[receipt, _ANOTHER] if among_others else [receipt]))
                return item.message
            except BaseException:
                self._settle()
                raise
            self._settle()
        return None

    def put(self, job: WorkItem, /) -> None:
        """Run a delivery until the process dies. The dispatcher calls this."""
        hooks = CommitHooks()
        try:
            if self._point == BEFORE_ON_COMMIT:
                with dies_at_commits():
                    super().put(self._dying(job))
            else:
                super().put(self._dying(job))
        except ProcessDied:
            # Those of middleware.
            if self._point == AFTER_EFFECT:
                hooks.run()
            hooks.drop()
            raise

    def _dying(self, job: WorkItem) -> WorkItem:
        """Return a job whose process dies before its handler, or before the handler's on-commit hooks."""
        if self._point == AFTER_EFFECT:
            return job
        before, handler = _depths(), job.path.handler

        def call(argument: object) -> Any:
            if self._point == BEFORE_HANDLER:
                raise ProcessDied
            hooks = CommitHooks()
            try:
                returned = handler.call(argument)
            finally:
                hooks.drop()
            _die_unless_in_transaction(before)
            return returned

        async def acall(argument: object) -> Any:
            if self._point == BEFORE_HANDLER:
                raise ProcessDied
            hooks = await sync_to_async(CommitHooks)()
            try:
                returned = await handler.call(argument)
            finally:
                await sync_to_async(hooks.drop)()
            await sync_to_async(_die_unless_in_transaction)(before)
            return returned

        dying = replace(handler, call=acall if handler.is_async else call)
        return job._replace(path=self._dispatcher.path(dying))


@contextmanager
def dies_at_commits() -> Iterator[None]:
    """Let the process die at each commit of this thread that has hooks, before they run."""
    found: list[Any] = list(connections.all())
    for connection in found:
        connection.run_and_clear_commit_hooks = partial(_die_at_commit, connection)
    try:
        yield
    finally:
        for connection in found:
            del connection.run_and_clear_commit_hooks


def _die_at_commit(connection: BaseDatabaseWrapper) -> None:
    lost, connection.run_on_commit = connection.run_on_commit, []
    if lost:
        connection.run_commit_hooks_on_set_autocommit_on = False
        raise ProcessDied


def _depths() -> dict[str, int]:
    """Return the number of open blocks of `atomic` of each database."""
    return {found.alias: len(found.atomic_blocks) for found in connections.all(initialized_only=True)}


def _die_unless_in_transaction(before: dict[str, int]) -> None:
    """Die, unless middleware has opened a transaction around the handler, which must commit first.

    The slot has opened one block in each transaction.
    """
    if all(depth <= before.get(alias, 0) + 1 for alias, depth in _depths().items()):
        raise ProcessDied
