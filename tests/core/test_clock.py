"""The wall clock, which tests can move."""

import time

import pytest

from mq_django.core import clock
from mq_django.core.publication import publication
from mq_django.core.queue_configs import QueueConfig

#: Nanoseconds since 1970, with digits in every unit.
NOW_NS = 2_000_000_000_123_456_789


@pytest.fixture
def stopped(monkeypatch):
    """Let the machine's clock stand, and end without a shift."""
    monkeypatch.setattr(time, "time_ns", lambda: NOW_NS)
    monkeypatch.setattr(clock, "_shift", 0)


def test_it_is_the_machines():
    before = time.time_ns()
    found = (clock.now() * 1e9, clock.now_ms() * 1_000_000, clock.now_us() * 1000)
    after = time.time_ns()
    # Milliseconds are cut off, and a float has a quarter of a microsecond.
    assert all(before - 1_000_000 <= one <= after + 1000 for one in found)


def test_it_is_told_in_three_units(stopped):
    assert (clock.now(), clock.now_ms(), clock.now_us()) == (2_000_000_000.1234567, 2_000_000_000_123, NOW_NS // 1000)


def test_a_shift_moves_all_of_them(stopped, subtests):
    for seconds in [3600, -3600, 0.25, 0]:
        with subtests.test(seconds=seconds):
            clock.set_shift(0)
            before = (clock.now(), clock.now_ms(), clock.now_us())
            clock.set_shift(seconds)
            now = (clock.now(), clock.now_ms(), clock.now_us())
            moved = [later - earlier for earlier, later in zip(before, now, strict=True)]
            assert moved == [pytest.approx(seconds, abs=1e-6), seconds * 1000, seconds * 1_000_000]


def test_a_shift_takes_the_place_of_the_one_before(stopped):
    clock.set_shift(60)
    clock.set_shift(5)
    assert clock.now_ms() == NOW_NS // 1_000_000 + 5000


def test_what_is_published_has_the_moved_time(stopped):
    clock.set_shift(3600)
    made = publication(QueueConfig(name="emails"), "welcome", 1, expires=60)
    assert made.message.published_ms == NOW_NS // 1_000_000 + 3_600_000
    assert made.message.expires_ms == made.message.published_ms + 60_000
