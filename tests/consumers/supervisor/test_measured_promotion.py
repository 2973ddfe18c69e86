"""How late a promotion is, as far as the supervisor knew the due time."""

import time

import pytest

from mq_django.consumers.measuring import Measurers
from mq_django.consumers.supervisor.promoter import measured_promotions
from mq_django.stores.base import Promoted
from tests.waiting import wait_until


class Recorder:
    def __init__(self):
        self.lags = []

    def promoted(self, queue, seconds):
        self.lags.append((queue, seconds))

    def lost_redis(self):
        pass


@pytest.fixture
def recorder(monkeypatch):
    found = Recorder()
    monkeypatch.setattr(Measurers, "supervisor", found)
    return found


@pytest.fixture
def promote(store, recorder, monkeypatch):
    """Promote with these results, at these times on the monotonic clock, and return the lags."""

    def promote(*steps):
        (measured,) = measured_promotions({0: store}).values()
        for moment, moved, next_us in steps:
            monkeypatch.setattr(type(store), "promote", lambda _, limit, r=(moved, next_us): Promoted(*r, False, 0))
            monkeypatch.setattr(time, "monotonic", lambda moment=moment: moment)
            measured.promote(limit=100)
        monkeypatch.undo()
        return [(queue, round(seconds, 6)) for queue, seconds in recorder.lags]

    return promote


def test_a_message_whose_due_time_is_known(promote):
    assert promote((10.0, 0, 2_000_000), (12.003, 1, None)) == [("default", 0.003)]


def test_an_unknown_due_time_is_not_measured(promote):
    assert promote((10.0, 1, None), (20.0, 1, None)) == []


def test_a_message_that_was_due_earlier_than_known_is_not_measured(promote):
    assert promote((10.0, 0, 9_000_000), (11.0, 1, 8_000_000)) == []


def test_messages_of_a_second_batch_were_due_with_the_first(promote):
    found = promote((10.0, 0, 2_000_000), (12.1, 100, 0), (12.2, 100, 0), (12.3, 5, None))
    assert found == [("default", 0.1), ("default", 0.2), ("default", 0.3)]


def test_what_another_supervisor_has_promoted_is_not_measured(promote):
    assert promote((10.0, 0, 2_000_000), (12.1, 0, None)) == []


def test_real_promotions(store, recorder, publish):
    (measured,) = measured_promotions({0: store}).values()

    def not_due_at_a_look():
        publish(delay=0.1)
        return measured.promote(limit=100).moved == 0

    # A machine that stands still meanwhile makes it due before its time is known.
    wait_until(not_due_at_a_look)
    time.sleep(0.2)
    assert measured.promote(limit=100).moved == 1
    ((queue, seconds),) = recorder.lags
    assert queue == "default"
    assert 0.03 < seconds < 5
