"""Where publications go: to Redis in batches, at once or with the commit."""

import logging
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction

from mq_django import queues
from mq_django.core.messages import CancelResult
from mq_django.core.publication import publication, publications
from mq_django.core.queue_configs import DeliveryOptions, QueueConfig
from mq_django.core.schedules import Scheduled, every
from mq_django.errors import AlreadyPublished, ConnectionLost, InvalidMessage, NotSupported
from mq_django.producers.sinks import BATCH, BATCH_BYTES, RedisSink, send
from mq_django.signals import message_published
from mq_django.stores.schedules import Schedules
from mq_django.task_backend.compat import LOGGER
from mq_django.transport.connections import close_clients, get_client
from mq_django.transport.sessions import Pooled
from tests import places
from tests.hearing import hears
from tests.testapp import tasks

pytestmark = [pytest.mark.django_db(transaction=True, databases=["default", "other"]), pytest.mark.versions]

ANY = DeliveryOptions(name="any")


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


KINDS = [
    *(now, delayed, at_a_moment, bulk, delayed_bulk, unique, prioritised, expiring),
    *(claimed, claimed_for_a_time, claimed_and_delayed),
]


def written(redis_client, keys):
    """Return the ids of all messages, sorted."""
    found = [message["id"] for message in places.ready(redis_client, keys)]
    return sorted(found + [body.get("id", member) for member, body in places.delayed(redis_client, keys).items()])


@pytest.mark.cluster
def test_a_publish_waits_for_the_commit_of_its_database(emails, keys, redis_client, namespace, subtests):
    for publish in KINDS:
        with subtests.test(publish.__name__):
            with rolled_back():
                publish(emails)
            with transaction.atomic(), rolled_back():
                publish(emails)
            with transaction.atomic(using="other"):
                with transaction.atomic():
                    ids = publish(emails, using="other")
                assert places.is_empty(redis_client, keys)
            assert written(redis_client, keys) == sorted(ids if isinstance(ids, list) else [ids])
        for key in list(redis_client.scan_iter(match=f"{namespace}*")):
            redis_client.delete(key)


def test_a_publish_that_need_not_wait_is_sent_at_once_and_survives_a_rollback(emails, keys, redis_client):
    for publish in (now, bulk, unique, claimed):
        before = written(redis_client, keys)
        with rolled_back():
            publish(emails, on_commit=False)
            sent = written(redis_client, keys)
        assert len(before) < len(sent)
        assert written(redis_client, keys) == sent


def test_a_claim_that_is_rolled_back_leaves_its_key_free(emails, keys, redis_client):
    with transaction.atomic():
        with rolled_back():
            claimed(emails)
        first = claimed(emails)
    assert claimed(emails, on_conflict="keep") == first
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


def test_what_is_sent_in_the_transaction_of_another_database_is_one_warning_of_its_line(emails, caplog, subtests):
    for label, send_at_once in zip(
        ["publish", "publish_many", "cancel", "reschedule", "enqueue", "enqueue_many"],
        [
            lambda queue: queue.publish("welcome", 1),
            lambda queue: queue.publish_many([("welcome", 1)]),
            lambda queue: queue.cancel("5f2e"),
            lambda queue: queue.reschedule("5f2e", delay=1),
            lambda queue: tasks.noop.enqueue(),
            lambda queue: tasks.noop.enqueue_many([(), ()]),
        ],
        strict=True,
    ):
        with subtests.test(label):
            caplog.set_level(logging.DEBUG, logger=LOGGER)  # so that Django's signal is sent, too
            said = r"atomic\(using='other'\).*commit of database 'default'.*Pass using='other'"
            with transaction.atomic(using="other"), pytest.warns(RuntimeWarning, match=said) as warned:
                send_at_once(emails)
            assert [warning.filename for warning in warned] == [__file__]


def test_who_says_so_is_not_warned(emails, keys, redis_client):
    with transaction.atomic(using="other"):
        emails.publish("welcome", 1, on_commit=False)
        emails.publish("welcome", 1, using="default")
    assert len(places.ready(redis_client, keys)) == 2


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
        assert emails.cancel(message_id) is CancelResult.AT_COMMIT
        with pytest.raises(NotSupported, match=r"at the commit.*on_commit=False"):
            bool(emails.reschedule(message_id, delay=5))
    assert list(places.delayed(redis_client, keys)) == [message_id]
    with transaction.atomic():
        assert emails.cancel(message_id) is CancelResult.AT_COMMIT
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


class Recorded:
    """A sink, and what a RedisSink writes to: it keeps what it is given."""

    awaits = None

    def __init__(self):
        self.given = []

    def send(self, given):
        self.given.append(given)
        return ["another's"] * len(given)

    def publish(self, given):
        self.given.append(given)
        return [None if message.name == "known" else message.id for message, _, _ in given]


SOME_QUEUE = QueueConfig(name="emails", max_size=BATCH_BYTES)


def made(*names):
    return publications(SOME_QUEUE, [(name, 1) for name in names])


def test_any_sink_can_be_that_of_a_destination_and_of_the_commit():
    sink, some = Recorded(), made("a", "b")
    with transaction.atomic():
        ids = send(some, sink, using=None, on_commit=True, robust=False)
        assert (ids, sink.given) == ([item.message.id for item in some], [])
    assert sink.given == [some]
    assert sink.given[0] is some
    assert list(send(some, sink, using=None, on_commit=True, robust=False)) == ["another's"] * 2


def test_a_robust_one_that_fails_keeps_none_after_it_back(caplog):
    class Fails:
        def send(self, given):
            raise ConnectionLost("away")

    sink, some = Recorded(), made("a")
    with transaction.atomic():
        send(some, Fails(), using=None, on_commit=True, robust=True)
        send(some, sink, using=None, on_commit=True, robust=False)
    assert sink.given == [some]
    assert "OnCommitSink" in caplog.text


def test_redis_gets_batches_in_order(subtests):
    for sizes, batches in [
        ([1], [1]),
        ([1] * BATCH, [BATCH]),
        ([1] * (2 * BATCH + 1), [BATCH, BATCH, 1]),
        ([BATCH_BYTES - 3, 3], [2]),
        ([BATCH_BYTES - 3, 4], [1, 1]),
        ([BATCH_BYTES, BATCH_BYTES, 1, 1], [1, 1, 2]),
        # One that is longer than a batch may be goes alone.
        ([1, BATCH_BYTES + 1, 1], [1, 1, 1]),
    ]:
        with subtests.test(sizes=sizes, batches=batches):
            (pattern,) = made("a")
            some = [pattern._replace(data_text=b"x" * size) for size in sizes]
            log = Recorded()
            RedisSink(Recorded, lambda transport, log=log: log, ANY).send(some)
            assert [len(batch) for batch in log.given] == batches
            assert [item for batch in log.given for item in batch] == some


def test_who_listens_is_told_batch_by_batch_of_what_is_new():
    log = Recorded()
    sink = RedisSink(Recorded, lambda transport: log, ANY)
    some = made("known", "new", *["more"] * BATCH)
    with hears(message_published) as told:
        assert list(sink.send(some)) == [None, *(item.message.id for item in some[1:])]
    assert [told[0][what] for what in ("sender", "queue", "name")] == [Recorded, "emails", "new"]
    assert [given["message_id"] for given in told] == [item.message.id for item in some[1:]]

    class Away(Recorded):
        def publish(self, given):
            if self.given:
                raise ConnectionLost("away")
            return super().publish(given)

    away = Away()
    with hears(message_published) as told, pytest.raises(ConnectionLost):
        RedisSink(Recorded, lambda transport: away, ANY).send(some)
    assert len(told) == BATCH - 1


def test_a_store_is_opened_once_for_as_long_as_its_client_is_there(mq_settings):
    opened = []

    def open_log(transport):
        opened.append(transport)
        return Recorded()

    sink = RedisSink(Recorded, open_log, ANY)
    assert opened == []
    sink.send(made("a"))
    assert sink.store is sink.store
    assert len(opened) == 1
    close_clients()
    sink.send(made("a"))
    assert len(opened) == 2
    mq_settings(NAMESPACE="another")
    sink.send(made("a"))
    assert len(opened) == 3


def test_a_queue_that_was_looked_up_before_the_settings_changed_publishes_to_the_new_server(mq_settings, redis_url):
    mq_settings(CONNECTION="redis://127.0.0.1:1")
    before = queues["emails"]
    with pytest.raises(ConnectionLost):
        before.publish("welcome", 1)
    mq_settings(CONNECTION=redis_url)
    message_id = before.publish("welcome", 1, delay=60)
    assert queues["emails"] is not before
    assert queues["emails"] is queues["emails"]
    assert before.find(message_id)


def test_a_claim_that_another_has_is_known_under_the_other_s_id(emails):
    first = emails.publish("sync", 1, unique="shop:7", unique_for="handled")
    again = publication(emails.config, "sync", 2, unique="shop:7", unique_for="handled", on_conflict="keep")
    assert send([again], emails.sink, using=None, on_commit=True, robust=False) == [first]
