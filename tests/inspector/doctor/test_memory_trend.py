"""When the memory of a server will be full, by the counters of the last hour."""

from math import inf

import pytest
import redis

from mq_django.conf import get_config
from mq_django.core import clock
from mq_django.inspector.doctor.memory_trend import Growth, full_in
from mq_django.producers import topics
from mq_django.stores.counters import slot
from mq_django.transport import scripts
from mq_django.transport.connections import open_wire
from tests.inspector.doctor.conftest import levels
from tests.seeding import publish, publish_many

MESSAGES, MIB = 1000, 2**20
#: Growth in all minutes of the last hour.
STEADY = dict.fromkeys(range(60), MESSAGES // 60 + 1)


@pytest.fixture
def server(server_with, mq_settings):
    """A server with a queue of a thousand messages of about 1 KiB."""
    started = server_with()
    mq_settings(CONNECTION=started.url, QUEUES={"emails": {}, "other": {"CONSUME": False}}, TOPICS={})
    fill("emails")
    return started


def fill(queue):
    publish_many(queue, [("welcome", "x" * 1000)] * MESSAGES)
    # As if they had been there before.
    forget(queue)


def forget(queue):
    """Forget what was counted."""
    keys, now = get_config().queue(queue).keys, int(clock.now()) // 60
    for hour in (now // 60, now // 60 - 1):
        with redis.Redis.from_url(get_config().connection) as client:
            client.delete(keys.minutes(hour))


def count(queue, by_minute, what="published"):
    """Count messages so many minutes ago."""
    keys, now = get_config().queue(queue).keys, clock.now()
    count_in(keys, now, by_minute, what)


def count_in(keys, now, by_minute, what):
    for ago, number in by_minute.items():
        where = slot(keys, now - ago * 60)
        command = scripts.command("counters_add", keys=where.keys, args=[where.minute, where.hour, f"|{what}|", number])
        open_wire("produce", "").trip([command])


def leave_free(server, size):
    """Set maxmemory so that so many bytes are free."""
    with redis.Redis.from_url(server.url) as client:
        client.config_set("maxmemory", client.info("memory")["used_memory"] + size)


def test_a_queue_that_grows_says_when_the_memory_is_full(server, found):
    count("emails", STEADY)
    leave_free(server, 10 * MIB)
    (finding,) = found("D116")
    assert (finding.code, finding.level) == ("D116", "warning")
    # 1,000 messages of a little more than 1 KiB.
    hours = int(finding.seen.split("full in about ")[1].split()[0])
    assert 7 <= hours <= 10
    assert "if messages keep growing as in the last hour" in finding.seen
    assert "emails by 1,000 messages (1." in finding.seen


def test_within_an_hour_it_is_an_error(server, found):
    count("emails", STEADY)
    leave_free(server, MIB // 2)
    (finding,) = found("D116")
    assert (finding.code, finding.level) == ("D116", "error")
    assert "minutes if messages" in finding.seen


def test_growth_that_takes_more_than_a_day_is_no_finding(server, found):
    count("emails", STEADY)
    leave_free(server, 60 * MIB)
    assert found("D116") == []


def test_noise_is_no_growth(server, found, subtests):
    for published in [
        {},
        # A burst that is over, and one that has just begun.
        {40: MESSAGES},
        {0: MESSAGES},
        # It grew for half an hour, and is being handled.
        dict.fromkeys(range(30, 60), MESSAGES),
        # Less than noise.
        dict.fromkeys(range(60), 1),
    ]:
        with subtests.test(published=published):
            count("emails", published)
            leave_free(server, MIB // 20)
            assert found("D116") == []
            forget("emails")


def test_what_leaves_the_queue_is_no_growth(server, found, subtests):
    for what in ["handled", "expired"]:
        with subtests.test(what=what):
            count("emails", STEADY)
            count("emails", STEADY, what)
            leave_free(server, MIB // 20)
            assert found("D116") == []
            forget("emails")


def test_no_more_can_have_grown_than_is_there(server, found):
    count("emails", dict.fromkeys(range(60), 100 * MESSAGES))
    leave_free(server, 10 * MIB)
    (finding,) = found("D116")
    assert "emails by 1,000 messages" in finding.seen


def test_what_other_programs_handle_is_not_known_so_it_does_not_count(server, found):
    fill("other")
    count("other", STEADY)
    leave_free(server, MIB // 20)
    assert found("D116") == []


def test_a_log_grows_until_its_retention(server, found, mq_settings, subtests):
    mq_settings(CONNECTION=server.url, QUEUES={}, TOPICS={"orders": {}})
    topics["orders"].publish_many([("paid", "x" * 1000)] * MESSAGES, on_commit=False)
    count_in(get_config().topic("orders").keys, clock.now(), STEADY, "published")
    for options, codes in [
        ({}, [("D116", "warning")]),
        ({"RETENTION_COUNT": 20 * MESSAGES}, [("D116", "warning")]),
        # These limits are reached before the memory is full.
        ({"RETENTION_COUNT": 2 * MESSAGES}, []),
        ({"RETENTION_BYTES": 2 * MIB}, []),
        ({"RETENTION": 3600}, []),
    ]:
        with subtests.test(options=options, codes=codes):
            mq_settings(CONNECTION=server.url, QUEUES={}, TOPICS={"orders": options})
            leave_free(server, 10 * MIB)
            assert levels(found("D116")) == codes


def test_the_counters_are_those_that_publishing_writes(server, found):
    # All of it in one minute of this clock, also if the test begins at the end of one.
    since = 5 - clock.now() % 60
    try:
        for ago in range(59, -1, -1):
            clock.set_shift(since - 60 * ago)
            publish_many("emails", [("welcome", "x" * 1000)] * 10)
        leave_free(server, 5 * MIB)
        (finding,) = found("D116")
    finally:
        clock.set_shift(0)
    assert "emails by 600 messages" in finding.seen


def test_messages_that_were_replaced_are_no_growth(server, found):
    for ago in range(59, -1, -1):
        clock.set_shift(-60 * ago)
        try:
            for number in range(10):
                publish("emails", "welcome", unique=f"user:{number}", on_conflict="replace", delay=7200)
        finally:
            clock.set_shift(0)
    leave_free(server, MIB // 20)
    assert found("D116") == []


def test_a_user_who_may_not_ask_for_sizes_gets_a_note(server, found):
    count("emails", STEADY)
    with redis.Redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", "default", "-memory")
    notes = [each.seen for each in found("D1") if each.code == "D199"]
    assert any("Could not look at trend of memory" in seen for seen in notes)


def test_the_time_until_the_memory_is_full(subtests):
    for growths, hours in [
        ([], inf),
        ([Growth("a", 1, 10.0)], 10.0),
        ([Growth("a", 1, 10.0, 5.0)], inf),
        ([Growth("a", 1, 10.0, 10.0)], 10.0),
        # 30 in the first hour, then 10 an hour.
        ([Growth("a", 1, 10.0), Growth("b", 1, 20.0, 1.0)], 8.0),
    ]:
        with subtests.test(growths=growths, hours=hours):
            assert full_in(100.0, growths) == hours
