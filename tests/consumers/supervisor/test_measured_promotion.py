"""How late a promotion is, as far as the supervisor knew the due time."""

import time

import pytest

from mq_django.consumers.measuring import Measurers
from mq_django.consumers.supervisor.promoter import measured_promotions
from mq_django.stores.base import Promoted


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
