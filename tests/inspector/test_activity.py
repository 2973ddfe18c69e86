"""Counters to rates and times: arithmetic."""

from math import inf

import pytest

from mq_django.inspector.queue_view import WINDOW, Activity, Period, activity_of, activity_of_hour, counts, percentile
from mq_django.stores.counters import BUCKETS, bucket

HOUR = 500_000


def happened(*, minute: int, second: int = 0, this_hour=None, last_hour=None) -> Activity:
    now_ms = (HOUR * 3600 + minute * 60 + second) * 1000
    return activity_of_hour(this_hour or {}, last_hour or {}, now_ms=now_ms)


def test_minutes_of_two_hours_make_one_window():
    found = happened(
        minute=10,
        this_hour={b"10|handled|": b"4", b"0|handled|": b"5", b"10|handled|a": b"3"},
        last_hour={b"59|handled|": b"7", b"11|handled|": b"9", b"10|handled|": b"100"},
    )

    assert len(found.handled) == WINDOW
    # The running minute last; what is an hour old has left the window.
    assert found.handled[-1] == 4
    assert found.handled[-11] == 5
    assert found.handled[-12] == 7
    assert found.handled[0] == 9
    assert sum(found.handled) == 4 + 5 + 7 + 9
    assert found.since_ms == happened(minute=10).since_ms == (HOUR * 60 - 49) * 60_000


def test_fields_that_make_no_sense_break_nothing(subtests):
    for field in [b"", b"x|handled|a", b"1", b"1|handled", b"-1|handled|a", b"\xff|handled|a", b"1|nonsense|a"]:
        with subtests.test(field=field):
            assert sum(happened(minute=1, this_hour={field: b"1"}).buried) == 0
            assert list(counts({field: b"x"})) == []


def test_a_rate_is_of_the_last_sixty_seconds(subtests):
    for second, running, rate in [(0, b"0", 60), (30, b"10", 40), (54, b"20", 26)]:
        with subtests.test(second=second, running=running, rate=rate):
            fields = {b"5|handled|": running, b"4|handled|": b"60"}

            found = happened(minute=5, second=second, this_hour=fields)

            assert found.per_minute("handled") == pytest.approx(rate)


def test_percentiles_lie_in_the_bucket_of_their_time():
    buckets = [0] * BUCKETS
    for micros in (150, 300, 300, 300, 6000):
        buckets[bucket(micros)] += 1

    assert 200e-6 <= percentile(buckets, 0.5) <= 400e-6
    assert 3.2e-3 <= percentile(buckets, 0.95) <= 6.4e-3


def test_no_times_have_no_percentile_and_endless_ones_are_endless():
    assert percentile([0] * BUCKETS, 0.5) is None
    assert percentile([0] * (BUCKETS - 1) + [1], 0.5) == inf


def test_days_are_counted_by_the_hour_with_the_running_one_last():
    hour = 3_600_000
    now_ms = 100 * 24 * hour + 2 * hour + hour // 4
    days = {
        100 * 24: {b"2|handled|": b"5", b"1|handled|": b"7", b"2|handled|welcome": b"5", b"2|t3|welcome": b"5"},
        99 * 24: {b"3|published|": b"1", b"2|published|": b"9"},
    }

    found = activity_of(days, Period.up_to(now_ms, slot=60, steps=24))

    assert (len(found.handled), found.minutes, found.elapsed) == (24, 60, 0.25)
    assert found.handled[-2:] == (7, 5)
    assert found.since_ms == 99 * 24 * hour + 3 * hour
    # One o'clock yesterday is 25 hours ago.
    assert (found.published[0], sum(found.published)) == (1, 1)
    assert [name.name for name in found.names] == ["welcome"]
    assert found.took.p50 is None
    assert found.names[0].took.p50 is not None
