"""Timeouts and cancelling: they interrupt a handler, and neither its commit nor what follows."""

import asyncio
import threading
import time
from datetime import timedelta

import pytest
from asgiref.sync import sync_to_async
from django.db import connections, transaction

from mq_django.conf import get_config
from mq_django.consumers.worker.once_call import OnceCall
from mq_django.core.messages import ACK, CANCEL, Delivery, Message, Retry
from mq_django.core.running_handler import interruptible, is_cancelled, uninterrupted
from mq_django.registry import Handler
from tests.inbox.conftest import on_each_database
from tests.waiting import wait_until

LIMIT = timedelta(minutes=1)


@pytest.fixture
def late(consumer):
    """Return a function that interrupts what runs as if an hour had passed."""

    def interrupt():
        for slot in consumer.rig.threads.slots:
            slot.interrupt_if_late(time.monotonic() + 3600)

    return interrupt


@pytest.fixture
def lingers(consumer, effects):
    """Return a handler that has an effect and goes on until it is interrupted, and an event that says that it runs."""
    begun, never = threading.Event(), threading.Event()

    def linger(message):
        effects.add(message)
        begun.set()
        # An interrupt waits for the end of a call.
        while not never.wait(0.01):
            pass

    return linger, begun


def cancel(consumer):
    """Cancel what a thread runs, as soon as it runs."""

    def earlier_outcome():
        for slot in consumer.rig.threads.slots:
            if (job := slot.running()) is not None:
                slot.cancel(job, force=False)
                return True
        return False

    wait_until(earlier_outcome)


@pytest.fixture
def held(monkeypatch, using):
    """Hold the next commit of the database: the events say that it has begun, and let it go on."""
    begun, goes_on = threading.Event(), threading.Event()
    wrapper = connections[using].__class__
    real = wrapper._commit

    def commit(connection):
        begun.set()
        assert goes_on.wait(60)
        return real(connection)

    monkeypatch.setattr(wrapper, "_commit", commit)
    return begun, goes_on


def test_a_timeout_rolls_back(consumer, effects, using, rows, late, lingers):
    linger, begun = lingers
    consumer.handle(linger, once=using, timeout=LIMIT)
    consumer.start()
    assert begun.wait(60)
    late()
    (outcome,) = consumer.outcomes(1)
    assert isinstance(outcome, Retry)
    assert "longer than its timeout" in outcome.error
    assert (effects.all(), rows()) == ([], [])


def test_a_cancelled_handler_is_rolled_back(consumer, effects, using, rows, lingers):
    consumer.handle(lingers[0], once=using)
    consumer.start()
    cancel(consumer)
    assert consumer.outcomes(1) == [CANCEL]
    assert (effects.all(), rows()) == ([], [])


def test_what_commits_is_neither_late_nor_cancelled(consumer, effects, using, held, late):
    commits, goes_on = held
    consumer.handle(effects.add, once=using, timeout=LIMIT)
    consumer.start()
    assert commits.wait(60)
    late()
    (slot,) = [slot for slot in consumer.rig.threads.slots if slot.job is not None]
    slot.cancel(slot.job, force=False)
    assert not slot.cancelled
    goes_on.set()
    assert consumer.outcomes(1) == [ACK]
    assert effects.all() == ["m"]


class TestCoroutines:
    def test_they_run_in_the_transaction_of_a_thread(self, consumer, effects, using, rows):
        async def add(message):
            await sync_to_async(effects.add)(message)
            return await sync_to_async(lambda: connections[using].in_atomic_block)()

        consumer.handle(add, once=using, is_async=True, keeps_result=True)
        assert consumer.run().result is True
        assert consumer.run() == consumer.run()
        assert effects.all() == ["m"]
        assert [row.message_id for row in rows()] == ["m"]

    def test_two_of_them_share_no_transaction(self, consumer, effects, using):
        both = threading.Barrier(2, timeout=60)

        async def add(message):
            await asyncio.to_thread(both.wait)
            await sync_to_async(effects.add)(message)
            if message.id == "bad":
                raise ValueError("broken")

        consumer.handle(add, once=using, is_async=True)
        consumer.start("good")
        consumer.start("bad")
        outcomes = consumer.outcomes(2)
        assert ACK in outcomes
        assert any(isinstance(outcome, Retry) for outcome in outcomes)
        assert effects.all() == ["good"]

    def test_a_timeout_ends_them_and_rolls_back(self, consumer, effects, using, rows):
        ended = []

        async def linger(message):
            try:
                await sync_to_async(effects.add)(message)
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                ended.append(message.id)
                raise

        consumer.handle(linger, once=using, is_async=True, timeout=timedelta(seconds=0.05))
        assert "longer than its timeout of 0.05 s" in consumer.run().error
        assert ended == ["m"]
        assert (effects.all(), rows()) == ([], [])

    def test_a_cancelled_one_ends_and_is_rolled_back(self, consumer, effects, using, rows):
        begun, ended = threading.Event(), []

        async def linger(message):
            await sync_to_async(effects.add)(message)
            begun.set()
            try:
                await asyncio.sleep(60)
            finally:
                ended.append(is_cancelled())

        consumer.handle(linger, once=using, is_async=True)
        consumer.start()
        assert begun.wait(60)
        cancel(consumer)
        assert consumer.outcomes(1) == [CANCEL]
        assert ended == [True]
        assert (effects.all(), rows()) == ([], [])

    def test_a_guarded_block_ends_before_it_is_cancelled(self, consumer, effects, using):
        steps, begun, cancelled = [], threading.Event(), threading.Event()

        async def linger(message):
            with uninterrupted():
                begun.set()
                await asyncio.to_thread(cancelled.wait, 60)
                await asyncio.sleep(0)
                steps.append("guarded")
            await asyncio.sleep(60)

        consumer.handle(linger, once=using, is_async=True)
        consumer.start()
        assert begun.wait(60)
        cancel(consumer)
        cancelled.set()
        assert consumer.outcomes(1) == [CANCEL]
        assert steps == ["guarded"]

    def test_outside_of_a_consumer_nothing_watches(self, effects, using, mq_settings):
        async def add(message):
            await sync_to_async(effects.add)(message)
            assert interruptible.get() is None

        entry = Handler(name="n", queue="default", call=add, is_async=True, once=using)
        message = Message("m", "n", 1, "default")
        call = OnceCall(entry, get_config().queue("default"))
        assert call([Delivery(message, 0, b"1-1", b"1")]) == ACK
        assert effects.all() == ["m"]


@on_each_database
def test_a_connection_that_breaks_during_the_commit_is_asked_again(consumer, effects, using, monkeypatch):
    """The commit is done, and its reply is lost."""
    lost, real = [], connections[using].__class__._commit

    def commit(connection):
        real(connection)
        if not lost:
            lost.append(True)
            raise connection.Database.OperationalError("the connection was lost")

    def commit_translated(connection):
        with connection.wrap_database_errors:
            commit(connection)

    consumer.handle(effects.add, once=using)
    monkeypatch.setattr(connections[using].__class__, "_commit", commit_translated)
    assert consumer.run() == ACK
    assert lost
    assert effects.all() == ["m"]
    assert not connections[using].in_atomic_block
    assert transaction.get_autocommit(using=using)
