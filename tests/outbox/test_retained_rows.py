"""Rows that are kept until their messages are handled, so that what Redis loses can be published again."""

from datetime import timedelta

import pytest

from mq_django import queues
from mq_django.conf import get_config
from mq_django.core.messages import ACK, Bury, CancelResult, Expire, Retry
from mq_django.inspector import dead_letters
from mq_django.inspector.dead_letters import resubmit
from mq_django.outbox.claims import RETAINED
from mq_django.outbox.stored_rows import forget, republish, retained_count
from mq_django.stores.base import Settlement
from tests.outbox.conftest import on_each_database
from tests.outbox.relays import claimed, partition, publish, ready, relay, rows, run
from tests.purging import purge
from tests.seeding import opened

pytestmark = pytest.mark.usefixtures("quick")

KEEPS = {"OUTBOX": {"KEEP_UNTIL": "handled"}}
BURY = Bury("no such invoice")


@pytest.fixture(autouse=True)
def mails(mq_settings):
    mq_settings(QUEUES={"mails": KEEPS})


def published(alias, count, **options):
    """Publish messages by a relay, and return their ids."""
    ids = publish(alias, "mails", count, **options)
    run(relay(alias))
    return ids


def store(queue="mails"):
    return opened(queue)


def handle(outcome=ACK, count=100, queue="mails"):
    """Settle ready messages with an outcome."""
    found = store(queue)
    taken = found.take("me", count=count)
    found.settle("me", [Settlement(delivery, outcome) for delivery in taken])


def lose_everything(redis_client, namespace):
    """Empty the part of Redis that a test has."""
    for key in redis_client.scan_iter(f"{namespace}:*"):
        redis_client.delete(key)


def batches(alias):
    return list(rows(alias).values_list("batch", flat=True))


@on_each_database
def test_a_row_stays_until_its_message_is_handled(alias, redis_client):
    ids = published(alias, 3)
    assert ready(redis_client, "mails") == ids
    assert batches(alias) == [RETAINED] * 3

    handle(count=2)
    run(relay(alias))

    assert list(rows(alias).values_list("message_id", flat=True)) == ids[2:]


def test_a_retry_keeps_it_and_its_last_attempt_does_not(sqlite):
    published(sqlite, 1)
    handle(Retry(), count=1)
    run(relay(sqlite))
    assert batches(sqlite) == [RETAINED]

    store().promote(limit=10)
    handle()
    run(relay(sqlite))
    assert not rows(sqlite).exists()


def test_what_is_handled_before_its_claim_is_finished_is_deleted_after_it(alias, monkeypatch):
    publish(alias, "mails", 1)
    found = claimed(partition(alias, "mails"))
    with monkeypatch.context() as patch:
        patch.setattr(found._tables, "finish", lambda *_, **__: False)
        found.advance()
    handle()
    other = relay(alias, take_over=60.0)
    run(other)
    assert rows(alias).get().batch > 0

    run(relay(alias))
    run(relay(alias))
    assert not rows(alias).exists()


def test_a_dead_letter_keeps_its_row_until_it_is_gone(alias, mq_settings):
    ids = published(alias, 2)
    handle(BURY)
    run(relay(alias))
    assert batches(alias) == [RETAINED, RETAINED]

    dead_letters.delete_messages("mails", ids[:1])
    run(relay(alias))

    assert list(rows(alias).values_list("message_id", "batch")) == [(ids[1], RETAINED)]


def test_a_dead_letter_that_is_resubmitted_needs_its_row_no_longer_and_a_redriven_one_does(sqlite):
    first, second = published(sqlite, 2)
    handle(BURY)
    entries = [dead_letters.find("mails", each) for each in (first, second)]
    resubmit("mails", entries[0], '{"n": 1}')
    dead_letters.redrive("mails", entries[1:])
    run(relay(sqlite))
    assert list(rows(sqlite).values_list("message_id", flat=True)) == [second]


def test_a_message_that_expires_is_cancelled_deleted_or_replaced_needs_its_row_no_longer(sqlite):
    published(sqlite, 1)
    handle(Expire())
    (cancelled,) = published(sqlite, 1, delay=60)
    assert queues["mails"].cancel(cancelled, using=sqlite) is CancelResult.CANCELLED
    published(sqlite, 1)
    purge(get_config().queue("mails"), "ready")
    queues["mails"].publish("name", 1, delay=60, unique="u", using=sqlite)
    run(relay(sqlite))
    latest = queues["mails"].publish("name", 2, delay=60, unique="u", using=sqlite)

    run(relay(sqlite))
    run(relay(sqlite))

    assert list(rows(sqlite).values_list("message_id", flat=True)) == [latest]


def test_a_message_that_gives_way_to_another_with_its_unique_key_is_not_kept(sqlite):
    first = queues["mails"].publish("name", 1, delay=60, unique="u", on_conflict="keep", using=sqlite)
    run(relay(sqlite))
    queues["mails"].publish("name", 2, delay=60, unique="u", on_conflict="keep", using=sqlite)
    run(relay(sqlite))
    assert list(rows(sqlite).values_list("message_id", flat=True)) == [first]


@on_each_database
def test_what_redis_has_lost_is_published_again(alias, redis_client, namespace):
    ids = published(alias, 5)
    handle(count=2)
    run(relay(alias))
    lose_everything(redis_client, namespace)
    assert retained_count(alias, "mails") == 3

    assert republish(alias, get_config().queue("mails")) == 3
    run(relay(alias))

    assert ready(redis_client, "mails") == ids[2:]
    handle()
    run(relay(alias))
    assert not rows(alias).exists()


def test_what_was_handled_and_not_read_yet_is_not_published_again(sqlite, redis_client):
    published(sqlite, 3)
    handle(count=2)
    assert republish(sqlite, get_config().queue("mails")) == 1


def test_rows_are_forgotten(sqlite):
    published(sqlite, 3)
    publish(sqlite, "mails", 1)
    assert forget(sqlite, "mails") == 3
    assert batches(sqlite) == [None]


def test_another_message_with_the_same_id_that_is_not_published_yet_stays(sqlite):
    queues["mails"].publish("name", 1, message_id="mine", using=sqlite)
    run(relay(sqlite))
    handle()
    queues["mails"].publish("name", 2, message_id="mine", using=sqlite)

    run(relay(sqlite))

    assert batches(sqlite) == [RETAINED]


def test_two_databases_read_for_themselves(sqlite, postgres_alias):
    published(sqlite, 2)
    publish(postgres_alias, "mails", 2)
    run(relay(postgres_alias))
    handle()
    run(relay(sqlite))
    run(relay(postgres_alias))
    assert not rows(sqlite).exists()
    assert not rows(postgres_alias).exists()


@pytest.mark.parametrize("options", [{"ORDERED": True}, {"ORDERED": True, "PARTITIONS": 3}])
def test_queues_with_lines_and_partitions_keep_rows(sqlite, mq_settings, options):
    mq_settings(QUEUES={"mails": {**KEEPS, **options}})
    for number in range(6):
        queues["mails"].publish("name", number, key=f"k{number}", using=sqlite)
    run(relay(sqlite))
    assert batches(sqlite) == [RETAINED] * 6
    for part in get_config().queue("mails").each_part:
        handle(queue=part.name)
    run(relay(sqlite))
    assert not rows(sqlite).exists()


def test_what_was_handled_before_a_change_of_partitions_is_found(sqlite, mq_settings):
    mq_settings(QUEUES={"mails": {**KEEPS, "PARTITIONS": 2}})
    published(sqlite, 4)
    for part in get_config().queue("mails").each_part:
        handle(queue=part.name)
    mq_settings(QUEUES={"mails": KEEPS})
    run(relay(sqlite))
    assert not rows(sqlite).exists()


def test_a_key_of_another_type_stops_neither_consumers_nor_relays(sqlite, redis_client):
    keys = get_config().queue("mails").keys
    redis_client.set(keys.ended, "mine")
    ids = publish(sqlite, "mails", 1)
    found = partition(sqlite, "mails")
    found.advance()
    assert ready(redis_client, "mails") == ids
    handle()
    assert ready(redis_client, "mails") == []
    assert redis_client.get(keys.ended) == b"mine"


def test_without_the_option_nothing_is_noted(sqlite, redis_client, mq_settings):
    mq_settings(QUEUES={"mails": {"OUTBOX": True}})
    published(sqlite, 1)
    handle()
    assert not redis_client.exists(get_config().queue("mails").keys.ended)


def test_entries_that_each_outbox_has_read_are_deleted(sqlite, redis_client):
    key = get_config().queue("mails").keys.ended
    # One settling after another: each writes an entry.
    queues["mails"].publish_many([("name", 1)] * 250, outbox=False)
    found = store()
    for delivery in found.take("me", count=250):
        found.settle("me", [Settlement(delivery, ACK)])
    assert redis_client.xlen(key) == 250
    run(relay(sqlite))
    assert redis_client.xlen(key) == 0


def test_an_outbox_that_reads_no_more_is_not_waited_for(sqlite, redis_client):
    keys = get_config().queue("mails").keys
    redis_client.hset(keys.outbox, "0ther:1", "7 token 9 0")
    old_ms = redis_client.time()[0] * 1000 - 2 * 3600 * 1000
    for number in range(5):
        redis_client.xadd(keys.ended, {"x": ""}, id=f"{old_ms + number}-0")

    run(relay(sqlite))

    assert redis_client.xlen(keys.ended) == 0


def test_a_day_is_the_longest_that_entries_wait(redis_client):
    key = get_config().queue("mails").keys.ended
    old_ms = int(timedelta(days=2).total_seconds() * 1000)
    now_ms = redis_client.time()[0] * 1000
    for number in range(200):
        redis_client.xadd(key, {"x": ""}, id=f"{now_ms - old_ms + number}-0")
    queues["mails"].publish("name", 1, outbox=False)
    handle()
    assert redis_client.xlen(key) < 200
