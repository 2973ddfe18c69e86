"""What a handler with batch= gets in a call, and what its messages come to."""

import asyncio
import gc
import itertools
import logging
import threading
import time
import weakref
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.db import connection, transaction

from mq_django.consumers.shared_state import FAILED, HANDLED, Receipt
from mq_django.consumers.worker import batches
from mq_django.consumers.worker.breakers import Cancels
from mq_django.core import clock
from mq_django.core.jsontext import LAST_MS
from mq_django.core.messages import ACK, Ack, BatchBisection, Bury, Cancel, Delivery, Expire, HandBack, Message, Retry
from mq_django.core.retries import RetryPolicy
from mq_django.core.running_handler import progress
from mq_django.errors import HandlerTimeout, InvalidOutcomes, NotInHandler
from mq_django.signals import handler_finished, handler_started
from mq_django.stores.base import CancelRequest
from tests.consumers.rig import Rig
from tests.hearing import hears
from tests.waiting import wait_until

_entries = itertools.count(1)


def delivery(data, **attributes):
    number = next(_entries)
    message = Message(f"m{number}", "n", data, "default", **attributes)
    return Delivery(message, 0, b"%d-1" % number, b"null", read_at=time.monotonic())


def data_of(messages):
    return [message.data for message in messages]


#: For what is written twice.
BOTH = pytest.mark.parametrize("kind", ["thread", "coroutine"])


@pytest.fixture
def kind():
    return "thread"


@pytest.fixture
def rig(mq_settings):
    mq_settings(QUEUES={"default": {"MAX_ATTEMPTS": 3}})
    found = Rig(threads=1, batch=100, isolate=lambda delivery: None)
    yield found
    found.close()


@pytest.fixture
def runs(rig, kind):
    """Register a function as a handler of batches, start the rig, and run messages with these data."""

    def run(does, data, *, batch=100, **options):
        calls = []

        def call(messages):
            calls.append(data_of(messages))
            return does(messages)

        async def acall(messages):
            await asyncio.sleep(0)
            return call(messages)

        is_async = kind == "coroutine"
        rig.handle("n", acall if is_async else call, is_async=is_async, batch=batch, where="h", **options)
        rig.start()
        items = [each if isinstance(each, Delivery) else delivery(each) for each in data]
        rig.dispatcher.dispatch(items)
        wait_until(lambda: len(rig.settler) == len(items))
        return calls

    return run


def fails_for(*poison):
    def does(messages):
        if not set(poison).isdisjoint(data_of(messages)):
            raise ValueError("poison")

    return does


@BOTH
def test_what_was_fetched_together_is_one_call(rig, runs):
    assert runs(lambda messages: None, range(5)) == [[0, 1, 2, 3, 4]]
    assert rig.settled() == dict.fromkeys("01234", ACK)


def test_what_has_ended_is_freed_without_the_garbage_collector(runs, monkeypatch):
    started = []

    def plan(*args, **options):
        found = BatchBisection(*args, **options)
        started.append(weakref.ref(found))
        return found

    monkeypatch.setattr(batches, "Plan", plan)
    gc.disable()
    try:
        # A thread keeps what it has run last.
        runs(lambda messages: None, range(6), batch=3)
        wait_until(lambda: started[0]() is None)
    finally:
        gc.enable()


def test_a_call_has_no_more_messages_than_its_handler_accepts(rig, runs):
    assert runs(lambda messages: None, range(7), batch=3) == [[0, 1, 2], [3, 4, 5], [6]]
    assert rig.settled() == dict.fromkeys("0123456", ACK)


def test_a_call_gets_what_has_come_while_the_slot_was_busy(rig):
    calls, busy, go = [], threading.Event(), threading.Event()

    def call(messages):
        calls.append(data_of(messages))
        busy.set()
        assert go.wait(30)

    rig.handle("n", call, batch=100)
    rig.start()
    rig.dispatcher.dispatch([delivery(0)])
    assert busy.wait(30)
    for number in range(1, 4):
        rig.dispatcher.dispatch([delivery(number)])
    go.set()
    wait_until(lambda: len(rig.settler) == 4)
    assert calls == [[0], [1, 2, 3]]


@BOTH
def test_each_message_has_its_outcome(rig, runs):
    runs(lambda messages: [None, Retry(delay=9, error="later"), Bury("no"), Ack()], range(4))
    outcomes = rig.settled()
    assert outcomes == {"0": ACK, "1": Retry(timedelta(seconds=9), "later"), "2": Bury("no"), "3": ACK}


@BOTH
def test_only_the_message_that_fails_is_charged(rig, runs, caplog):
    calls = runs(fails_for(5), range(8))
    outcomes = rig.settled()
    assert {data for data, outcome in outcomes.items() if outcome != ACK} == {"5"}
    assert outcomes["5"].error == "ValueError: poison"
    assert all(sum(data in call for call in calls) <= 4 for data in range(8))
    (split,) = [record.message for record in caplog.records if "halves" in record.message]
    assert "Handler h failed for 8 messages" in split


def test_an_error_that_buries_does_so_when_its_message_is_alone(rig, runs):
    runs(fails_for(1), range(3), retry=RetryPolicy(bury_on=[ValueError]))
    outcomes = rig.settled()
    assert isinstance(outcomes.pop("1"), Bury)
    assert outcomes == {"0": ACK, "2": ACK}


def test_what_fails_for_all_is_retried_without_a_charge(rig, runs, caplog):
    calls = runs(fails_for(*range(16)), range(16))
    assert len(calls) == 9
    settlements = rig.settler._take()
    assert len(settlements) == 16
    assert all(each.uncharged and isinstance(each.outcome, Retry) for each in settlements)
    assert all(500 < each.delay_ms <= 1000 for each in settlements)
    (line,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "failed for 16 messages" in line.message
    assert isinstance(line.exc_info[1], ValueError)


@pytest.mark.parametrize(("attempts", "uncharged", "delays"), [(2, True, (3000, 4000)), (3, False, (500, 1000))])
def test_without_a_charge_it_is_retried_later_and_later_while_it_has_attempts(rig, runs, attempts, uncharged, delays):
    story = "\n".join(['{"attempt":1,"ending":"retried"}'] * attempts)
    runs(fails_for(*range(4)), [delivery(data)._replace(history=story) for data in range(4)])
    settlements = rig.settler._take()
    assert len(settlements) == 4
    assert all(isinstance(each.outcome, Retry) and each.uncharged is uncharged for each in settlements)
    assert all(delays[0] <= each.delay_ms <= delays[1] for each in settlements)


@pytest.mark.parametrize("returned", [True, [None, "x", None]])
def test_a_wrong_return_value_is_not_repeated_with_halves(rig, runs, returned, caplog):
    calls = runs(lambda messages: returned, range(3))
    assert calls == [[0, 1, 2]]
    outcomes = rig.settled()
    assert len(outcomes) == 3
    assert all("mq_django.errors.InvalidOutcomes" in outcome.error for outcome in outcomes.values())
    assert any(isinstance(record.exc_info[1], InvalidOutcomes) for record in caplog.records if record.exc_info)


@BOTH
def test_a_wrong_return_value_counts_as_what_a_single_message_would_have_raised(rig, runs):
    runs(lambda messages: True, range(2), retry=RetryPolicy(bury_on=[InvalidOutcomes]))
    assert {type(outcome) for outcome in rig.settled().values()} == {Bury}


def test_what_has_expired_is_left_out(rig, runs):
    past = clock.now_ms() - 1000
    calls = runs(lambda messages: None, [0, delivery(1, expires_ms=past), 2])
    assert calls == [[0, 2]]
    outcomes = rig.settled()
    assert isinstance(outcomes.pop("1"), Expire | Bury)
    assert outcomes == {"0": ACK, "2": ACK}


@BOTH
def test_what_was_cancelled_is_left_out_before_each_call(rig, runs):
    rig.executor.cancels = Cancels(rig.store)
    rig.executor.cancels.is_current = lambda delivery: True
    items = [delivery(data) for data in range(4)]

    def does(messages):
        # Meanwhile somebody cancels two of them.
        request = CancelRequest(LAST_MS, force=False)
        rig.executor.cancels.ids = {items[0].message.id: request, items[2].message.id: request}
        rig.executor.cancels.any = True
        if len(messages) == 4:
            raise ValueError("once")

    calls = runs(does, items)
    assert calls == [[0, 1, 2, 3], [1], [3]]
    outcomes = rig.settled()
    assert isinstance(outcomes["0"], Cancel)
    assert isinstance(outcomes["2"], Cancel)
    assert outcomes["1"] == outcomes["3"] == ACK


def test_what_must_not_run_is_handed_back(rig, runs):
    rig.shared_state.set_paused(0, True)
    assert runs(lambda messages: None, range(3)) == []
    assert rig.settled() == dict.fromkeys("012", HandBack())


@BOTH
def test_what_runs_is_in_the_shared_state(rig, runs):
    seen = []

    def does(messages):
        seen.append(
            [(running.receipt.entry, running.deadline - running.since) for running in rig.shared_state.running()]
        )
        if len(messages) == 4:
            raise ValueError("once")

    items = [delivery(data) for data in range(4)]
    runs(does, items, timeout=timedelta(seconds=5))
    entries = [item.entry for item in items]
    assert [[entry for entry, _ in each] for each in seen] == [entries, entries[:2], entries[2:]]
    assert all(seconds == pytest.approx(5.0) for each in seen for _, seconds in each)
    wait_until(lambda: not rig.shared_state.running())
    results = rig.shared_state.results()
    assert results == {Receipt(0, 0, entry): HANDLED for entry in entries}


def test_a_failure_is_in_the_shared_state(rig, runs):
    items = [delivery(data) for data in range(2)]
    runs(fails_for(1), items)
    results = rig.shared_state.results()
    assert results == {Receipt(0, 0, items[0].entry): HANDLED, Receipt(0, 0, items[1].entry): FAILED}


@BOTH
def test_each_message_has_its_signals(rig, runs):
    with hears(handler_started, handler_finished) as told:
        runs(fails_for(1), range(2))
        wait_until(lambda: len(told) == 4)
    assert [(given["signal"], given["message"].data) for given in told] == [
        *((handler_started, 0), (handler_started, 1)),
        *((handler_finished, 0), (handler_finished, 1)),
    ]
    assert [type(given["outcome"]) for given in told[2:]] == [Ack, Retry]


def test_a_message_has_its_share_of_the_time(rig, runs, monkeypatch):
    now = [time.monotonic()]
    monkeypatch.setattr("mq_django.consumers.worker.call_path.time", SimpleNamespace(monotonic=lambda: now[0]))

    def takes_long(messages):
        now[0] += 8.0

    runs(takes_long, range(4))
    assert [(round(each.micros, -3), each.together) for each in rig.settler._take()] == [(2_000_000, 4)] * 4


def test_a_handler_of_batches_reports_no_progress(rig, runs):
    found = []

    def does(messages):
        with pytest.raises(NotInHandler, match="batch="):
            progress(1, 2)
        found.append(True)

    runs(does, range(2))
    assert found == [True]


@BOTH
def test_a_late_call_is_interrupted_and_made_again_with_halves(rig, kind):
    calls = []

    def late(messages):
        calls.append(data_of(messages))
        while 2 in data_of(messages):
            time.sleep(0.01)

    async def alate(messages):
        calls.append(data_of(messages))
        while 2 in data_of(messages):
            await asyncio.sleep(0.01)

    is_async = kind == "coroutine"
    rig.handle("n", alate if is_async else late, is_async=is_async, batch=10, where="h", timeout=timedelta(seconds=0.2))
    rig.start()
    rig.dispatcher.dispatch([delivery(data) for data in range(3)])
    wait_until(lambda: rig.threads.interrupt_late() or len(rig.settler) == 3)
    outcomes = rig.settled()
    assert HandlerTimeout.__name__ in outcomes.pop("2").error
    assert outcomes == {"0": ACK, "1": ACK}


@pytest.mark.django_db(transaction=True)
def test_a_transaction_that_is_left_open_counts_as_a_failure(rig, runs):
    def does(messages):
        connection.ensure_connection()
        if 1 in data_of(messages):
            transaction.atomic().__enter__()

    runs(does, range(2))
    outcomes = rig.settled()
    assert outcomes["0"] == ACK
    assert "left a transaction" in outcomes["1"].error


@pytest.mark.django_db(transaction=True)
def test_outcomes_that_ack_nothing_stay_when_a_transaction_is_left_open(rig, runs):
    def does(messages):
        connection.ensure_connection()
        transaction.atomic().__enter__()
        return [Bury("no"), Retry(error="later")]

    assert runs(does, range(2)) == [[0, 1]]
    assert [outcome.error for outcome in rig.settled().values()] == ["no", "later"]


def test_messages_wait_for_others_of_their_batch(rig, runs):
    rig.batches.start()
    try:
        began = time.monotonic()
        assert runs(lambda messages: None, range(3), linger=0.1) == [[0, 1, 2]]
        assert time.monotonic() - began >= 0.1
    finally:
        rig.batches.stop()
        assert rig.batches.join(10)


def test_a_full_batch_waits_for_nothing(rig, runs):
    # Nobody looks at the time.
    assert runs(lambda messages: None, range(3), batch=3, linger=60.0) == [[0, 1, 2]]


def test_in_a_quarantine_each_message_runs_at_once(rig, runs):
    rig.dispatcher._isolate = None
    assert runs(lambda messages: None, [0], linger=60.0) == [[0]]


def test_what_waits_is_handed_back_when_the_process_stops(rig):
    rig.handle("n", print, batch=10, linger=60.0)
    rig.dispatcher.dispatch([delivery(data) for data in range(3)])
    rig.batches.hand_back()
    assert rig.settled() == dict.fromkeys("012", HandBack())


def test_a_stop_ends_the_calls_with_halves(rig, runs):
    def does(messages):
        rig.settler.reports.stopping.set()
        raise ValueError

    assert runs(does, range(4)) == [[0, 1, 2, 3]]
    assert rig.settled() == dict.fromkeys("0123", HandBack())


def test_code_without_batches_in_the_supervisor_means_one_message_a_call(mq_settings):
    rig = Rig(threads=1)
    calls = []
    rig.handle("n", lambda messages: calls.append(data_of(messages)), batch=100)
    rig.start()
    try:
        rig.dispatcher.dispatch([delivery(data) for data in range(3)])
        wait_until(lambda: len(rig.settler) == 3)
    finally:
        rig.close()
    assert calls == [[0], [1], [2]]
