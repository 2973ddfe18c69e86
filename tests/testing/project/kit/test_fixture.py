"""The kit as pytest's tests use it."""

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from shop.handlers import emails, welcome
from shop.tasks import confirm

from mq_django import Retry, queues, registry, schedules
from mq_django.errors import TestKitError, UnknownQueue

ANN = {"email": "ann@shop.example"}


@pytest.fixture
def failing(monkeypatch):
    monkeypatch.setattr("shop.handlers.send_mail", lambda *args: 1 / 0)


class TestTime:
    def test_travelling_to_a_moment(self, mq):
        emails.publish("welcome", ANN, deliver_at=datetime(2050, 1, 1, tzinfo=UTC))
        mq.travel_to(datetime(2050, 1, 1, tzinfo=UTC))
        assert len(mq.run()) == 1

    def test_messages_expire(self, mq, mailoutbox):
        emails.publish("welcome", ANN, expires=60)
        mq.advance(seconds=61)
        mq.run()
        assert mailoutbox == []

    def test_unique_windows_end(self, mq):
        for minutes in (0, 59, 2):
            mq.advance(minutes=minutes)
            emails.publish("welcome", ANN, unique="ann", unique_for=3600, on_conflict="keep")
        assert len(mq.messages("emails")) == 2

    def test_results_expire(self, mq, db):
        confirm.using(on_commit=False).enqueue(7)
        mq.run()
        assert [found.return_value for found in mq.results] == [7]
        mq.advance(hours=2)
        assert mq.results == []

    def test_schedules_fire(self, mq):
        mq.travel_to(datetime(2060, 1, 1, 23, tzinfo=UTC))
        assert len(mq.run("default")) == 1
        emails.publish("welcome", ANN, delay=timedelta(days=2))
        assert [handled.message.name for handled in mq.run_until_idle(schedules=True)] == ["tick", "tick", "welcome"]
        assert len(mq.published("default", "tick")) == 3

    def test_overridden_schedules_fire_at_their_times(self, mq):
        mq.travel_to(datetime(2060, 1, 1, 23, 30, tzinfo=UTC))
        schedules.override("tick", every=3600)
        mq.advance(hours=1)
        assert [message.headers["scheduledtime"] for message in mq.published("default", "tick")][1:] == [
            "2060-01-02T00:00:00.000Z"
        ]
        mq.advance(hours=1)
        schedules.restore("tick")
        mq.advance(hours=10)
        assert len(mq.published("default", "tick")) == 3

    def test_the_time_does_not_move_back(self, mq):
        with pytest.raises(TestKitError, match=r"advance\(\) cannot move the time back"):
            mq.advance(hours=-1)
        with pytest.raises(TestKitError, match=r"travel_to\(\) cannot move the time back"):
            mq.travel_to(datetime(2020, 1, 1, tzinfo=UTC))
        with pytest.raises(TestKitError, match="takes a timedelta"):
            mq.advance("an hour")
        with pytest.raises(TestKitError, match="takes a timedelta"):
            mq.advance(fortnights=1)

    @pytest.mark.parametrize("order", [1, 2])
    def test_each_test_begins_at_the_time_of_the_machine(self, mq, order):
        emails.publish("welcome", ANN, delay=60)
        assert mq.run() == []
        mq.advance(hours=1)
        assert len(mq.run()) == 1


class TestWithoutRedis:
    def test_a_handler_needs_only_a_message(self, mq, mailoutbox):
        with mq.redis_down():
            welcome(mq.message("welcome", {"email": "ann@shop.example", "at": datetime(2050, 1, 1, tzinfo=UTC)}))
            delivery = mq.delivery("welcome", ANN, queue="emails", attempt=2)
        assert len(mailoutbox) == 1
        assert (delivery.message.attempt, delivery.message.queue, delivery.data_text) == (
            2,
            "emails",
            b'{"email":"ann@shop.example"}',
        )

    def test_data_are_those_that_arrive(self, mq):
        assert mq.message("welcome", {"at": datetime(2050, 1, 1, tzinfo=UTC)}).data == {"at": "2050-01-01T00:00:00Z"}


class TestPythonsClock:
    """The time in Redis follows libraries that replace Python's clock."""

    def test_freezegun(self, mq):
        freezegun = pytest.importorskip("freezegun")
        with freezegun.freeze_time("2050-01-01"):
            emails.publish("welcome", ANN, deliver_at=datetime(2050, 1, 1, 1, tzinfo=UTC))
            assert mq.run() == []
        with freezegun.freeze_time("2050-01-01 01:00:01"):
            assert len(mq.run()) == 1

    def test_time_machine(self, mq):
        time_machine = pytest.importorskip("time_machine")
        emails.publish("welcome", ANN, delay=3600)
        with time_machine.travel(datetime.now(UTC) + timedelta(hours=2)):
            assert len(mq.run()) == 1
        assert emails.publish("welcome", ANN, delay=60)
        assert mq.run() == []


class TestMistakes:
    def test_run_names_what_waits_for_the_commit(self, mq, db, caplog):
        emails.publish("welcome", 1)
        emails.publish("welcome", 2)
        assert mq.run() == []
        (said,) = caplog.messages
        assert said == (
            "Nothing is ready. 2 messages wait for the commit: call mq.commit(); "
            "Published(queue='emails', name='welcome', data=1); Published(queue='emails', name='welcome', data=2)"
        )

    def test_names_that_are_none(self, mq):
        with pytest.raises(TestKitError, match="A queue is named by a string"):
            mq.run(["emails"])
        with pytest.raises(UnknownQueue, match="No subscriber has the group 'orders:nobody'"):
            mq.run("orders:nobody")
        for wrong in ("confirm", "shop.tasks.missing", 5, confirm.func):
            with pytest.raises(TestKitError, match="task= must be a task of this project"):
                mq.published(task=wrong)


class TestStandingTime:
    def test_a_retry_during_a_slow_run_waits_for_the_next_one(self, mq, monkeypatch):
        """A delay that ends while other handlers run."""

        def fail(message):
            wait_until = time.monotonic() + 0.05
            while time.monotonic() < wait_until:
                pass
            return Retry(delay=0.02)

        queues["default"].publish("tick", None)
        monkeypatch.setitem(
            registry._handlers, ("default", "tick"), replace(registry.find("default", "tick"), call=fail)
        )
        queues["emails"].publish("welcome", ANN)
        assert [handled.message.name for handled in mq.run("default", "emails")] == ["tick", "welcome"]
        mq.advance(seconds=1)
        assert len(mq.run("default")) == 1


def test_messages_of_ticks_do_not_move_the_time(mq, monkeypatch):
    """Otherwise a schedule that always fails would go on for ever."""
    monkeypatch.setitem(
        registry._handlers,
        ("default", "tick"),
        replace(registry.find("default", "tick"), call=lambda message: Retry(delay=timedelta(days=2))),
    )
    mq.travel_to(datetime(2060, 1, 1, 23, tzinfo=UTC))
    emails.publish("welcome", ANN, delay=timedelta(days=3))
    assert [handled.message.name for handled in mq.run_until_idle(schedules=True, limit=50)][-1] == "welcome"
