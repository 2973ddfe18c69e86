import asyncio
import logging
import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from mq_django import queues, topics
from mq_django.errors import (
    AlreadyPublished,
    ConnectionLost,
    HandlerTimeout,
    InvalidMessage,
    MessageTooLarge,
    WrongKeyType,
)
from mq_django.inspector.queue_view import Period, activity_of
from mq_django.producers import Queue, Topic
from mq_django.signals import message_published
from mq_django.stores.counters import Slots
from mq_django.transport.connections import close_clients, get_client
from mq_django.transport.sessions import Session
from tests import places
from tests.commands import script_calls
from tests.hearing import hears
from tests.proxy import Proxy
from tests.signal_docs import arguments_of

pytestmark = [pytest.mark.versions, pytest.mark.cluster]


@pytest.fixture
def emails(mq_settings):
    return queues["emails"]


@pytest.fixture
def keys(emails):
    return emails.config.keys


def test_the_smallest_message_has_three_fields(emails, keys, redis_client):
    emails.publish("welcome")
    ((_, fields),) = redis_client.xrange(keys.ready)
    assert (sorted(fields), fields[b"data"]) == ([b"data", b"id", b"type"], b"null")


def test_data_arrives_as_it_was_sent(emails, keys, redis_client):
    sent = [None, True, 0, -1.5, "äöü 🎉", [], {}, [[]], {"a": [{}]}, 2**62, "", "\x00"]
    ids = []
    for data in sent:
        emails.publish("welcome", data)
        ids.append(emails.publish("welcome", data, delay=60))
    delayed = places.delayed(redis_client, keys)
    assert [message["data"] for message in places.ready(redis_client, keys)] == sent
    assert [delayed[message_id]["data"] for message_id in ids] == sent


def test_a_delay_counts_from_redis_s_clock(emails, keys, redis_client):
    before = places.now_ms(redis_client)
    first = emails.publish("remind", 1, delay=timedelta(minutes=2))
    second = emails.publish("remind", 2, delay=90.5)
    after = places.now_ms(redis_client)
    assert before + 120_000 <= redis_client.zscore(keys.due, first) <= after + 120_001
    assert before + 90_500 <= redis_client.zscore(keys.due, second) <= after + 90_501
    assert places.ready(redis_client, keys) == []


def test_a_moment_is_the_same_in_every_zone(emails, keys, redis_client, subtests):
    for moment in [
        datetime(2033, 5, 18, 3, 33, 20, tzinfo=UTC),
        datetime(2033, 5, 18, 5, 33, 20, tzinfo=timezone(timedelta(hours=2))),
    ]:
        with subtests.test(moment=moment):
            message_id = emails.publish("remind", 1, deliver_at=moment)
            assert redis_client.zscore(keys.due, message_id) == 2_000_000_000_000


def test_a_delayed_message_says_when_it_was_published(emails, keys, redis_client):
    emails.publish("remind", 1, delay=60)
    emails.publish_many([("remind", 2)], delay=60)
    for body in places.delayed(redis_client, keys).values():
        assert abs(body["time"] / 1000 - time.time()) < 60


def test_many_messages_keep_their_order(emails, keys, redis_client):
    ids = emails.publish_many(("welcome", n) for n in range(2500))
    found = places.ready(redis_client, keys)
    assert [message["data"] for message in found] == list(range(2500))
    assert [message["id"] for message in found] == ids
    assert len(set(ids)) == 2500


def test_a_batch_of_large_messages_goes_in_several_calls(emails, keys, redis_client):
    text = "x" * 200_000
    before = script_calls(redis_client)
    emails.publish_many([("large", text)] * 50)
    assert script_calls(redis_client) - before >= 2
    assert redis_client.xlen(keys.ready) == 50


def test_publishing_nothing_writes_nothing(emails, keys, redis_client):
    assert emails.publish_many([]) == []
    assert places.is_empty(redis_client, keys)


def test_what_cannot_be_sent_is_refused_at_the_call_and_nothing_is_written(emails, keys, redis_client, subtests):
    """What that is, see tests/core/test_publication.py."""
    for name, data, options in [
        ("", 1, {}),
        ("welcome", {1, 2}, {}),
        ("welcome", 1, {"delay": -1}),
        ("welcome", 1, {"headers": {"a": "\ud800"}}),
        ("welcome", 1, {"unique": "cart:7"}),
    ]:
        with subtests.test(name=name, data=data, options=options):
            with pytest.raises(InvalidMessage):
                emails.publish(name, data, **options)
            assert places.is_empty(redis_client, keys)


def test_one_bad_message_of_many_refuses_all(emails, keys, redis_client):
    with pytest.raises(InvalidMessage):
        emails.publish_many([("welcome", n) for n in range(1500)] + [("welcome", {1})])
    assert places.is_empty(redis_client, keys)


def test_data_may_be_as_large_as_the_queue_takes_and_not_larger(mq_settings, redis_client):
    mq_settings(QUEUES={"emails": {"MAX_SIZE": 100}})
    queue = queues["emails"]
    queue.publish("fits", "x" * 98)
    with pytest.raises(MessageTooLarge, match="101 bytes of data are more than the 100"):
        queue.publish("large", "x" * 99)
    assert redis_client.xlen(queue.config.keys.ready) == 1


def test_queues_are_a_mapping_in_which_groups_of_topics_are_found_too(mq_settings):
    mq_settings(TOPICS={"orders": {}})
    assert list(queues) == ["default", "emails"]
    assert "emails" in queues
    assert "orders:billing" in queues
    assert "nowhere" not in queues
    assert "nowhere:billing" not in queues
    assert queues.get("nowhere") is None
    assert queues.get("emails") is queues["emails"]


def test_whoever_listens_gets_the_message_also_one_that_a_unique_key_kept_out(emails):
    with hears(message_published) as given:
        first = emails.publish("remind", {"n": 1}, key="a", delay=60, unique="u")
        emails.publish("remind", {"n": 2}, delay=60, unique="u", on_conflict="keep")
        emails.publish_many([("welcome", 3)], headers={"tenant": "b"})
    (_, written), (holder, left_out), (last, third) = [(each["message_id"], each["message"]) for each in given]
    assert (written.id, written.name, written.data, written.key) == (first, "remind", {"n": 1}, "a")
    assert (holder, left_out.data) == (first, {"n": 2})
    assert left_out.id != first
    assert (third.id, third.data, third.headers) == (last, 3, {"tenant": "b"})


def test_nothing_but_a_timeout_of_the_handler_comes_out_of_a_listener(mq_settings, caplog):
    """Nor what the logging of a project does with its error."""

    def unusable(record):
        raise AttributeError("request")

    mq_settings(QUEUES={"emails": {}})
    log = logging.getLogger("django.dispatch")
    for raises, filters in ((SystemExit("no"), []), (RuntimeError("no"), [unusable])):
        log.filters += filters
        try:
            with hears(message_published, raises=raises):
                queues["emails"].publish("welcome")
        finally:
            log.filters[:] = []
    assert caplog.messages == ["A receiver of a signal failed"] * 2
    with hears(message_published, raises=HandlerTimeout("late")), pytest.raises(HandlerTimeout):
        queues["emails"].publish("welcome")


def test_a_listener_that_fails_does_not_fail_the_publish(mq_settings, caplog):
    mq_settings(QUEUES={"emails": {}}, TOPICS={"orders": {}})
    with hears(message_published, raises=RuntimeError("no")), hears(message_published) as told:
        ids = [queues["emails"].publish("welcome", 1), topics["orders"].publish("paid", 1)]
        ids += queues["emails"].publish_many([("remind", 2), ("remind", 3)])
    assert [arguments["message_id"] for arguments in told] == ids
    assert {frozenset(arguments) for arguments in told} == {frozenset(arguments_of(message_published))}
    assert {arguments["sender"] for arguments in told} == {Queue, Topic}
    assert [record.exc_info[0] for record in caplog.records if record.name == "django.dispatch"] == [RuntimeError] * 4


def test_a_key_of_ours_that_holds_something_else_is_an_error_and_nothing_is_written(emails, keys, redis_client):
    redis_client.set(keys.ready, "mine")
    with pytest.raises(WrongKeyType):
        emails.publish("welcome", 1)
    redis_client.set(keys.waiting, "mine")
    with pytest.raises(WrongKeyType):
        emails.publish("remind", 1, delay=60)
    assert not redis_client.exists(keys.due)
    assert list(redis_client.scan_iter(match=f"{keys.namespace}:*counters*")) == []


def test_a_broken_counter_keeps_no_message_out(emails, keys, redis_client):
    now = time.time()
    for hour in (now // 3600, (now + 60) // 3600):
        redis_client.set(keys.minutes(int(hour)), "mine")
    emails.publish("welcome", 1)
    emails.publish_many([("welcome", 2), ("remind", 3)])
    assert redis_client.xlen(keys.ready) == 3
    (hours,) = redis_client.scan_iter(match=f"{keys.namespace}:*counters:h*")
    counted = redis_client.hgetall(hours)
    assert sorted(value for field, value in counted.items() if b"|published|" in field) == [b"1", b"2", b"3"]


def test_beyond_a_thousand_names_an_hour_the_rest_are_counted_together(emails, keys, redis_client):
    for at in range(0, 1500, 500):
        emails.publish_many([(f"name-{n}", 1) for n in range(at, at + 500)])
    emails.publish("name-1499", 1)
    emails.publish("name-7", 1)
    session = Session(get_client("produce"))
    session.pipeline([Slots(keys).add_command({("handled", f"late-{n}"): 2 for n in range(100)})])
    session.pipeline([Slots(keys).add_command({("handled", "name-7"): 3})])
    now_ms = places.now_ms(redis_client)
    day = now_ms // 86_400_000
    days = {each * 24: redis_client.hgetall(keys.hours(each)) for each in (day - 1, day)}
    counted = activity_of(days, Period.up_to(now_ms, slot=60, steps=2))
    assert (sum(counted.published), sum(counted.handled)) == (1502, 203)
    by_name = {found.name: found for found in counted.names}
    assert len(by_name) == 1001
    assert (by_name["*"].published, by_name["*"].handled) == (501, 200)
    assert (by_name["name-7"].published, by_name["name-7"].handled) == (2, 3)
    assert redis_client.hlen(keys.hours(day)) < 2100


def test_a_unique_key_that_waits_can_be_an_error(emails, keys, redis_client):
    emails.publish("remind", 1, delay=60, unique="cart:7", on_conflict="error")
    with pytest.raises(AlreadyPublished):
        emails.publish("remind", 2, delay=1, unique="cart:7", on_conflict="error")
    (body,) = places.delayed(redis_client, keys).values()
    assert body["data"] == 1


def test_coroutines_publish_too(emails, keys, redis_client):
    async def publish():
        first = await emails.apublish("welcome", 1, delay=60)
        second, third = await emails.apublish_many([("welcome", 2), ("welcome", 3)])
        assert await emails.acancel(first)
        assert not await emails.acancel(first)
        return [second, third]

    ids = asyncio.run(publish())
    assert [message["id"] for message in places.ready(redis_client, keys)] == ids
    assert places.delayed(redis_client, keys) == {}


@pytest.fixture
def lossy_way(mq_settings, redis_url):
    way = Proxy(redis_url)
    mq_settings(CONNECTION=way.url)
    yield way
    close_clients()
    way.close()


@pytest.mark.single_server(why="the nodes of a cluster name each other, and not the proxy before one of them")
def test_a_lost_reply_is_an_error_and_no_second_message(lossy_way, redis_client):
    queue = queues["emails"]
    for options in ({}, {"delay": 60}):
        lossy_way.lose_replies(0)
        queue.publish("welcome", 1, **options)
        lossy_way.lose_replies()
        with pytest.raises(ConnectionLost):
            queue.publish("welcome", 2, **options)
    keys = queue.config.keys
    assert (redis_client.xlen(keys.ready), redis_client.zcard(keys.due)) == (2, 2)
