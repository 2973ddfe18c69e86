"""Overriding the times of schedules in code and settings."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from mq_django import every, registry, schedules
from mq_django.conf import get_config
from mq_django.consumers.supervisor.scheduler import Scheduler
from mq_django.core import clock
from mq_django.core.schedules import Scheduled, cron, overridden, override_of
from mq_django.errors import InvalidSchedule, QueueFull, UnknownSchedule
from mq_django.inspector import plans
from mq_django.stores.schedules import Firing, Schedules, scheduled
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Session
from tests import places
from tests.optional import needs_croniter
from tests.waiting import now_ms_within, wait_until

HOUR = 3_600_000
NIGHTLY = Scheduled(name="nightly", queue="emails", message="report", data={"n": 1}, when=every(hours=1))


@pytest.fixture
def keys(mq_settings):
    return get_config().queue("emails").keys


@pytest.fixture(autouse=True)
def _in_code(monkeypatch, keys):
    monkeypatch.setattr(registry, "_schedules", {})
    registry.schedule(NIGHTLY)


@pytest.fixture
def supervisors(keys):
    """Return two schedulers that know the times of the code."""
    store = Schedules(get_config().queue("emails"), Session(get_client("consume")))
    found = [Scheduler(scheduled(), {"emails": store}) for _ in range(2)]
    for scheduler in found:
        scheduler.run_once()
    return found


def ticks(redis_client, keys):
    return [message["scheduledtime"] for message in places.ready(redis_client, keys) if "scheduledtime" in message]


def override(**times):
    return schedules.override("nightly", queue="emails", by="ann", reason="too often", **times)


def test_an_override_says_who_and_why_and_is_changed_back(keys, redis_client):
    before = places.now_ms(redis_client)
    status = override(every=7200)
    found = status.override
    assert (str(status.when), status.message, status.origin) == ("every 2:00:00", "report", "code")
    assert (found.set_by, found.reason, str(found.code), found.is_outdated) == (
        *("ann", "too often", "every 1:00:00", False),
    )
    assert found.set_ms >= before
    assert override(every=7200) == status
    assert override(every=timedelta(minutes=5)).override.code == every(hours=1)

    assert schedules.restore("nightly", queue="emails")
    assert not schedules.restore("nightly", queue="emails")
    status = schedules.get("nightly", queue="emails")
    assert (status.override, status.when) == (None, every(hours=1))
    assert set(redis_client.hgetall(keys.schedules)) == {b"last:nightly"}


def test_an_override_whose_code_has_changed_since_stays_and_is_shown_as_such(monkeypatch):
    override(every=7200)
    monkeypatch.setattr(registry, "_schedules", {})
    assert plans.find("emails", "nightly").origin == "removed"
    registry.schedule(Scheduled(name="nightly", queue="emails", message="report", data=None, when=every(hours=3)))
    found = schedules.get("nightly", queue="emails")
    assert (found.when, found.override.is_outdated, found.override.code) == (every(hours=2), True, every(hours=3))


@needs_croniter
def test_times_that_no_schedule_can_have_are_refused_before_anything_is_written(keys, redis_client, subtests):
    schedules.create("made", queue="emails", every=60, message="m")
    for times, said in (
        ({}, 'must have either "cron" or "every"'),
        ({"cron": "0 7 * * *", "every": 60}, "not both"),
        ({"cron": "soon"}, "is not a cron expression"),
        ({"cron": "0 0 31 2 *"}, "No day ever matches"),
        ({"cron": "0 7 * * *", "timezone": "Berlin"}, "is not a time zone"),
        ({"timezone": "Europe/Berlin", "every": 60}, "needs 'cron'"),
        ({"every": 0.5}, "a second or more"),
        ({"every": "60"}, "must be a timedelta or a number"),
    ):
        with subtests.test(times=times), pytest.raises(InvalidSchedule, match=said):
            override(**times)
    with pytest.raises(InvalidSchedule, match="created at run time"):
        schedules.override("made", queue="emails", every=60)
    with pytest.raises(InvalidSchedule, match="reason must be text"):
        schedules.override("nightly", queue="emails", every=60, reason=7)
    with pytest.raises(UnknownSchedule):
        schedules.override("none", queue="emails", every=60)
    assert not redis_client.exists(keys.schedules)


def test_times_after_which_it_would_never_fire_are_refused(monkeypatch):
    ended = Scheduled(name="nightly", queue="emails", message="m", data=None, when=every(1), ends=datetime.now(UTC))
    monkeypatch.setattr(registry, "_schedules", {})
    registry.schedule(ended)
    with pytest.raises(InvalidSchedule, match="would never fire"):
        override(every=60)


def test_new_times_count_from_the_change_on_and_none_is_fired_twice(supervisors, keys, redis_client):
    """In the middle of an interval: ticks of the new times before the change never fire."""
    now = now_ms_within(redis_client, HOUR)
    redis_client.hset(keys.schedules, "last:nightly", now - now % HOUR)
    override(every=1)
    assert ticks(redis_client, keys) == []

    def both(count):
        for scheduler in supervisors:
            scheduler.expect("emails")
            scheduler.run_once()
        return len(ticks(redis_client, keys)) >= count

    wait_until(lambda: both(2))
    schedules.restore("nightly", queue="emails")
    count = len(fired := ticks(redis_client, keys))
    for scheduler in supervisors:
        scheduler._checks["emails"] = 0.0
        assert scheduler.run_once() > 1
    assert len(ticks(redis_client, keys)) == count == len(set(fired))
    assert min(datetime.fromisoformat(tick).timestamp() * 1000 for tick in fired) > now


def test_a_tick_that_is_due_at_the_change_fires_once(supervisors, keys, redis_client, subtests):
    for number, change in enumerate((lambda: override(every=86400), lambda: override(every=3600), None), 1):
        with subtests.test(number=number):
            now = now_ms_within(redis_client, HOUR)
            redis_client.hset(keys.schedules, "last:nightly", now - 24 * HOUR - 1)
            if change is None:
                schedules.restore("nightly", queue="emails")
            else:
                change()
            for scheduler in supervisors:
                scheduler._checks["emails"] = 0.0
                scheduler.run_once()
            assert len(ticks(redis_client, keys)) == number


@pytest.mark.parametrize("ahead", [-5 * HOUR, 5 * HOUR])
def test_what_is_due_is_by_the_clock_of_redis(keys, redis_client, monkeypatch, ahead):
    redis_client.hset(keys.schedules, "last:nightly", now_ms_within(redis_client, HOUR) - 24 * HOUR - 1)
    now_ms = clock.now_ms
    monkeypatch.setattr(clock, "now_ms", lambda: now_ms() + ahead)
    assert override(every=86400).override is not None
    assert len(ticks(redis_client, keys)) == 1
    redis_client.hincrby(keys.schedules, "last:nightly", -48 * HOUR)
    assert schedules.restore("nightly", queue="emails")
    assert len(ticks(redis_client, keys)) == 2


def test_a_consumer_that_has_not_heard_of_a_change_fires_none_of_the_old_ticks(keys, redis_client):
    store = Schedules(get_config().queue("emails"), Session(get_client("consume")))
    override(every=7200)
    tick = places.now_ms(redis_client) - 1
    redis_client.hset(keys.schedules, "last:nightly", tick - HOUR)
    assert store.fire(NIGHTLY, tick).firing is Firing.CHANGED
    changed = plans.find("emails", "nightly").entry
    schedules.restore("nightly", queue="emails")
    redis_client.hset(keys.schedules, "last:nightly", tick - HOUR)
    assert store.fire(changed, tick).firing is Firing.CHANGED
    assert store.fire(NIGHTLY, tick).firing is Firing.FIRED


def test_ticks_of_a_paused_schedule_do_not_fire_at_the_change(keys, redis_client):
    schedules.pause("nightly", queue="emails")
    redis_client.hset(keys.schedules, "last:nightly", places.now_ms(redis_client) - 5 * HOUR)
    assert override(every=60).paused
    schedules.resume("nightly", queue="emails")
    assert ticks(redis_client, keys) == []


def test_a_queue_that_is_full_keeps_the_times_until_the_tick_that_is_due_has_room(mq_settings, redis_client):
    mq_settings(QUEUES={"default": {}, "emails": {"MAX_DEPTH": 1}})
    keys = get_config().queue("emails").keys
    schedules.fire("nightly", queue="emails")
    redis_client.hset(keys.schedules, "last:nightly", places.now_ms(redis_client) - 5 * HOUR)
    with pytest.raises(QueueFull):
        override(every=60)
    assert schedules.get("nightly", queue="emails").override is None


def test_an_override_that_is_not_valid_fires_nothing_says_why_and_is_changed_back(supervisors, keys, redis_client):
    for text in (b"{", b"[]", b'{"cron":7}', b'{"every":60,"cron":"* * * * *"}', b"\xff" * 20_000, b"null"):
        redis_client.hset(keys.schedules, mapping={"override:nightly": text, "last:nightly": 1})
        found = plans.find("emails", "nightly")
        assert "What overrides it is not valid" in found.problem
        assert (found.next_ms, found.entry, found.override.reason) == (None, None, "")
        for scheduler in supervisors:
            scheduler._checks["emails"] = 0.0
            scheduler.run_once()
        assert schedules.restore("nightly", queue="emails")
    assert ticks(redis_client, keys) == []


@needs_croniter
def test_overridden_times_follow_the_clocks_of_their_zone():
    code = Scheduled(name="n", queue="emails", message="m", data=None, when=every(hours=1))
    made = overridden(
        code, override_of({"cron": "30 2 * * *", "timezone": "Europe/Berlin"}, code=code.when, reason="night")
    )
    assert (made.when, made.message) == (cron("30 2 * * *", timezone="Europe/Berlin"), "m")

    def following(*day):
        after = datetime(*day, tzinfo=ZoneInfo("Europe/Berlin")).timestamp() * 1000
        return datetime.fromtimestamp(made.next_ms(round(after), UTC) / 1000, UTC).strftime("%d %H:%M")

    assert following(2026, 3, 28, 12) == "29 01:30"  # 02:30 does not exist: an hour later, 03:30 in summer
    assert following(2026, 10, 24, 12) == "25 00:30"  # 02:30 comes twice: the first
    assert following(2026, 10, 25, 3) == "26 01:30"


def test_the_latest_messages_of_a_schedule_are_known_by_id(redis_client):
    fired = [schedules.fire("nightly", queue="emails") for _ in range(7)]
    assert [message_id for _, message_id in plans.find("emails", "nightly").recent] == fired[:1:-1]
