"""The queues of a test: the fixture `mq` of pytest, and the attribute `mq` of MQTestMixin."""

import sys
import unittest
from collections.abc import Collection
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any, Self

from mq_django.core import partitions
from mq_django.core.breakers import Hold
from mq_django.discovery import import_declaring
from mq_django.errors import TestKitError
from mq_django.producers.asynchronous import asynchronous
from mq_django.testing import faults, idempotence, looking, published, runs, test_state, time_travel, transactions
from mq_django.testing.looking import DeadLetter, Queued
from mq_django.testing.published import Published
from mq_django.testing.recording import Recorder
from mq_django.testing.runs import Handled
from mq_django.transport import test_mode, test_server

NO_TESTS = (
    "mq_django.testing works in tests only, where no client connects to the configured servers. Run them with pytest "
    "or manage.py test, or set MQ_DJANGO_TESTING=1 before Django starts."
)


class MQ(Recorder):
    """What a test sees of the queues and topics, and does with them. They are empty at its start.

    A message is handled only when the test says so, by run() or run_until_idle().
    """

    def __init__(self) -> None:
        super().__init__()
        self._ended = ExitStack()

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        """Let Django send a test case to another process."""
        return type(self), ()

    def start(self) -> None:
        """Begin a test. The fixture and MQTestMixin call this.

        Raises:
            TestKitError: this process does not run tests.
            NoServer: there is no Redis server on this machine.
        """
        _check_that_tests_run()
        import_declaring()
        test_state.share()
        transactions.note_connections()
        test_state.clean()
        runs.ensure_groups()
        super().start()
        partitions.end_turns()
        # Like a consumer beside the test, which waits for results.
        test_mode.handle_ready = partial(runs.run, raise_errors=False)
        test_mode.relay = transactions.relay_after_commit
        transactions.note_outboxes()
        self._ended.enter_context(runs.noted())

    def stop(self) -> None:
        """End a test: set the time back, and delete what the test has written."""
        test_mode.handle_ready = test_mode.relay = None
        partitions.begin_turns()
        self._ended.close()
        super().stop()
        time_travel.reset()
        test_state.clean()

    # The commit of the test's transaction.
    commit = staticmethod(transactions.commit)
    acommit = staticmethod(asynchronous(transactions.commit))

    @property
    def pending_commit(self) -> list[Published]:
        """The messages that wait for the commit of the transaction that the test is in, in order."""
        return transactions.pending()

    # The outboxes of databases.
    relay = staticmethod(transactions.relay)
    arelay = staticmethod(asynchronous(transactions.relay))

    @property
    def outbox(self) -> list[Published]:
        """The messages in the outboxes of databases that are not published, in order.

        Those that cannot be published stay there. `mq outbox --set-aside` says why.
        """
        return transactions.waiting()

    # What is in the queues.
    messages = staticmethod(looking.messages)
    topic = staticmethod(looking.topic)
    streamed = staticmethod(looking.streamed)

    @property
    def delayed(self) -> list[Queued]:
        """The delayed messages of all queues, in each queue by the time when they are due."""
        return looking.delayed()

    @property
    def dead(self) -> list[DeadLetter]:
        """The dead letters of all queues, in each queue in the order in which they were buried."""
        return looking.dead()

    @property
    def breakers(self) -> list[Hold]:
        """The breakers of all queues that are open, or let more and more messages through."""
        return looking.breakers()

    @property
    def results(self) -> list[Any]:
        """The results of all tasks, in the order of their enqueueing."""
        return looking.results()

    # Handling.
    run = staticmethod(runs.run)
    arun = staticmethod(runs.arun)

    def running(self, *queues: str, raise_errors: bool = True) -> AbstractContextManager[None]:
        """Handle each message right after it is published, while a block runs, in the place of calls of run().

            with mq.running(), self.captureOnCommitCallbacks(execute=True):
                self.client.post("/checkout/")

        For tests that expect the effects of a task after the commit: of a `TransactionTestCase`, or with
        `captureOnCommitCallbacks(execute=True)` or `commit()` in a `TestCase`. In setUp() of a class, for each of its
        tests: `self.enterContext(self.mq.running())`. Not for coroutines.

        Args:
            queues: as for run().
            raise_errors: as for run(), at the end of the block: the first error is raised there.
        """
        return runs.handling(lambda: runs.run_into([], queues, raise_errors=raise_errors, limit=runs.LIMIT))

    def run_until_idle(
        self, *queues: str, schedules: bool = False, raise_errors: bool = True, limit: int = runs.LIMIT
    ) -> list[Handled]:
        """Handle everything, and move the time to the next due message, until no message is ready or delayed.

        Args:
            queues, raise_errors: as for run().
            schedules: whether schedules fire whose ticks are on the way. A tick alone does not move the time.
            limit: maximum messages, and maximum moves of the time.

        Returns:
            What was handled, in this order.

        Raises:
            EndlessRun: more than `limit` messages became ready, or the time was moved more often.
            UnknownQueue, TestKitError, SynchronousOnlyOperation: as run().
        """
        return time_travel.run_until_idle(
            queues,
            advance_to=partial(time_travel.move_to, schedules=schedules),
            schedules=schedules,
            raise_errors=raise_errors,
            limit=limit,
        )

    arun_until_idle = asynchronous(run_until_idle)

    # Time.
    advance = staticmethod(time_travel.advance)
    aadvance = staticmethod(asynchronous(time_travel.advance))
    travel_to = staticmethod(time_travel.travel_to)
    atravel_to = staticmethod(asynchronous(time_travel.travel_to))

    # Without Redis.
    message = staticmethod(published.message)
    delivery = staticmethod(published.delivery)
    redis_down = staticmethod(test_server.unreachable)

    # Crashes.
    crash_at = staticmethod(faults.crash_at)

    def assert_idempotent(self, function: Any, message: Any = None, *, ignore: Collection[str] = ()) -> None:
        """Check that a message has the same effects when it is delivered again, as after the death of a process.

        Handles the message once. Then, each time from the same state: handles it twice, and handles it after a crash at
        each point of crash_at(). Compares what there is afterwards with what there is after the one run: all rows of
        the databases that the test is in a transaction of, the mails in `mail.outbox`, the published messages, and the
        outcome. What is elsewhere, such as in a cache or another service, is not compared and not restored.

        Everything is restored at the end: the databases, `mail.outbox`, and all queues and topics, which are empty
        meanwhile. The limits of the queue do not apply. Fields with `auto_now` or `auto_now_add`, and generated primary
        keys, are not compared.

        Args:
            function: of a handler or subscriber, or a task.
            message: data, or a Message from message(); for a task a list of positional arguments, or a dict of keyword
                arguments.
            ignore: models such as "shop.Log", and fields such as "shop.Order.updated_at", that are not compared.

        Raises:
            AssertionError: there are differences. It names them.
            TestKitError: the test is in no transaction; this is no function of a handler, subscriber or task; it has
                several names, or does not accept the arguments; or `ignore` has something unknown.
            InvalidMessage, NotSupported: the message cannot be sent.
            SynchronousOnlyOperation: this thread runs an event loop.
            Exception: what the function raises in its first run.
        """
        __tracebackhide__ = True
        # All keys of the queues are deleted for a while.
        _check_that_tests_run()
        with self._paused():
            idempotence.assert_idempotent(function, message, ignore=ignore)


def _check_that_tests_run() -> None:
    if not test_mode.is_on():
        raise TestKitError(NO_TESTS)


class MQTestMixin(unittest.TestCase):
    """Gives each test of a class the attribute `mq`, with the queues of this test.

    For `unittest.TestCase`, all of Django's test cases, and `unittest.IsolatedAsyncioTestCase`:

        class CheckoutTests(MQTestMixin, TestCase):
            def test_an_order_is_confirmed(self):
                self.client.post("/checkout/")
                self.mq.commit()
                self.mq.run()
    """

    mq: MQ

    # Not in setUp(), which a class may override without calling super().
    def run(self, result: unittest.TestResult | None = None) -> unittest.TestResult | None:
        """Run the test with its queues.

        Args:
            result: as for `unittest.TestCase.run`.
        """
        self.mq = MQ()
        try:
            self.mq.start()
        except Exception:
            if result is None:
                raise
            result.startTest(self)
            result.addError(self, sys.exc_info())
            result.stopTest(self)
            return result
        try:
            return super().run(result)
        finally:
            self.mq.stop()

    def debug(self) -> None:
        """Run the test with its queues, without collecting its result."""
        with MQ() as self.mq:
            super().debug()
