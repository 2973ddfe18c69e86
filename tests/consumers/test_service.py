"""The loop that all services share."""

import logging
import threading

import pytest
from django.contrib.auth.models import Group
from django.db import connection

from mq_django.consumers.service import Service
from mq_django.errors import ConnectionLost, WrongKeyType
from tests.waiting import wait_until


class Scripted(Service):
    """Does one thing after another: returns what is a number, raises what is an error."""

    name = "scripted"

    def __init__(self, *rounds):
        super().__init__()
        self._rounds = list(rounds)
        self.done = 0
        self.recovered = []
        self.closed_in = None

    def run_once(self):
        self.done += 1
        what = self._rounds.pop(0) if self._rounds else 60.0
        if isinstance(what, BaseException):
            raise what
        return what

    def recover(self, error):
        self.recovered.append(error)

    def close(self):
        self.closed_in = threading.current_thread()


def ended(service):
    service.stop()
    return service.join(60)


def test_it_turns_and_sleeps_until_it_is_woken_or_stopped():
    service = Scripted(0.0, 3600.0, 3600.0)
    service.start()
    wait_until(lambda: service.done == 2)
    service.wake()
    wait_until(lambda: service.done == 3)
    assert ended(service)
    assert service.closed_in is not threading.current_thread()


def test_start_and_stop_may_be_called_twice_and_stop_first():
    service = Scripted()
    service.stop()
    service.start()
    assert service.join(0)
    other = Scripted()
    other.start()
    other.start()
    other.stop()
    assert ended(other)
    assert other.done <= 1


def test_what_redis_refuses_is_tried_again_and_logged_once(caplog):
    caplog.set_level(logging.INFO)
    error = ConnectionLost("away")
    service = Scripted(error, error, 0.0, error, 0.0, 0.0)
    service.start()
    wait_until(lambda: service.done == 7)
    assert ended(service)
    assert service.recovered == [error] * 3
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert caplog.messages[0].startswith("Waiting for Redis at ")
    assert " has been reached again after " in caplog.messages[1]


def test_what_rarely_does_something_keeps_no_outage_open(caplog, monkeypatch):
    monkeypatch.setattr("mq_django.consumers.service.MAX_BACKOFF", 0.01)
    caplog.set_level(logging.INFO)
    service = Scripted(ConnectionLost("away"), 3600.0, 3600.0)
    service.start()
    wait_until(lambda: "reached again" in caplog.text)
    assert service.done == 3
    assert ended(service)


def test_the_outage_is_that_of_the_server_that_failed(caplog, mq_settings):
    here, there = "redis://127.0.0.1:1/0", "redis://127.0.0.1:2/0"
    mq_settings(QUEUES={"default": {"CONNECTION": here}, "other": {"CONNECTION": there}})
    lost = []

    class Several(Scripted):
        def run_once(self):
            self.done += 1
            self.each([here, there], self.fail, called=str, server=str)
            return 60.0

        def fail(self, server):
            if server == there and not lost:
                lost.append(server)
                raise ConnectionLost("away")

    service = Several()
    service.connection = None
    service.start()
    wait_until(lambda: service.done > 1)
    assert ended(service)
    assert caplog.messages == ["Waiting for Redis at 127.0.0.1:2 for 0 s: away"]


def test_nothing_that_a_round_raises_ends_it(caplog, monkeypatch):
    monkeypatch.setattr("mq_django.consumers.service.MAX_BACKOFF", 0.01)
    errors = [*[ZeroDivisionError("oops")] * 5, SystemExit(3), KeyboardInterrupt()]
    service = Scripted(*errors)
    service.start()
    wait_until(lambda: service.done == 8)
    assert ended(service)
    # Once for each kind of error.
    assert caplog.messages == ["scripted failed, and will retry"] * 3
    assert [type(error) for error in service.recovered] == [ZeroDivisionError] * 5 + [RuntimeError] * 2


def test_not_even_a_failing_recovery_ends_it(caplog):
    class Clumsy(Scripted):
        def recover(self, error):
            raise RuntimeError("again")

    service = Clumsy(ConnectionLost("away"))
    service.start()
    wait_until(lambda: service.done == 2)
    assert ended(service)
    assert "could not recover" in caplog.text


def test_complaints_about_the_same_trouble_are_rare(caplog):
    service = Scripted()

    def refuse(queue):
        raise WrongKeyType(queue)

    for _ in range(5):
        service.each(["queue a", "queue b"], refuse, called=str)
    assert caplog.messages == [f"scripted of queue {name} failed, and will retry: queue {name}" for name in "ab"]


def test_a_loop_tells_its_turns():
    gate = threading.Event()

    class Held(Scripted):
        def run_once(self):
            self.done += 1
            gate.wait(10)
            return 0.0

    service = Held()
    assert service.progress() == {}
    service.start()
    wait_until(lambda: service.done)
    first = service.progress()
    assert service.progress() == first
    gate.set()
    wait_until(lambda: service.progress() != first)
    assert ended(service)
    assert service.progress() == {}


def test_of_thousands_of_failures_some_are_logged(caplog, monkeypatch):
    monkeypatch.setattr("mq_django.consumers.service.MAX_LOGGED", 5)
    service = Service()

    def fail(item):
        raise ValueError(item)

    for _ in range(2):
        service.each(range(100), fail, called=str)
    assert len(caplog.records) == 5


@pytest.mark.django_db(transaction=True)
def test_the_queries_that_django_logs_with_debug_do_not_pile_up(settings):
    settings.DEBUG = True
    logged = []

    class Queries(Scripted):
        def run_once(self):
            Group.objects.count()
            logged.append(len(connection.queries_log))
            return super().run_once()

        def close(self):
            connection.close()

    service = Queries(0.0, 0.0, 0.0)
    service.start()
    wait_until(lambda: service.done == 4)
    assert ended(service)
    assert logged[0] == logged[-1] > 0
