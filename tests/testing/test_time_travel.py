"""The time moves from one due message to the next, and schedules fire on the way."""

import math
import time
from datetime import datetime, timedelta
from functools import partial

import pytest

from mq_django import Retry, RetryPolicy, handler, inspect, registry, schedules
from mq_django.conf import get_config
from mq_django.core.schedules import Every, Scheduled
from mq_django.errors import EndlessRun, TestKitError
from mq_django.inspector import actions
from mq_django.testing import time_travel
from mq_django.testing.time_travel import fire_due_schedules, next_due_ms, travel_to
from tests.seeding import publish, publish_many
from tests.waiting import wait_until
from tests.working import run

#: Most tests here look at the outcomes of what fails.
run_until_idle = partial(time_travel.run_until_idle, schedules=True, raise_errors=False)


pytestmark = pytest.mark.usefixtures("handlers")


class Clock:
    """The real time. To move it is to wait for it."""

    def __init__(self):
        self.moments = []

    def __call__(self, due_ms):
        self.moments.append(due_ms)
        wait_until(lambda: time.time() * 1000 >= due_ms)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(autouse=True)
def _note(handlers):
    handler("emails", "note")(lambda message: None)


def data_of(handled):
    return [each.message.data for each in handled]


def test_what_is_due_later_is_handled_in_its_order(clock, depths):
    publish("emails", "note", 2, delay=0.1)
    publish("emails", "note", 3, delay=0.2)
    publish("emails", "note", 1)
    assert data_of(run_until_idle(advance_to=clock)) == [1, 2, 3]
    assert depths("emails").depth == 0
    assert clock.moments == sorted(clock.moments)


def test_retries_are_handled_up_to_the_last_attempt(clock, depths):
    @handler("emails", "fail", retry=RetryPolicy(delay=timedelta(seconds=0.02), max_attempts=3))
    def fail(message):
        raise ValueError("no")

    publish("emails", "fail")
    assert [each.message.attempt for each in run_until_idle(advance_to=clock)] == [1, 2, 3]
    assert depths("emails") == (0, 0, 0, 0, 1, 0)


def test_without_delayed_messages_the_time_does_not_move(clock):
    publish("emails", "note", 1)
    publish("emails", "unknown")
    assert len(run_until_idle(advance_to=clock)) == 2
    assert clock.moments == []


def test_a_handler_that_never_comes_to_an_end_is_an_error(clock):
    handler("emails", "again", retry=RetryPolicy(max_attempts=1000))(lambda message: Retry(delay=0.001))
    publish("emails", "again")
    with pytest.raises(EndlessRun, match=r"After 5 messages.*'again' \(5 times\)"):
        run_until_idle(advance_to=clock, limit=5)


def test_a_time_that_is_moved_endlessly_is_an_error(clock):
    publish("emails", "note", delay=60)
    with pytest.raises(EndlessRun, match=r"moved 5 times.*Most often handled: none"):
        run_until_idle(advance_to=clock.moments.append, limit=5)


def test_a_paused_queue_is_left_out(clock, depths):
    publish("emails", "note", 1, delay=0.01)
    actions.pause("emails")
    assert run_until_idle(advance_to=clock) == []
    assert clock.moments == []


def test_only_the_queues_that_are_named_count(clock, depths):
    publish("emails", "note", 1, delay=60)
    assert run_until_idle(["default"], advance_to=clock) == []
    assert clock.moments == []
    assert next_due_ms(["default"]) is None


@pytest.mark.parametrize(
    ("moment", "said"),
    [(datetime(2060, 1, 1), "an aware datetime: .*make_aware"), ("2060-01-01", "a datetime, not '2060-01-01'")],  # noqa: DTZ001
)
def test_a_moment_that_is_no_aware_datetime_is_refused(moment, said):
    with pytest.raises(TestKitError, match=rf"The moment of travel_to\(\) must be {said}"):
        travel_to(moment)


def test_what_is_due_already_is_due_now():
    publish("emails", "note", 1, delay=0.001)
    # Until the millisecond is over, it is due in the next one.
    wait_until(lambda: (next_due_ms() or math.inf) <= time.time() * 1000)


@pytest.mark.parametrize("limit", ["1/s", {"key": "1/s"}])
def test_what_a_rate_limit_holds_back_is_handled_later(limit, mq_settings, clock):
    mq_settings(QUEUES={"emails": {"RATE_LIMIT": limit}})
    publish("emails", "note", 1, key="a")
    publish("emails", "note", 2, key="a")
    assert data_of(run_until_idle(advance_to=clock)) == [1, 2]


def test_a_limit_that_was_changed_says_when(mq_settings, clock):
    mq_settings(QUEUES={"emails": {"RATE_LIMIT": "1/h"}})
    inspect.set_limits("emails", rate="1/s")
    publish("emails", "note", 1)
    publish("emails", "note", 2)
    assert data_of(run_until_idle(advance_to=clock)) == [1, 2]


class TestRsmq:
    @pytest.fixture(autouse=True)
    def _emails(self, mq_settings, namespace):
        mq_settings(QUEUES={"emails": {"STORE": "rsmq", "NAMESPACE": namespace}})

    @pytest.fixture
    def move(self, redis_client):
        """Make everything visible, as if the time had moved."""
        zset, moments = get_config().queue("emails").keys.zset, []

        def advance_to(due_ms):
            moments.append(due_ms)
            for member in redis_client.zrange(zset, 0, -1):
                redis_client.zadd(zset, {member: int(time.time() * 1000)})

        return advance_to, moments

    def test_what_is_due_later_is_handled(self, move):
        publish("emails", "note", 1, delay=60)
        assert data_of(run_until_idle(advance_to=move[0])) == [1]
        assert len(move[1]) == 1

    def test_what_has_no_handler_is_not_waited_for(self, move):
        publish("emails", "unknown")
        assert len(run_until_idle(advance_to=move[0])) == 1
        assert move[1] == []


class TestSchedules:
    @pytest.fixture
    def often(self):
        """A schedule with a tick every 100 ms."""
        return self.scheduled(seconds=0.1)

    def scheduled(self, **every):
        entry = Scheduled(name="often", queue="emails", message="note", data="tick", when=Every(timedelta(**every)))
        registry.schedule(entry)
        return entry

    def test_without_schedules_there_is_no_next_tick(self):
        assert fire_due_schedules() is None

    def test_a_schedule_begins_when_it_is_first_seen(self):
        self.scheduled(hours=1)
        assert time.time() * 1000 < fire_due_schedules() + 1
        assert run() == []

    def test_a_tick_that_is_due_fires_once(self, often, clock, depths):
        began = int(time.time() * 1000)
        clock(fire_due_schedules())
        fire_due_schedules()
        fire_due_schedules()
        # One, unless the machine stands still until further ticks are due, at any moment since it began.
        assert 1 <= depths("emails").ready <= int(time.time() * 1000) // 100 - began // 100

    def test_one_that_was_created_at_run_time_fires(self, clock):
        handler("default", "note")(lambda message: None)
        schedules.create("often", every=1, message="note")
        clock(fire_due_schedules())
        fire_due_schedules()
        # More than once if the machine stands still for a second.
        assert {each.message.name for each in run()} == {"note"}

    def test_schedules_fire_on_the_way(self, often, clock):
        publish("emails", "note", "due", delay=0.95)
        found = data_of(run_until_idle(advance_to=clock))
        # Ticks that a machine misses because it stands still fire as one.
        assert found.count("tick") >= sum(moment % 100 == 0 for moment in clock.moments) >= 1
        assert found.count("due") == 1

    def test_schedules_that_keep_it_from_idle_are_named(self, clock):
        handler("emails", "again")(lambda message: publish("emails", "again"))
        every = Every(timedelta(seconds=0.1))
        registry.schedule(Scheduled(name="again", queue="emails", message="again", data=None, when=every))
        publish("emails", "note", "due", delay=60)
        with pytest.raises(EndlessRun, match=r"After 3 messages.*; 3 messages came from schedules"):
            run_until_idle(advance_to=clock, limit=3)

    def test_without_being_asked_for_they_do_not_fire(self, often, clock):
        publish("emails", "note", "due", delay=0.3)
        assert data_of(time_travel.run_until_idle(advance_to=clock)) == ["due"]

    def test_a_tick_alone_does_not_move_the_time(self, clock):
        rarely = Every(timedelta(hours=1))
        registry.schedule(Scheduled(name="rarely", queue="emails", message="note", data="tick", when=rarely))
        publish_many("emails", [("note", 1)])
        assert data_of(run_until_idle(advance_to=clock)) == [1]
        assert clock.moments == []
