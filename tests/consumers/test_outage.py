"""What the log says of an outage, whatever the number of services that notice it."""

import logging

import pytest

from mq_django.consumers import outage as outages
from mq_django.consumers.outage import LOG_AGAIN, Outage
from mq_django.errors import ConnectionLost

ERROR = ConnectionLost("Cannot reach Redis at h:1: Connection refused.")
FIRST = f"Waiting for Redis at h:1 for 0 s: {ERROR}"


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets."""
    now = [1000.0]
    monkeypatch.setattr("mq_django.consumers.outage.time.monotonic", lambda: now[0])
    return now


@pytest.fixture
def outage(clock, caplog):
    caplog.set_level(logging.INFO)
    return Outage("h:1")


def test_many_services_have_one_line_when_it_begins_and_one_when_it_is_over(outage, clock, caplog):
    for service in "abc":
        outage.failed(service, ERROR)
    clock[0] += 34
    assert [outage.recovered(service) for service in "abcd"] == [True, True, True, False]
    assert caplog.messages == [FIRST, "Redis at h:1 has been reached again after 34 s"]


def test_it_has_lasted_until_the_first_service_that_none_has_failed_after(outage, clock, caplog):
    for service in "abc":
        outage.failed(service, ERROR)
    clock[0] += 1
    outage.recovered("a")
    clock[0] += 1
    outage.failed("b", ERROR)
    clock[0] += 1
    outage.recovered("b")
    clock[0] += 10
    outage.recovered("c")
    assert caplog.messages == [FIRST, "Redis at h:1 has been reached again after 3 s"]


def test_a_long_one_has_a_line_a_minute(outage, clock, caplog):
    for _ in range(150):
        outage.failed("a", ERROR)
        clock[0] += 1
    assert [message.partition(": ")[0] for message in caplog.messages] == [
        f"Waiting for Redis at h:1 for {seconds} s" for seconds in (0, 60, 120)
    ]


def test_it_is_not_over_before_the_last_service_has_recovered(outage, caplog):
    outage.failed("a", ERROR)
    outage.failed("b", ERROR)
    outage.recovered("a")
    outage.failed("a", ERROR)
    assert caplog.messages == [FIRST]


def test_a_consumer_leaves_the_first_minute_to_its_supervisor(outage, clock, caplog):
    outage.grace = LOG_AGAIN
    outage.failed("a", ERROR)
    outage.recovered("a")
    assert caplog.messages == []
    for _ in range(70):
        outage.failed("a", ERROR)
        clock[0] += 1
    assert len(caplog.messages) == 1


def test_a_service_that_has_ended_keeps_no_outage_open(outage, caplog):
    outage.failed("a", ERROR)
    outage.forget("a")
    outage.failed("b", ERROR)
    outage.recovered("b")
    assert caplog.messages[-1] == "Redis at h:1 has been reached again after 0 s"


@pytest.mark.usefixtures("clock")
def test_databases_of_one_server_have_one_outage(mq_settings, caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(outages, "_outages", {})
    here, there = "redis://127.0.0.1:1/0", "redis://127.0.0.1:1/7"
    mq_settings(QUEUES={"default": {"CONNECTION": here}, "other": {"CONNECTION": there}})
    outages.failed(here, "a", ERROR)
    outages.failed(there, "b", ERROR)
    assert [outages.recovered(service) for service in "abc"] == [True, True, False]
    assert [message.partition(" for 0 s")[0] for message in caplog.messages] == [
        "Waiting for Redis at 127.0.0.1:1",
        "Redis at 127.0.0.1:1 has been reached again after 0 s",
    ]
