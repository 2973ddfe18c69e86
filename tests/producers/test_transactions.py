import logging
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction

from mq_django import queues
from mq_django.core.schedules import Scheduled, every
from mq_django.errors import AlreadyPublished, ConnectionLost, InvalidMessage
from mq_django.stores.schedule_state import Schedules
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests import places

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


@pytest.fixture
def emails(mq_settings):
    return queues["emails"]


@pytest.fixture
def keys(emails):
    return emails.config.keys


@contextmanager
def rolled_back():
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def now(queue, **options):
    return queue.publish("welcome", 1, **options)


def delayed(queue, **options):
    return queue.publish("remind", 1, delay=timedelta(hours=1), **options)


def bulk(queue, **options):
    return queue.publish_many([("welcome", 1), ("welcome", 2)], **options)


def delayed_bulk(queue, **options):
    return queue.publish_many([("remind", 1), ("remind", 2)], delay=60, **options)


def unique(queue, **options):
    return queue.publish("remind", 1, delay=60, unique="cart:7", **options)


def prioritised(queue, **options):
    return queue.publish("remind", 1, priority=50, **options)


def at_a_moment(queue, **options):
    return queue.publish("remind", 1, deliver_at=datetime.now(UTC) + timedelta(hours=1), **options)


def claimed(queue, **options):
    return queue.publish("sync", 1, unique="shop:7", unique_for="handled", **options)


def claimed_for_a_time(queue, **options):
    return queue.publish("sync", 1, unique="shop:7", unique_for=60, **options)


def claimed_and_delayed(queue, **options):
    return queue.publish("sync", 1, unique="shop:7", unique_for="handled", delay=60, **options)


def expiring(queue, **options):
    return queue.publish("code", 1, expires=timedelta(minutes=5), **options)


CLAIMS = [claimed, claimed_for_a_time, claimed_and_delayed]
KINDS = [now, delayed, at_a_moment, bulk, delayed_bulk, unique, prioritised, expiring, *CLAIMS]
every_kind = pytest.mark.parametrize("publish", KINDS)


@every_kind
def test_a_publish_waits_for_the_commit(emails, keys, redis_client, publish):
    with transaction.atomic():
        ids = publish(emails)
        assert ids
        assert places.is_empty(redis_client, keys)
    found = [message["id"] for message in places.ready(redis_client, keys)]
    found += [body.get("id", member) for member, body in places.delayed(redis_client, keys).items()]
    assert sorted(found) == sorted(ids if isinstance(ids, list) else [ids])


@every_kind
def test_a_rollback_leaves_nothing(emails, keys, redis_client, publish):
    with rolled_back():
        publish(emails)
    assert places.is_empty(redis_client, keys)


@every_kind
def test_a_savepoint_that_is_rolled_back_leaves_nothing(emails, keys, redis_client, publish):
    with transaction.atomic(), rolled_back():
        publish(emails)
    assert places.is_empty(redis_client, keys)


@every_kind
def test_a_publish_that_need_not_wait_is_sent_at_once_and_survives_a_rollback(emails, keys, redis_client, publish):
    with rolled_back():
        publish(emails, on_commit=False)
        assert not places.is_empty(redis_client, keys)
    assert not places.is_empty(redis_client, keys)


@every_kind
def test_a_publish_waits_for_the_database_it_names_and_no_other(emails, keys, redis_client, publish):
    with transaction.atomic(using="other"):
        with transaction.atomic():
            publish(emails, using="other")
        assert places.is_empty(redis_client, keys)
    assert not places.is_empty(redis_client, keys)


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_that_is_rolled_back_leaves_its_key_free(emails, keys, redis_client, claim):
    with transaction.atomic():
        with rolled_back():
            claim(emails)
        first = claim(emails)
    assert claim(emails, on_conflict="keep") == first
    assert redis_client.hlen(keys.claims) == 2


def test_the_second_of_two_claims_in_one_transaction_is_refused_after_the_commit(emails, keys, redis_client):
    def claim_twice():
        with transaction.atomic():
            claimed(emails)
            claimed(emails)

    with pytest.raises(AlreadyPublished):
        claim_twice()
    assert len(places.ready(redis_client, keys)) == 1


def test_a_scheduled_tick_waits_for_nobody_s_commit(emails, keys, redis_client):
    entry = Scheduled(name="n", queue="emails", message="report", data=1, when=every(minutes=1))
    with rolled_back():
        Schedules(emails.config, Pooled(get_client("consume"))).fire_now(entry)
    assert len(places.ready(redis_client, keys)) == 1


def test_outside_of_its_own_database_s_transaction_a_publish_is_sent_at_once(emails, keys, redis_client):
    with transaction.atomic(using="other"):
        emails.publish("welcome", 1)
        assert len(places.ready(redis_client, keys)) == 1


def test_a_delay_counts_from_the_commit(emails, keys, redis_client):
    with transaction.atomic():
        message_id = emails.publish("remind", 1, delay=60)
        before = places.now_ms(redis_client)
    assert redis_client.zscore(keys.due, message_id) >= before + 60_000


def test_bad_data_is_refused_before_the_commit(emails, keys, redis_client):
    with pytest.raises(InvalidMessage), transaction.atomic():
        emails.publish("welcome", {1})
    assert places.is_empty(redis_client, keys)


def test_a_cancellation_waits_for_the_commit(emails, keys, redis_client):
    message_id = emails.publish("remind", 1, delay=60)
    with rolled_back():
        assert emails.cancel(message_id) is None
    assert list(places.delayed(redis_client, keys)) == [message_id]
    with transaction.atomic():
        assert emails.cancel(message_id) is None
        assert list(places.delayed(redis_client, keys)) == [message_id]
    assert places.delayed(redis_client, keys) == {}


def test_a_publish_and_its_cancellation_in_one_transaction_leave_nothing(emails, keys, redis_client):
    with transaction.atomic():
        emails.cancel(emails.publish("remind", 1, delay=60))
    assert places.delayed(redis_client, keys) == {}


def test_what_fails_after_the_commit_is_raised_unless_it_is_robust(mq_settings, caplog):
    mq_settings(CONNECTION="redis://127.0.0.1:1")
    with pytest.raises(ConnectionLost), transaction.atomic():
        queues["emails"].publish("welcome", 1)
    with caplog.at_level(logging.ERROR), transaction.atomic():
        queues["emails"].publish("welcome", 1, robust=True)
    assert "Cannot reach Redis" in caplog.text
