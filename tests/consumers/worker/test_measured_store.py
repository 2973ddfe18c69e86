"""A measured store does what the store does, and reports it."""

import pytest

from mq_django.consumers.measuring import Measurers
from mq_django.consumers.worker.measured_store import MeasuredStore, measured
from mq_django.core.messages import ACK, Retry
from mq_django.stores.base import Settlement


class Recorder:
    def __init__(self):
        self.reports = []

    def fetched(self, queue, messages, seconds):
        self.reports.append(("fetched", queue, messages, seconds is None))

    def woken(self, queue, seconds):
        self.reports.append(("woken", queue, seconds < 600))

    def settled(self, queue, settlements, seconds):
        self.reports.append(("settled", queue, len(settlements), 0 < seconds < 600))


@pytest.fixture
def recorder(monkeypatch):
    found = Recorder()
    monkeypatch.setattr(Measurers, "consumer", found)
    return found


@pytest.fixture
def measured_store(store, recorder):
    store.create_groups()
    found = measured(store)
    assert isinstance(found, MeasuredStore)
    return found


def test_fetches_that_return_messages_are_reported(measured_store, recorder, publish):
    assert not measured_store.take("me", count=5)
    assert recorder.reports == []
    publish()
    publish()
    assert len(measured_store.take("me", count=5)) == 2
    assert recorder.reports == [("fetched", "default", 2, False)]


def test_a_message_that_was_ready_before_the_read_does_not_count_as_a_wake_up(measured_store, recorder, publish):
    publish()
    assert len(measured_store.fetch("me", count=5, block_ms=100)) == 1
    assert recorder.reports == [("fetched", "default", 1, True)]


def test_outcomes_are_reported_with_the_trip_that_settles_them(measured_store, recorder, publish):
    for _ in range(3):
        publish()
    held = measured_store.take("me", count=2)
    recorder.reports.clear()
    assert measured_store.settle("me", [Settlement(held[0], ACK)]) == []
    fetched = measured_store.settle_and_take("me", [Settlement(held[1], Retry())], count=5)
    assert len(fetched.deliveries) == 1
    assert recorder.reports == [
        ("settled", "default", 1, True),
        ("settled", "default", 1, True),
        ("fetched", "default", 1, False),
    ]
