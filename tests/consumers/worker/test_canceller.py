"""Handlers are interrupted: the right one, once, and not while it must not be."""

import asyncio
import threading
import time

import pytest

from mq_django import handler, is_cancelled, queues, uninterrupted
from mq_django.conf import get_config
from mq_django.consumers.worker.breakers import Cancels
from mq_django.consumers.worker.progress import Canceller
from mq_django.consumers.worker.stacks import SlotStacks, StackAnswers
from mq_django.core.jsontext import LAST_MS
from mq_django.core.messages import CANCEL, Ack, Cancel, Delivery, HandBack, Message
from mq_django.errors import ConnectionLost, HandlerCancelled
from mq_django.stores.base import CancelRequest
from mq_django.stores.control import StackRequests
from tests.consumers.rig import running
from tests.waiting import wait_until
from tests.working import run


@pytest.fixture
def rig(mq_settings):
    with running(threads=2) as found:
        yield found


def test_what_was_cancelled_before_its_consumer_started_does_not_run(rig):
    """Messages may be fetched before the canceller has read the requests."""
    rig.store.cancel_running("m")
    executor = rig.executor
    executor.cancels = Cancels(rig.store)
    refused = {each: executor.refusal(Delivery(Message(each, "n", None, "default"), 0, b"1-1", b"")) for each in "mo"}
    assert refused == {"m": Cancel("Cancelled before it started"), "o": None}
    assert set(executor.cancels.ids) == {"m"}


@pytest.mark.parametrize(
    ("published", "entered", "outcome"),
    [
        (0, 0, Cancel("Cancelled before it started")),
        # The clock of who has published it is fast.
        (60_000, 0, Cancel("Cancelled before it started")),
        # Its retry has a new entry.
        (0, 60_000, Cancel("Cancelled before it started")),
        # The one that was to be cancelled had ended before, and its id is used again.
        (1, 1, None),
    ],
)
def test_a_request_is_about_what_was_published_before_it(rig, redis_client, published, entered, outcome):
    rig.store.cancel_running("m")
    asked = int(redis_client.zscore(rig.store.keys.cancels, "m"))
    message = Message("m", "n", None, "default", published_ms=asked + published)
    rig.executor.cancels = Cancels(rig.store)
    assert rig.executor.refusal(Delivery(message, 0, b"%d-0" % (asked + entered), b"")) == outcome


#: A request that was made after everything here was published.
LATER = CancelRequest(LAST_MS, force=False)


class Work:
    """A handler of one message, and a canceller."""

    def __init__(self, rig, call, *, message_id="m", is_async=False):
        self.rig, self.begun, self.go = rig, threading.Event(), threading.Event()
        self.cancels = Cancels(rig.store)
        self.places = [*rig.threads.slots, *rig.loop.slots]
        stacks = SlotStacks(rig.threads, rig.loop, rig.shared_state)
        answers = StackAnswers(StackRequests(rig.config, rig.session), "me", stacks.take)
        self.canceller = Canceller({0: self.cancels}, {0: answers}, rig.shared_state, self.places)
        self.delivery = rig.put(lambda _: call(self), message_id=message_id, is_async=is_async)
        wait_until(self.begun.is_set)

    def cancel(self, message_id="m", *, force=False):
        self.rig.store.cancel_running(message_id, force=force)
        self.rig.shared_state.note_requests(0)
        self.canceller.run_once()

    def outcome(self):
        (found,) = self.rig.outcomes()
        return found


def nap(work):
    work.begun.set()
    while not work.go.is_set():
        time.sleep(0.005)


async def nap_async(work):
    work.begun.set()
    while not work.go.is_set():
        await asyncio.sleep(0.005)


@pytest.mark.parametrize(("call", "is_async"), [(nap, False), (nap_async, True)])
def test_a_message_is_cancelled_and_no_other_is(rig, call, is_async):
    work = Work(rig, call, is_async=is_async)
    work.cancel()
    assert work.outcome() is CANCEL
    other = Work(rig, call, message_id="other", is_async=is_async)
    other.cancel()
    other.go.set()
    assert isinstance(other.outcome(), Ack)


def test_what_has_ended_first_is_handled(rig):
    work = Work(rig, nap)
    work.go.set()
    assert isinstance(work.outcome(), Ack)
    work.cancel()
    again = Work(rig, nap, message_id="other")
    again.go.set()
    assert isinstance(again.outcome(), Ack)


def test_what_a_handler_catches_or_raises_instead_still_cancels(rig):
    seen = []

    def broad(work):
        try:
            nap(work)
        except Exception:  # noqa: BLE001
            seen.append("kept")
        except BaseException as error:
            seen.append(is_cancelled())
            raise ValueError("wrapped") from error

    work = Work(rig, broad)
    work.cancel()
    assert work.outcome() is CANCEL
    assert seen == [True]


def guarded(steps):
    def call(work):
        with uninterrupted(), uninterrupted():
            nap(work)
            steps.append(is_cancelled())
        steps.append("second")

    return call


def guarded_async(steps):
    async def call(work):
        with uninterrupted():
            await nap_async(work)
            steps.append(is_cancelled())
        steps.append("second")

    return call


@pytest.mark.parametrize(("guard", "is_async"), [(guarded, False), (guarded_async, True)])
def test_a_block_is_ended_first(rig, guard, is_async):
    steps = []
    work = Work(rig, guard(steps), is_async=is_async)
    work.cancel()
    wait_until(lambda: any(slot.cancelled for slot in work.places))
    assert not len(rig.settler)
    assert rig.shared_state.late(time.monotonic()) == set()
    work.go.set()
    assert work.outcome() is CANCEL
    assert steps == [True]


def test_what_a_handler_raises_itself_is_no_cancelling(rig):
    def raises(work):
        work.begun.set()
        raise HandlerCancelled

    assert not isinstance(Work(rig, raises).outcome(), Cancel)


@pytest.mark.parametrize(("found", "outcome"), [(False, Ack), (ConnectionLost("away"), HandBack)])
def test_a_request_that_is_gone_or_unknown_cancels_nothing(rig, monkeypatch, found, outcome):
    def is_cancelled(delivery):
        if isinstance(found, Exception):
            raise found
        return found

    rig.executor.cancels = Cancels(rig.store)
    rig.executor.cancels.ids = {"m": LATER}
    monkeypatch.setattr(rig.store, "is_cancelled", is_cancelled)
    rig.put(lambda _: None, message_id="m")
    assert [type(each) for each in rig.outcomes()] == [outcome]


def test_a_redriven_message_is_not_interrupted(rig):
    work = Work(rig, nap)
    work.cancels.ids = {"m": LATER}
    work.canceller._seen = {0: rig.shared_state.requests(0)}
    work.canceller.run_once()
    work.go.set()
    assert isinstance(work.outcome(), Ack)


def test_a_later_message_with_the_same_id_is_not_interrupted(rig):
    work = Work(rig, nap)
    work.cancels.is_current = lambda delivery: True
    work.cancels.ids = {"m": CancelRequest(0, force=True)}
    work.canceller._seen = {0: rig.shared_state.requests(0)}
    work.canceller.run_once()
    assert not any(slot.cancelled for slot in work.places)
    work.go.set()
    assert isinstance(work.outcome(), Ack)


def test_an_id_whose_message_had_ended_when_it_was_cancelled_may_be_used_again(handlers, redis_client):
    seen = []
    handler("default", "export")(lambda message: seen.append(message.data))
    for data in ("first", "second"):
        queues["default"].publish("export", data, message_id="export-7")
        run()
        queues["default"].cancel("export-7", running=True)
        # The next one is published later.
        redis_client.zincrby(get_config().queue("default").keys.cancels, -1, "export-7")
    assert seen == ["first", "second"]


def test_by_force_the_delivery_is_late(rig):
    work = Work(rig, nap)
    (with_block,) = (slot for slot in rig.threads.slots if slot.running())
    with_block.guard()
    work.cancel(force=True)
    assert rig.shared_state.late(time.monotonic()) == {rig.executor.receipt(work.delivery)}
    work.go.set()
    assert isinstance(work.outcome(), Ack)


def test_outside_of_a_handler_nothing_is_cancelled():
    with uninterrupted():
        assert is_cancelled() is False
