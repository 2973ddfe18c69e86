"""Schedules by cron expressions."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise, product
from zoneinfo import ZoneInfo

import pytest

from mq_django.core.schedules import Scheduled, cron, every
from mq_django.errors import ConfigurationError

pytest.importorskip("croniter", reason="croniter is not installed")

BERLIN = ZoneInfo("Europe/Berlin")


def ticks(schedule, start, count, local=BERLIN):
    """Return the first ticks after a moment in Berlin, as Berlin's clocks show them, with the hour's offset."""
    moment, found = datetime.fromisoformat(start).replace(tzinfo=BERLIN), []
    for _ in range(count):
        moment = schedule.after(moment, local)
        assert moment.tzinfo is UTC
        found.append(moment.astimezone(BERLIN).strftime("%m-%d %H:%M%z")[:-2])
    return found


#: Expressions, moments in Berlin, and the ticks that follow.
TICKS = [
    ("*/5 * * * *", "2026-11-20T10:03", ["11-20 10:05+01", "11-20 10:10+01"]),
    ("*/5 * * * *", "2026-11-20T10:05", ["11-20 10:10+01"]),
    ("0 9 * * mon-fri", "2026-11-20T10:00", ["11-23 09:00+01", "11-24 09:00+01"]),
    ("30 3 1 * *", "2026-11-20T10:00", ["12-01 03:30+01", "01-01 03:30+01"]),
    ("0 0 29 2 *", "2026-11-20T10:00", ["02-29 00:00+01"]),
    ("@daily", "2026-11-20T10:00", ["11-21 00:00+01"]),
    ("0 0 L * *", "2027-02-01T00:00", ["02-28 00:00+01"]),
    ("0 12 * * 5#2", "2026-11-20T10:00", ["12-11 12:00+01"]),
    ("0 12 13 * 5", "2026-11-20T10:00", ["11-20 12:00+01", "11-27 12:00+01", "12-04 12:00+01"]),
    # Clocks go from 02:00 to 03:00 on 2026-03-29. What is left out comes as much later as they were set, and once.
    ("30 2 * * *", "2026-03-28T01:00", ["03-28 02:30+01", "03-29 03:30+02", "03-30 02:30+02"]),
    ("30 2,3 * * *", "2026-03-28T01:00", ["03-28 02:30+01", "03-28 03:30+01", "03-29 03:30+02", "03-30 02:30+02"]),
    ("0 */2 * * *", "2026-03-28T01:00", ["03-28 02:00+01", "03-28 04:00+01"]),
    ("0 3 * * *", "2026-03-28T01:00", ["03-28 03:00+01", "03-29 03:00+02", "03-30 03:00+02"]),
    ("*/30 * * * *", "2026-03-29T01:00", ["03-29 01:30+01", "03-29 03:00+02", "03-29 03:30+02", "03-29 04:00+02"]),
    # They go from 03:00 back to 02:00 on 2026-10-25. What names its hour is done once, what comes each hour in both.
    ("30 2 * * *", "2026-10-24T01:00", ["10-24 02:30+02", "10-25 02:30+02", "10-26 02:30+01"]),
    ("0 */2 * * *", "2026-10-24T01:00", ["10-24 02:00+02", "10-24 04:00+02"]),
    ("30 2,3 * * *", "2026-10-24T01:00", ["10-24 02:30+02", "10-24 03:30+02", "10-25 02:30+02", "10-25 03:30+01"]),
    ("30 * * * *", "2026-10-25T01:00", ["10-25 01:30+02", "10-25 02:30+02", "10-25 02:30+01", "10-25 03:30+01"]),
]


def test_ticks_are_those_of_the_expression_also_when_clocks_change(subtests):
    for expression, start, expected in TICKS:
        with subtests.test(expression=expression, start=start):
            assert ticks(cron(expression), start, len(expected)) == expected


#: Zones whose clocks change on different days, by an hour, by half an hour, and not at all.
ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "UTC"]
#: The days before clocks change in one of them.
CHANGES = [
    datetime(2026, month, day, tzinfo=UTC) for month, day in ((3, 7), (3, 28), (4, 4), (10, 3), (10, 24), (10, 31))
]
EXPRESSIONS = ["*/30 * * * *", "30 2 * * *", "0 */6 * * *", "15 1-3 * * *", "59 23 * * sun"]


def test_in_the_hour_that_comes_twice_nothing_is_done_again():
    second = datetime(2026, 10, 25, 2, 40, tzinfo=BERLIN, fold=1)
    assert cron("45 2 * * *").after(second, BERLIN) == datetime(2026, 10, 26, 1, 45, tzinfo=UTC)


def after(schedule, start, end):
    """Return the ticks of a time, and the first one after it."""
    found = [schedule.after(start, ZoneInfo("Asia/Tokyo"))]
    while found[-1] < end:
        found.append(schedule.after(found[-1], ZoneInfo("Asia/Tokyo")))
    return found


def test_when_clocks_change_ticks_only_rise_and_every_process_finds_the_same(subtests):
    for zone, expression, start in product(ZONES, EXPRESSIONS, CHANGES):
        schedule = cron(expression, timezone=zone)
        found = after(schedule, start, start + timedelta(days=2))
        with subtests.test(zone=zone, expression=expression, start=start):
            assert found == sorted(set(found))
            for tick in found[::9]:
                assert schedule.after(tick - timedelta(seconds=1), BERLIN) == tick
            if expression == "*/30 * * * *":
                assert {later - earlier for earlier, later in pairwise(found)} == {timedelta(minutes=30)}


def test_in_a_year_each_day_has_its_tick():
    start = datetime(2026, 3, 1, tzinfo=UTC)
    for zone in ZONES:
        # With the first one after the year.
        assert len(after(cron("30 2 * * *", timezone=zone), start, start + timedelta(days=365))) == 366, zone


def test_the_last_tick_up_to_now_is_found_however_many_were_missed(subtests):
    for away, when in product(
        [timedelta(0), timedelta(minutes=3), timedelta(hours=30), timedelta(days=800)],
        [cron("* * * * *"), cron("0 3 * * *"), cron("30 2 1 * *"), every(minutes=7)],
    ):
        with subtests.test(away=away, when=when):
            entry = Scheduled(name="n", queue="q", message="m", data=1, when=when)
            now_ms = 1_795_000_000_123
            first = entry.next_ms(now_ms - round(away.total_seconds() * 1000) - 40 * 86_400_000, BERLIN)
            latest = next(entry.due_ms(first, now_ms, BERLIN))
            assert first <= latest <= now_ms < entry.next_ms(latest, BERLIN)
            assert next(entry.due_ms(latest, now_ms, BERLIN)) == latest
            assert next(entry.due_ms(latest, latest, BERLIN)) == latest


def test_a_schedule_s_own_zone_goes_before_the_project_s():
    start = datetime(2026, 11, 20, tzinfo=UTC)
    assert cron("0 9 * * *", timezone="Asia/Tokyo").after(start, BERLIN) == datetime(2026, 11, 21, tzinfo=UTC)
    assert cron("0 9 * * *").after(start, BERLIN) == datetime(2026, 11, 20, 8, tzinfo=UTC)


def test_what_is_no_expression_is_refused(subtests):
    for expression in [
        *("", "* * * *", "* * * * * *", "61 * * * *", "* 24 * * *", "@reboot", "R * * * *", "H * * * *", "a b c d e"),
        *(None, 5),
    ]:
        with subtests.test(expression=expression), pytest.raises(ConfigurationError, match="cron expression"):
            cron(expression)


def test_a_day_that_never_comes_is_refused():
    with pytest.raises(ConfigurationError, match="No day ever matches"):
        cron("0 0 30 2 *")


def test_a_zone_that_is_none_is_refused(subtests):
    for zone in ["Mars/Olympus", "", "../etc", 7]:
        with subtests.test(zone=zone), pytest.raises(ConfigurationError, match="time zone"):
            cron("* * * * *", timezone=zone)
