import time
from datetime import UTC, datetime, timedelta

import pytest

from mq_django import handler, queues, registry
from mq_django.core.messages import LookupState
from mq_django.inspector import dead_letters
from mq_django.inspector.readers import ended
from tests import places
from tests.waiting import wait_until
from tests.working import work


@pytest.fixture
def ran(monkeypatch):
    monkeypatch.setattr(registry, "_handlers", {})
    found = []
    handler("emails", "code")(lambda message: found.append(message.data))
    return found


PAST = datetime.now(UTC) - timedelta(seconds=1)


def counted(client, keys, what):
    found = 0
    for key in client.scan_iter(match=f"{keys.namespace}:*counters:h*"):
        found += sum(int(n) for field, n in client.hgetall(key).items() if f"|{what}|code".encode() in field)
    return found


def test_what_is_too_old_is_not_handled_and_is_counted(emails, keys, redis_client, ran):
    emails.publish("code", "old", expires=PAST)
    emails.publish("code", "fresh", expires=timedelta(minutes=5))
    emails.publish("code", "for ever")
    work("emails")
    assert ran == ["fresh", "for ever"]
    assert (counted(redis_client, keys, "expired"), counted(redis_client, keys, "handled")) == (1, 2)
    assert not redis_client.xlen(keys.ready)


def test_what_has_expired_is_found_by_its_id(emails, keys, redis_client, ran):
    before = places.now_ms(redis_client)
    message_id = emails.publish("code", "old", expires=PAST)
    work("emails")
    found = emails.find(message_id)
    assert (found.state, found.message, bool(found)) == (LookupState.EXPIRED, None, False)
    assert before <= found.expired_ms <= places.now_ms(redis_client)
    assert ended("emails", message_id) == (LookupState.EXPIRED, found.expired_ms)
    assert emails.find("other").state is LookupState.NOT_WAITING


@pytest.mark.parametrize("options", [{}, {"STORE": "rsmq"}])
def test_a_key_of_another_type_in_place_of_expired_messages_hides_no_message(
    mq_settings, namespace, redis_client, options
):
    mq_settings(QUEUES={"emails": {**options, **({"NAMESPACE": namespace} if options else {})}})
    emails = queues["emails"]
    redis_client.set(emails.config.keys.expired, "text")
    message_id = emails.publish("code", 1, delay=60)
    assert emails.find(message_id).state is LookupState.DELAYED
    assert emails.find("other").state is LookupState.NOT_WAITING


def test_the_ids_of_expired_messages_are_bounded_in_number_and_time(emails, keys, redis_client, ran):
    now = places.now_ms(redis_client)
    redis_client.zadd(keys.expired, {f"m{number}": now - number for number in range(10_000)})
    redis_client.zadd(keys.expired, {"last week": now - 7 * 86_400_000 - 1})
    message_id = emails.publish("code", "old", expires=PAST)
    work("emails")
    assert redis_client.zcard(keys.expired) == 10_000
    assert redis_client.zmscore(keys.expired, ["last week", "m9999", "m9998", message_id]).count(None) == 2
    assert 0 < redis_client.pttl(keys.expired) <= 7 * 86_400_000


def test_expired_messages_are_buried_where_the_queue_says_so(mq_settings, redis_client, ran, caplog):
    mq_settings(QUEUES={"emails": {"ON_EXPIRE": "bury"}})
    message_id = queues["emails"].publish("code", "old", expires=PAST)
    work("emails")
    entry = dead_letters.find("emails", message_id)
    letter = dead_letters.get("emails", entry)
    assert (letter.reason, letter.data) == ("expired", "old")
    assert letter.error == "mq_django.errors.MessageExpired: expired before it was handled"
    assert f"Message {message_id} (code) of queue emails will be buried after attempt 1" in caplog.text
    assert queues["emails"].find(message_id).state is LookupState.NOT_WAITING
    # A redriven message does not expire again.
    assert dead_letters.redrive("emails", [entry]).done == 1
    work("emails")
    assert ran == ["old"]


def test_a_message_can_be_too_old_by_the_time_it_is_due(emails, keys, redis_client, ran):
    published = time.time()
    (message_id,) = emails.publish_many([("code", "old")], delay=0.01, expires=0.02)
    wait_until(lambda: time.time() > published + 0.05)
    assert emails.find(message_id).state is LookupState.DELAYED
    work("emails")
    assert ran == []
    assert counted(redis_client, keys, "expired") == 1
    assert not redis_client.exists(keys.due, keys.waiting)


def test_an_expired_message_keeps_neither_its_key_nor_its_place(emails, keys, redis_client, ran):
    emails.publish("code", "old", expires=PAST, unique="user:7", unique_for="handled", priority=5)
    work("emails")
    emails.publish("code", "new", unique="user:7", unique_for="handled")
    work("emails")
    assert ran == ["new"]
    assert not redis_client.exists(keys.claims)
    assert places.ready(redis_client, keys) == []
