from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone

from mq_django.core import offsets
from mq_django.core.clock import aware, read_duration
from mq_django.core.publication import due, expiry

NAIVE = datetime(2026, 7, 1, 12)  # noqa: DTZ001 - this is what is tested
IN_TOKYO = datetime(2026, 7, 1, 3, tzinfo=UTC)
MS = int(IN_TOKYO.timestamp() * 1000)


@pytest.fixture
def tokyo():
    with timezone.override(ZoneInfo("Asia/Tokyo")):
        yield


def test_a_datetime_without_a_time_zone_is_in_djangos_current_one(tokyo):
    assert aware(NAIVE) == IN_TOKYO


def test_a_datetime_with_a_time_zone_keeps_it(tokyo):
    assert aware(IN_TOKYO) is IN_TOKYO


def test_without_use_tz_it_is_in_the_projects(settings):
    settings.USE_TZ, settings.TIME_ZONE = False, "Asia/Tokyo"
    assert due(None, NAIVE) == (None, MS)
    assert abs(due(None, timezone.now())[1] - datetime.now(UTC).timestamp() * 1000) < 5000


def test_deliver_at_expires_and_offsets_have_one_rule(tokyo):
    assert (due(None, NAIVE)[1], expiry(NAIVE, 0), offsets.milliseconds(NAIVE)) == (MS, MS, MS)


def test_a_duration_is_a_timedelta_or_seconds(subtests):
    for value in [90, 90.0, timedelta(seconds=90)]:
        with subtests.test(value=value):
            assert read_duration(value) == timedelta(seconds=90)
            assert expiry(value, 1000) == 91_000
            assert due(value, None) == (90_000, None)


def test_anything_else_is_no_duration(subtests):
    for value in ["90", None, True, float("nan"), float("inf"), 10**300]:
        with subtests.test(value=value), pytest.raises(TypeError, match="a timedelta or a number of seconds"):
            read_duration(value)
