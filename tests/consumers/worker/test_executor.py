"""What running a delivery comes to, whatever the handler returns, raises or does."""

import gc
import logging
import math
import threading
import time
import weakref
from datetime import timedelta

import pytest

from mq_django.conf import get_config
from mq_django.consumers.shared_state import FAILED, HANDLED, Receipt, SharedState
from mq_django.consumers.worker.executor import Executor
from mq_django.consumers.worker.settler import Settler
from mq_django.core.messages import ACK, Ack, Bury, Delivery, Expire, HandBack, Message, Retry
from mq_django.core.retries import RetryPolicy
from mq_django.core.running_handler import progress
from mq_django.errors import HandlerTimeout, Interrupted
from mq_django.registry import Handler
from mq_django.signals import handler_finished, handler_started
from mq_django.stores import open_store
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests import working
from tests.hearing import hears
from tests.signal_docs import arguments_of
from tests.waiting import wait_until

ENTRY = b"1-1"


class Slot(working.Slot):
    """A slot in the test's own thread, which does as told instead of calling a handler."""

    def __init__(self):
        super().__init__()
        self.does = lambda message: None
        self.timeout = None

    def call(self, function, message, timeout):
        self.timeout = timeout
        return self.does(message)


class Rig:
    def __init__(self):
        self.config = get_config().queue("default")
        self.shared_state = SharedState.create(1)
        store = open_store(self.config, Pooled(get_client("chores")))
        self.settler = Settler(store, "default", "me", threading.Event(), threading.Event())
        self.executor = Executor(self.config, 0, self.shared_state, self.settler)
        self.slot = Slot()

    def run(self, does, what=None, by=None):
        """Run a delivery whose handler is `does`, and return its settlement."""
        self.slot.does = does
        working.handle(self.executor, what or delivery(), by or handler(), self.slot)
        return self.settled()

    def settled(self):
        (settlement,) = self.settler._take()
        return settlement


@pytest.fixture
def rig(mq_settings):
    mq_settings(QUEUES={"default": {"MAX_ATTEMPTS": 3}})
    found = Rig()
    yield found
    found.shared_state.close()


def delivery(attempt=1, **attributes):
    return Delivery(Message("m", "n", 1, "default", attempt, **attributes), 0, ENTRY, b"1")


def handler(**options):
    return Handler(name="n", queue="default", call=print, **options)


def raises(error):
    def does(message):
        raise error

    return does


class Unprintable(Exception):
    def __str__(self):
        raise SystemExit(3)


def test_what_runs_is_in_the_shared_state(rig):
    seen = []
    rig.run(lambda message: seen.extend(rig.shared_state.running()), by=handler(timeout=timedelta(seconds=5)))
    (running,) = seen
    assert running.receipt == Receipt(0, 0, ENTRY)
    assert running.deadline == running.since + 5.0


def test_what_must_not_run_any_more_is_handed_back(rig):
    ran = []
    rig.shared_state.set_paused(0, True)
    assert rig.run(ran.append).outcome == HandBack()
    rig.shared_state.set_paused(0, False)
    rig.shared_state.hold_until(0, time.monotonic() - 0.001)
    assert rig.run(ran.append).outcome == HandBack()
    assert (ran, rig.shared_state.running()) == ([], [])


def test_what_was_read_before_others_may_have_received_it_is_handed_back(rig):
    rig.shared_state.hold_until(0, math.inf, since=10.0)
    ran = []
    found = [rig.run(ran.append, delivery()._replace(read_at=read_at)).outcome for read_at in (0.0, 9.9, 10.1)]
    assert (found, len(ran)) == ([ACK, HandBack(), ACK], 2)


def test_what_is_interrupted_at_a_stop_is_handed_back_uncharged(rig, caplog):
    rig.settler.reports.stopping.set()
    settlement = rig.run(raises(Interrupted()))
    assert (settlement.outcome, settlement.micros) == (HandBack(), None)
    # If the process were killed now, the message would not count as failed.
    assert rig.shared_state.results() == {}
    assert caplog.records == []


def test_what_has_been_reported_is_sent_with_the_outcome(rig):
    def reports(message):
        progress(3, 10)

    settlement = rig.run(reports)
    (command,) = [each for each in rig.settler._also([settlement]).commands if b'"done":3' in str(each).encode()]
    assert command[0] == "EVALSHA"
    rig.settler._settled([settlement], [])
    assert rig.settler.reports.ended == {}


def test_what_is_too_old_does_not_run(rig):
    ran = []
    assert isinstance(rig.run(ran.append, delivery(expires_ms=1)).outcome, Expire)
    assert ran == []


def test_what_a_handler_returns_or_raises_decides(rig):
    kinds = [
        (Ack, lambda message: None),
        (Ack, lambda message: "anything"),
        (Ack, lambda message: Ack()),
        (Retry, lambda message: Retry()),
        (Bury, lambda message: Bury("no")),
        # Nothing that a handler does leaves a delivery without an outcome.
        (Retry, raises(Unprintable())),
        (Retry, raises(SystemExit(1))),
        (Retry, raises(Interrupted())),
        (Retry, lambda message: Retry(delay="soon")),
        (Retry, lambda message: Retry(traceback=Unprintable())),
        (Retry, lambda message: Bury(error=Unprintable()) and Retry(error=Unprintable())),
    ]
    found = []
    for _, does in kinds:
        settlement = rig.run(does)
        found.append((type(settlement.outcome), rig.shared_state.results()[Receipt(0, 0, ENTRY)]))
    assert found == [(kind, HANDLED if kind is Ack else FAILED) for kind, _ in kinds]


def test_the_time_of_the_handler_is_settled_with_it(rig):
    def takes_long(message):
        ends = time.monotonic() + 0.02
        wait_until(lambda: time.monotonic() > ends)

    assert rig.run(takes_long).micros >= 20_000


def test_a_retry_may_say_when(rig):
    delays = {timedelta(seconds=3): 3000, 3: 3000, 0.5: 500, -5: 0, timedelta(-1): 0}
    assert {delay: rig.run(lambda message: Retry(delay=delay)).delay_ms for delay in delays} == delays  # noqa: B023


def test_an_exception_is_a_retry_by_the_policy(rig):
    policy = RetryPolicy(delay=timedelta(seconds=7), jitter=0)
    settlement = rig.run(raises(KeyError("x")), by=handler(retry=policy))
    assert (settlement.delay_ms, settlement.outcome.error) == (7000, "KeyError: 'x'")


def test_the_last_attempt_and_some_exceptions_are_buried(rig):
    outcome = rig.run(raises(HandlerTimeout("late")), delivery(attempt=3)).outcome
    assert outcome == Bury("mq_django.errors.HandlerTimeout: late", traceback=outcome.traceback, reason="attempts")
    outcome = rig.run(raises(KeyError("x")), by=handler(retry=RetryPolicy(bury_on=(KeyError,)))).outcome
    assert isinstance(outcome, Bury)
    assert outcome.reason == "error"


class BrokenPolicy(RetryPolicy):
    def exhausted(self, attempt, *, default_max):
        raise SystemExit(3)


def test_a_policy_that_fails_gives_way_to_that_of_the_queue(rig):
    by = handler(retry=BrokenPolicy())
    assert isinstance(rig.run(raises(KeyError("x")), by=by).outcome, Retry)
    assert isinstance(rig.run(raises(KeyError("x")), delivery(attempt=3), by).outcome, Bury)


def test_an_exception_is_gone_with_its_message(rig, caplog):
    found = []
    # pytest keeps the records of a test, and with them their exceptions.
    caplog.set_level(logging.CRITICAL, logger="mq_django")

    class Heavy(Exception):
        def __init__(self):
            found.append(weakref.ref(self))

    def does(message):
        raise Heavy

    gc.disable()
    try:
        rig.run(does, by=handler(ended=lambda *_: None))
        assert found[0]() is None
    finally:
        gc.enable()


def test_what_has_ended_is_told_the_outcome_that_was_decided(rig):
    told = []
    wrong = ValueError("no such user")
    by = handler(retry=RetryPolicy(max_attempts=1), ended=lambda *given: told.append(given))
    rig.run(raises(wrong), by=by)
    rig.run(lambda message: None, by=by)
    (message, outcome, seconds, error), (_, success, _, nothing) = told
    assert (message, outcome.reason, error) == (delivery().message, "attempts", wrong)
    assert 0 <= seconds < 10
    assert (success, nothing) == (Ack(), None)


def test_logs_take_no_line_breaks_from_errors(rig, caplog):
    rig.run(raises(ValueError("a\nERROR forged")))
    assert all("\n" not in message for message in caplog.messages)


@pytest.mark.parametrize("error", [RuntimeError("not our problem"), SystemExit(3)])
def test_receivers_get_what_is_documented_and_harm_nobody_when_they_raise(rig, error):
    with hears(handler_started, handler_finished, raises=error) as told:
        settlement = rig.run(lambda message: None)
    assert isinstance(settlement.outcome, Ack)
    assert [set(given) for given in told] == [arguments_of(handler_started), arguments_of(handler_finished)]
    assert {given["sender"] for given in told} == {Handler}


def test_a_handlers_timeout_wins_over_the_queues(mq_settings):
    mq_settings(QUEUES={"default": {"TIMEOUT": 10}})
    rig = Rig()
    rig.run(lambda message: None)
    assert rig.slot.timeout == 10.0
    rig.run(lambda message: None, by=handler(timeout=timedelta(seconds=2)))
    assert rig.slot.timeout == 2.0
    rig.shared_state.close()
