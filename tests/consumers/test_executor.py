"""What running a delivery comes to, whatever the handler returns, raises or does."""

import threading
import time
from datetime import timedelta

import pytest

from mq_django.conf import get_config
from mq_django.consumers.board import FAILED, HANDLED, Board, Receipt
from mq_django.consumers.executor import Executor
from mq_django.consumers.settler import Settler
from mq_django.core.messages import Delivery, Message
from mq_django.core.outcomes import Ack, Bury, Expire, HandBack, Retry
from mq_django.core.retries import RetryPolicy
from mq_django.errors import HandlerTimeout
from mq_django.registry import Handler
from mq_django.signals import handler_finished, handler_started
from mq_django.stores import open_store
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled

ENTRY = b"1-1"


class Rig:
    def __init__(self):
        self.config = get_config().queue("default")
        self.board = Board.create(1)
        store = open_store(self.config, Pooled(get_client("chores")))
        self.settler = Settler(store, "default", "me", threading.Event(), threading.Event())
        self.executor = Executor(self.config, 0, self.board, self.settler)

    def settled(self):
        (settlement,) = self.settler._take()
        return settlement


@pytest.fixture
def rig(mq_settings):
    mq_settings(QUEUES={"default": {"MAX_ATTEMPTS": 3}})
    found = Rig()
    yield found
    found.board.close()


def delivery(attempt=1, **attributes):
    return Delivery(Message("m", "n", 1, "default", attempt, **attributes), 0, ENTRY, b"1")


def handler(**options):
    return Handler(name="n", queue="default", call=print, **options)


def test_what_begins_is_on_the_board(rig):
    began = rig.executor.begin(0, delivery(), 5.0)
    (running,) = rig.board.running()
    assert running == (Receipt(0, 0, ENTRY), began, began + 5.0)


def test_a_paused_queue_begins_nothing(rig):
    rig.board.set_paused(0, True)
    assert not rig.executor.begin(0, delivery())
    assert isinstance(rig.settled().outcome, HandBack)
    assert rig.board.running() == []


def test_nothing_begins_that_others_may_have_taken_over(rig):
    rig.board.hold_until(0, time.monotonic() - 0.001)
    assert not rig.executor.begin(0, delivery())
    assert isinstance(rig.settled().outcome, HandBack)
    assert rig.board.running() == []


def test_what_is_too_old_does_not_begin(rig):
    assert not rig.executor.begin(0, delivery(expires_ms=1))
    assert isinstance(rig.settled().outcome, Expire)


@pytest.mark.parametrize(
    ("returned", "kind", "on_board"),
    [
        (None, Ack, HANDLED),
        ("anything", Ack, HANDLED),
        (Ack(), Ack, HANDLED),
        (Retry(), Retry, FAILED),
        (Bury("no"), Bury, FAILED),
    ],
)
def test_what_a_handler_returns_decides(rig, returned, kind, on_board):
    rig.executor.end(delivery(), handler(), returned, 0.5)
    settlement = rig.settled()
    assert isinstance(settlement.outcome, kind)
    assert settlement.micros == 500_000
    assert rig.board.results() == {Receipt(0, 0, ENTRY): on_board}


@pytest.mark.parametrize(
    ("delay", "delay_ms"), [(timedelta(seconds=3), 3000), (3, 3000), (0.5, 500), (-5, 0), (timedelta(-1), 0)]
)
def test_a_retry_may_say_when(rig, delay, delay_ms):
    rig.executor.end(delivery(), handler(), Retry(delay=delay), 0.0)
    assert rig.settled().delay_ms == delay_ms


def test_an_exception_is_a_retry_by_the_policy(rig):
    policy = RetryPolicy(delay=timedelta(seconds=7), jitter=0)
    rig.executor.fail(delivery(), handler(retry=policy), KeyError("x"), 0.0)
    settlement = rig.settled()
    assert (settlement.delay_ms, settlement.outcome.error) == (7000, "KeyError: 'x'")


def test_the_last_attempt_is_buried(rig):
    rig.executor.fail(delivery(attempt=3), handler(), HandlerTimeout("late"), 0.0)
    outcome = rig.settled().outcome
    assert isinstance(outcome, Bury)
    assert (outcome.reason, outcome.error) == ("attempts", "mq_django.errors.HandlerTimeout: late")


def test_some_exceptions_bury_at_once(rig):
    rig.executor.fail(delivery(), handler(retry=RetryPolicy(bury_on=(KeyError,))), KeyError("x"), 0.0)
    outcome = rig.settled().outcome
    assert isinstance(outcome, Bury)
    assert outcome.reason == "error"


def test_what_cannot_be_settled_as_wanted_is_retried(rig):
    rig.executor.give_up(delivery(), handler(), TypeError("x"))
    outcome = rig.settled().outcome
    assert isinstance(outcome, Retry)
    assert outcome.error.startswith("TypeError")
    assert rig.board.results() == {Receipt(0, 0, ENTRY): FAILED}


def test_logs_take_no_line_breaks_from_errors(rig, caplog):
    rig.executor.fail(delivery(), handler(), ValueError("a\nERROR forged"), 0.0)
    assert all("\n" not in message for message in caplog.messages)


def test_receivers_that_raise_harm_nobody(rig):
    def receiver(**_):
        raise RuntimeError("not our problem")

    for signal in (handler_started, handler_finished):
        signal.connect(receiver, weak=False, dispatch_uid="test")
    try:
        assert rig.executor.begin(0, delivery())
        rig.executor.end(delivery(), handler(), None, 0.0)
    finally:
        for signal in (handler_started, handler_finished):
            signal.disconnect(dispatch_uid="test")
    assert isinstance(rig.settled().outcome, Ack)


def test_a_handlers_timeout_wins_over_the_queues(mq_settings):
    mq_settings(QUEUES={"default": {"TIMEOUT": 10}})
    rig = Rig()
    assert rig.executor.timeout(handler()) == 10.0
    assert rig.executor.timeout(handler(timeout=timedelta(seconds=2))) == 2.0
    rig.board.close()
