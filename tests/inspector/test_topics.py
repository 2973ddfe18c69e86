from datetime import UTC, datetime, timedelta

import pytest

from mq_django import registry, topics
from mq_django.core.messages import ACK
from mq_django.errors import InvalidOffset
from mq_django.inspector import message_lists
from mq_django.inspector import topics as inspected
from mq_django.stores.base import Settlement
from mq_django.stores.log import Log
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Session
from tests.seeding import opened
from tests.waiting import moment_between

ME = "host-1-me"


@pytest.fixture(autouse=True)
def subscribers(monkeypatch):
    """Forget the subscribers of a test."""
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))
    monkeypatch.setattr(registry, "_starts", {})


@pytest.fixture
def events(mq_settings):
    mq_settings(QUEUES={}, TOPICS={"events": {"RETENTION_COUNT": 100}})
    return topics["events"]


def subscribed(name="billing"):
    return opened(f"events:{name}")


def read(store, count):
    taken = store.take(ME, count=count)
    assert store.settle(ME, [Settlement(delivery, ACK) for delivery in taken]) == []
    return taken


def entries_of(events, redis_client):
    return [entry.decode() for entry, _ in redis_client.xrange(events.config.keys.log)]


def group(name="billing"):
    return next(view for view in inspected.topic("events").groups if view.name == name)


def test_a_topic_shows_its_log_and_where_its_groups_are(events, redis_client):
    registry.subscriber("events", group="billing")(print)
    registry.subscriber("events", group="new")(print)
    store = subscribed()
    events.publish_many([("paid", n) for n in range(10)])
    redis_client.xgroup_create(events.config.keys.log, "stranger", "0")
    read(store, 3)
    store.take(ME, count=2)
    (view,) = inspected.topics()
    at = entries_of(events, redis_client)
    assert (view.name, view.length, view.first, view.last, view.error) == ("events", 10, at[0], at[-1], "")
    assert abs(view.last_ms - view.now_ms) < 60_000
    assert view.size > 100
    kept = view.config
    assert (kept.retention, kept.retention_count, kept.retention_bytes) == (timedelta(days=7), 100, None)
    billing, new, stranger = view.groups
    assert (billing.name, billing.queue, billing.offset) == ("billing", "events:billing", at[4])
    assert (billing.pending, billing.lag, billing.subscribed) == (2, 5, True)
    assert 0 <= billing.lag_ms < 60_000
    assert (billing.behind, billing.share) == (7, pytest.approx(0.07))
    assert (new.name, new.subscribed) == ("new", False)
    assert (stranger.name, stranger.lag, stranger.offset_ms) == ("stranger", 10, None)
    assert view.in_code == {"billing", "new"}


def test_the_alarm_and_what_was_lost_are_shown(events, redis_client):
    store = subscribed()
    events.publish_many([("paid", n) for n in range(500)])
    log = Log(events.config, Session(get_client("produce")))
    assert log.set_alarm("billing", 500) == "RAISED"
    while log.trim().more:
        pass
    left = redis_client.xlen(events.config.keys.log)
    found = group()
    assert (found.alarm, found.lost, found.lag) == (500, 500 - left, left)
    read(store, 500)
    log.set_alarm("billing", None)
    assert group().alarm is None


def test_a_preview_tells_what_a_seek_then_does(events, redis_client):
    store = subscribed()
    events.publish_many([("paid", n) for n in range(10)])
    at = entries_of(events, redis_client)
    read(store, 4)
    store.take(ME, count=2)

    def seen(place):
        found = inspected.preview("events", "billing", place)
        assert not found.more
        return found.replayed, found.skipped, found.pending, found.given_up

    assert seen("beginning") == (6, 0, 2, 0)
    assert seen(at[5]) == (1, 0, 2, 1)
    assert seen(at[6]) == (0, 0, 2, 2)
    assert seen(at[8]) == (0, 2, 2, 2)
    assert seen("end") == (0, 4, 2, 2)
    assert seen(datetime.now(UTC) - timedelta(days=1)) == (6, 0, 2, 0)
    assert (group().lag, group().pending) == (4, 2)
    generation = group().generation
    inspected.seek("events", "billing", at[2])
    assert (group().lag, group().pending) == (8, 0)
    assert group().generation > generation
    assert len(store.take(ME, count=20)) == 8


def test_a_preview_of_very_many_says_that_there_are_more(events, redis_client, monkeypatch):
    monkeypatch.setattr("mq_django.inspector.topics.MAX_PREVIEWED", 20)
    monkeypatch.setattr("mq_django.stores.topic_stats.PAGE", 10)
    subscribed()
    events.publish_many([("paid", n) for n in range(50)])
    found = inspected.preview("events", "billing", entries_of(events, redis_client)[45])
    assert (found.skipped, found.more) == (20, True)


def test_a_preview_of_all_there_is_is_known_without_counting(events, monkeypatch):
    """A group may be moved over a million: who asks does not wait until they are counted."""
    monkeypatch.setattr("mq_django.inspector.topics.count_between", None)
    store = subscribed()
    events.publish_many([("paid", n) for n in range(50)])
    assert inspected.preview("events", "billing", "end")[1:4] == (0, 50, False)
    read(store, 20)
    assert inspected.preview("events", "billing", "end")[1:4] == (0, 30, False)
    assert inspected.preview("events", "billing", "beginning")[1:4] == (20, 0, False)
    assert inspected.preview("events", "billing", datetime(2001, 1, 1, tzinfo=UTC))[1:4] == (20, 0, False)


def test_the_log_is_read_between_offsets_and_moments(events, redis_client):
    events.publish_many([("paid", n) for n in range(3)])
    moment = moment_between(redis_client)
    events.publish_many([("paid", n) for n in range(3, 6)])
    at = entries_of(events, redis_client)

    def between(since, until):
        return [row.data for row in message_lists.in_log("events", since=since, until=until, limit=10).rows]

    assert between(at[1], at[3]) == [1, 2, 3]
    assert between(moment, "end") == [3, 4, 5]
    assert between("beginning", moment) == [0, 1, 2]
    assert between("end", "end") == []
    with pytest.raises(InvalidOffset):
        message_lists.in_log("events", after="x", limit=1)


def test_long_messages_and_what_is_no_message_do_not_stop_a_page(events, redis_client):
    events.publish("long", "x" * 100_000)
    redis_client.xadd(events.config.keys.log, {"type": "t", "data": b"\xff"})
    long, garbage = message_lists.in_log("events", limit=10).rows
    assert (long.name, long.has_data, long.size > 100_000) == ("long", False, True)
    assert garbage.problem
    assert message_lists.get_in_log("events", long.ref).data == "x" * 100_000


def test_a_lag_that_redis_cannot_tell_is_counted_up_to_a_number(events, redis_client, monkeypatch):
    """As once a group has lost messages: a page counts so many and says that there are more."""
    monkeypatch.setattr("mq_django.stores.topic_stats.PAGE", 10)
    monkeypatch.setattr("mq_django.inspector.topics.MAX_COUNTED", 20)
    store = subscribed()
    events.publish_many([("paid", n) for n in range(50)])
    read(store, 1)
    redis_client.hset(events.config.keys.group("billing").control, "lost", 3)
    assert (group().lag, group().at_least) == (20, True)
    read(store, 35)
    assert (group().lag, group().at_least) == (14, False)
