"""Schedules by intervals, and what is said without croniter."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from mq_django.core import schedules
from mq_django.core.schedules import Scheduled, cron, every
from mq_django.errors import ConfigurationError, MissingDependency

BERLIN = ZoneInfo("Europe/Berlin")


def test_intervals_count_from_1970_so_that_all_processes_agree():
    start = datetime(2026, 11, 20, 10, 3, 7, tzinfo=UTC)
    assert every(minutes=10).after(start, BERLIN) == datetime(2026, 11, 20, 10, 10, tzinfo=UTC)
    assert every(timedelta(hours=6)).after(start, BERLIN) == datetime(2026, 11, 20, 12, tzinfo=UTC)
    on_time = datetime(2026, 11, 20, 10, 10, tzinfo=UTC)
    assert every(minutes=10).after(on_time, BERLIN) == on_time + timedelta(minutes=10)
    assert str(every(minutes=10)) == "every 0:10:00"


def test_what_is_no_interval_is_refused(subtests):
    for parts in [{"seconds": 0.5}, {"minutes": -1}, {}, {"moons": 1}, {"days": 1e12}]:
        with subtests.test(parts=parts), pytest.raises(ConfigurationError, match="every"):
            every(**parts)


class Counted:
    """Every second, with the number of times that it was asked."""

    asked = 0

    def after(self, moment, local):
        self.asked += 1
        return every(1).after(moment, local)


def test_the_last_tick_before_the_end_is_found_in_few_steps_however_long_ago_it_was(subtests):
    for ended in [timedelta(0), timedelta(days=3650)]:
        with subtests.test(ended=ended):
            now, when = datetime(2026, 11, 20, tzinfo=UTC), Counted()
            ends = now - ended
            entry = Scheduled(name="n", queue="q", message="m", data=1, when=when, ends=ends)
            first_ms, now_ms = (round(moment.timestamp() * 1000) for moment in (ends - timedelta(days=365), now))
            assert next(entry.due_ms(first_ms, now_ms, UTC)) == round(ends.timestamp() * 1000)
            assert when.asked < 100


def test_without_croniter_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(schedules, "_croniter", lambda: None)
    with pytest.raises(MissingDependency, match="mq-django\\[schedules\\]"):
        cron("* * * * *")
    assert every(minutes=1).after(datetime(2026, 1, 1, tzinfo=UTC), UTC)


def test_an_interval_may_be_a_number_of_seconds(subtests):
    for period in [5, 5.0, timedelta(seconds=5)]:
        with subtests.test(period=period):
            assert every(period) == every(seconds=5)


def test_what_is_not_an_interval_is_refused_with_what_it_may_be(subtests):
    for period in ["5", True, object(), 0.5, float("nan")]:
        with subtests.test(period=period), pytest.raises(ConfigurationError, match=r"every\(\) takes"):
            every(period)


def test_an_interval_is_given_once():
    with pytest.raises(ConfigurationError, match="not both"):
        every(5, minutes=1)
