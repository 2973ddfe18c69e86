from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone

from mq_django.core import offsets
from mq_django.core.clock import aware, read_duration
from mq_django.core.jsontext import LAST_MS
from mq_django.core.publish_checks import due, expiry
from mq_django.errors import InvalidMessage, InvalidOffset
from mq_django.task_backend.compat import InvalidTask
from tests.testapp.tasks import noop

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
    assert aware(IN_TOKYO) == IN_TOKYO


def test_a_datetime_beyond_the_last_year_of_utc_is_refused(subtests):
    beyond = datetime(9999, 12, 31, 23, 30, tzinfo=timezone.get_fixed_timezone(-60))
    with subtests.test("typed"), pytest.raises(OverflowError):
        aware(beyond)
    with subtests.test("deliver_at"), pytest.raises(InvalidMessage, match="in the years 1 to 9999 of UTC"):
        due(None, beyond)


def test_the_last_moment_of_a_datetime_is_a_valid_date():
    never = datetime.max.replace(tzinfo=UTC)
    assert (due(None, never)[1], expiry(never, 0)) == (LAST_MS, LAST_MS)


def test_code_must_pass_a_datetime_with_a_time_zone(tokyo, subtests):
    said = "must be an aware datetime: .*make_aware"
    with subtests.test("deliver_at"), pytest.raises(InvalidMessage, match=said):
        due(None, NAIVE)
    with subtests.test("expires"), pytest.raises(InvalidMessage, match=said):
        expiry(NAIVE, 0)
    with subtests.test("a position"), pytest.raises(InvalidOffset, match=said):
        offsets.before(NAIVE)
    with subtests.test("run_after"), pytest.raises(InvalidTask, match="must be an aware datetime"):
        noop.using(run_after=NAIVE)


def test_in_a_project_without_use_tz_a_naive_datetime_is_in_its_time_zone(settings):
    settings.USE_TZ, settings.TIME_ZONE = False, "Asia/Tokyo"
    assert (due(None, NAIVE)[1], expiry(NAIVE, 0), offsets.milliseconds(NAIVE)) == (MS, MS, MS)
    assert noop.using(run_after=NAIVE).run_after == IN_TOKYO


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
