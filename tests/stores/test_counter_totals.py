"""Totals of counters never decrease, while the counters of hours expire."""

import pytest

from mq_django.core.keys import QueueKeys, TopicKeys
from mq_django.errors import StoreError
from mq_django.stores.counters import Slots, read_totals
from mq_django.transport.connections import open_session
from mq_django.transport.scripts import load
from tests import places

HOUR_MS = 3_600_000


@pytest.fixture
def keys(mq_settings, namespace):
    return QueueKeys(namespace, "emails")


@pytest.fixture
def totals(keys, redis_client):
    """Return the totals of the queue."""
    session = open_session("inspect")

    def read():
        (found,) = read_totals([keys], [session], now_ms=places.now_ms(redis_client))
        return found

    return read


@pytest.fixture
def hour(redis_client):
    """The current hour of the server, in hours since 1970."""
    return places.now_ms(redis_client) // HOUR_MS


def count(redis_client, keys, hour, kind, number):
    redis_client.hincrby(keys.hours(hour // 24), f"{hour % 24}|{kind}|", number)


def test_they_include_what_was_just_counted(keys, redis_client, totals):
    open_session("produce").pipeline([Slots(keys).add_command({("handled", "welcome"): 2, ("handled", "report"): 1})])
    open_session("produce").pipeline([Slots(keys).add_total("recovered", 4)])
    found = totals()
    assert (found["handled"], found["recovered"]) == (3, 4)


def test_they_include_hours_of_weeks_and_no_hour_twice(keys, redis_client, totals, hour):
    for ago, number in ((0, 1), (1, 20), (2, 300), (30, 4000), (24 * 30, 50_000)):
        count(redis_client, keys, hour - ago, "published", number)
    assert [totals()["published"] for _ in range(3)] == [54_321] * 3


def test_in_the_first_hour_of_a_day_the_days_before_it_are_not_enough(keys, redis_client, hour):
    midnight = hour - hour % 24
    count(redis_client, keys, midnight, "published", 3)
    clock = "math.floor(now_ms() / 3600000)"
    assert clock in load("counters_totals").text
    text = load("counters_totals").text.replace(clock, str(midnight))

    def ask(day):
        names = [keys.totals, *(keys.hours(day + after) for after in range(3))]
        return redis_client.eval(text, len(names), *names, day, (midnight // 24 - 36) * 24, "published")

    redis_client.hset(keys.totals, "hour", midnight - 50)
    assert ask(midnight // 24 - 3) == [midnight - 1]
    assert ask(midnight // 24 - 1) == [midnight - 1, 3]


def test_they_keep_what_has_expired(keys, redis_client, totals, hour):
    count(redis_client, keys, hour - 30, "t3", 7)
    count(redis_client, keys, hour, "t3", 1)
    assert totals()["t3"] == 8
    redis_client.delete(keys.hours((hour - 30) // 24))
    assert totals()["t3"] == 8


def test_what_is_counted_late_in_the_last_hour_counts(keys, redis_client, totals, hour):
    totals()
    count(redis_client, keys, hour - 1, "handled", 5)
    count(redis_client, keys, hour + 1, "handled", 1)
    assert totals()["handled"] == 6


def test_days_without_a_look_are_caught_up(keys, redis_client, totals, hour):
    redis_client.hset(keys.totals, mapping={"hour": hour - 24 * 20, "handled": 1000})
    count(redis_client, keys, hour - 24 * 20 - 1, "handled", 5)
    for ago in (24 * 20, 24 * 9, 3):
        count(redis_client, keys, hour - ago, "handled", 1)
    assert totals()["handled"] == 1003
    assert int(redis_client.hget(keys.totals, "hour")) == hour - 1


def test_they_live_as_long_as_the_counters(keys, redis_client, totals):
    totals()
    assert redis_client.ttl(keys.totals) == pytest.approx(35 * 86400, abs=60)


def test_numbers_that_are_none_count_as_zero(keys, redis_client, totals, hour):
    redis_client.hset(keys.totals, mapping={"hour": "x", "handled": "1e999", "buried": "y"})
    redis_client.hset(keys.hours(hour // 24), mapping={f"{hour % 24}|handled|": "z", f"{hour % 24}|buried|": 2})
    found = totals()
    assert (found["handled"], found["buried"]) == (0, 2)


def test_a_queue_that_cannot_be_read_has_an_error_and_the_others_have_totals(keys, redis_client, namespace, hour):
    topic = TopicKeys(namespace, "orders")
    redis_client.set(keys.totals, "no hash")
    count(redis_client, topic, hour, "published", 3)
    session = open_session("inspect")
    found = read_totals([keys, topic], [session, session], now_ms=places.now_ms(redis_client))
    assert isinstance(found[0], StoreError)
    assert found[1]["published"] == 3


def test_a_full_redis_still_has_them(keys, redis_client, totals, hour):
    redis_client.hset(keys.totals, mapping={"hour": hour - 20, "handled": 1})
    count(redis_client, keys, hour - 10, "handled", 4)
    redis_client.config_set("maxmemory", 1)
    try:
        redis_client.config_set("maxmemory-policy", "noeviction")
        assert totals()["handled"] == 5
    finally:
        redis_client.config_set("maxmemory", 0)
    assert int(redis_client.hget(keys.totals, "hour")) == hour - 20
