"""Relays: rows become messages, once, whoever publishes them and whatever happens meanwhile."""

from itertools import chain

import pytest
from django.db import connections, transaction

from mq_django import queues, topics
from mq_django.inspector.outbox_views import discard, outboxes, page_of
from mq_django.models import OutboxMessage, OutboxState
from mq_django.outbox.claims import NO_CLAIM
from tests.outbox.conftest import TABLES, on_each_database
from tests.outbox.relays import claimed, partition, publish, ready, relay, rows, run, states

pytestmark = pytest.mark.usefixtures("quick")


@pytest.mark.versions
@pytest.mark.cluster
@on_each_database
def test_a_committed_row_is_published_once(alias, mq_settings, redis_client):
    mq_settings(QUEUES={"mails": {"OUTBOX": True}})
    with transaction.atomic(using=alias):
        ids = publish(alias, "mails", 1000)
    assert rows(alias).count() == 1000

    run(relay(alias))

    assert ready(redis_client, "mails") == ids
    assert not rows(alias).exists()
    run(relay(alias))
    assert len(ready(redis_client, "mails")) == 1000


def test_one_publish_of_a_queue_without_the_option_uses_the_outbox(sqlite, mq_settings, redis_client):
    mq_settings(QUEUES={"mails": {}})
    (message_id,) = publish(sqlite, "mails", 1, outbox=True)
    assert ready(redis_client, "mails") == []

    run(relay(sqlite))

    assert ready(redis_client, "mails") == [message_id]


def test_a_topic_with_partitions_gets_each_message_in_its_partition(alias, mq_settings, redis_client):
    mq_settings(QUEUES={}, TOPICS={"orders": {"OUTBOX": True, "PARTITIONS": 3}})
    ids = [topics["orders"].publish("paid", {}, key=f"k{n}", using=alias) for n in range(20)]

    run(relay(alias))

    parts = topics["orders"].config.parts
    found = {part.number: [f[b"id"].decode() for _, f in redis_client.xrange(part.keys.log)] for part in parts}
    assert sorted(chain.from_iterable(found.values())) == sorted(ids)
    assert all(message_id.endswith(f".{number}") for number, some in found.items() for message_id in some)


def test_rows_with_values_that_nobody_writes_stop_nothing(sqlite, mq_settings, redis_client, subtests):
    """SQLite stores text in columns of numbers, too."""
    odd = [
        *[("parts", value) for value in (0, -1, 10**9, "x")],
        *[("part", value) for value in (-2, 5, "x", 10**15)],
        *[("size", value) for value in ("x", -1)],
        *[("due_ms", value) for value in ("x", -1, 10**18)],
        *[(column, "x") for column in ("published_ms", "failed_ms")],
        *[("batch", value) for value in ("x", b"x", 0, 7, 2**62, -0.5, -2)],
        *[("id", value) for value in (-5, 2**60)],
    ]
    for partitions in (1, 4):
        # The number of partitions matters to those that name one.
        for column, value in odd if partitions == 4 else odd[8:]:
            with subtests.test(partitions=partitions, column=column, value=value):
                name = f"mails{partitions}"
                mq_settings(QUEUES={name: {"OUTBOX": True, "PARTITIONS": partitions}})
                first, second = publish(sqlite, name, 2)
                with connections[sqlite].cursor() as cursor:
                    cursor.execute(f"UPDATE mq_django_outbox SET {column} = %s WHERE message_id = %s", [value, first])
                for each in (relay(sqlite), relay(sqlite)):
                    run(each)
                places = [each.name for each in queues[name].config.each_part]
                published = {message_id for place in places for message_id in ready(redis_client, place)}
                assert second in published
                left = list(rows(sqlite).values_list("message_id", "batch"))
                assert left == ([] if first in published else [(first, 0)])
                assert (first in published) == (column not in ("due_ms", "batch", "id"))
                views = outboxes(database=sqlite)
                assert [row.message_id for row in page_of(sqlite, set_aside=True).rows] == [each for each, _ in left]
                assert sum(view.set_aside for view in views) == len(left)
                assert discard(sqlite) == len(left)
                assert not rows(sqlite).exists()
                with connections[sqlite].cursor() as cursor:
                    cursor.execute("DELETE FROM sqlite_sequence")


@on_each_database
def test_rows_in_no_open_claim_are_set_aside(alias, mq_settings, redis_client):
    mq_settings(QUEUES={name: {"OUTBOX": True} for name in ("mails", "others")})
    publish(alias, "others", 3)
    claimed(partition(alias, "others"))
    first, second = publish(alias, "mails", 2)
    rows(alias).filter(message_id=first).update(batch=7)
    run(relay(alias, take_over=1000.0))
    OutboxState.objects.using(alias).filter(parts=0).update(number=2**63 - 1)
    (third,) = publish(alias, "mails", 1)

    run(relay(alias, take_over=1000.0))

    assert ready(redis_client, "mails") == [second, third]
    assert [(row.message_id, row.error) for row in rows(alias).filter(batch=0)] == [(first, NO_CLAIM)]
    assert rows(alias).filter(batch=1).count() == 3
    run(relay(alias))
    assert len(ready(redis_client, "others")) == 3


def test_states_with_values_that_nobody_writes_stop_nothing(sqlite, mq_settings, redis_client, subtests):
    """As for rows: each message is published, or set aside with an error."""
    odd = [
        *[("number", value) for value in ("x", b"x", -1, -2, 7, 2**53, 2**63 - 1)],
        *[(column, value) for column in ("part", "parts") for value in ("x", -7, 9, 2**62)],
        ("problem_ms", "x"),
    ]
    for partitions, lock in ((1, False), (4, False), (4, True)):
        # Only rows with partitions have columns for these.
        for column, value in odd[7:] if partitions == 4 and not lock else odd[:7]:
            for is_open in (False, True):
                with subtests.test(partitions=partitions, lock=lock, column=column, value=value, is_open=is_open):
                    name = f"mails{partitions}"
                    mq_settings(QUEUES={name: {"OUTBOX": True, "PARTITIONS": partitions}})
                    for _ in range(2):
                        before = publish(sqlite, name, 1, key="k")
                        run(relay(sqlite))
                    if is_open:
                        before = publish(sqlite, name, 1, key="k")
                        parts, part = rows(sqlite).values_list("parts", "part").last()
                        relay(sqlite)._partition(name, parts, part)._tables.claim(queues[name].config, part, parts)
                    with connections[sqlite].cursor() as cursor:
                        kind = "parts = 0" if lock else "parts > 0"
                        cursor.execute(f"UPDATE mq_django_outbox_state SET {column} = %s WHERE {kind}", [value])
                    after = publish(sqlite, name, 2)
                    for each in (relay(sqlite), relay(sqlite)):
                        run(each)
                    places = [each.name for each in queues[name].config.each_part]
                    published = [message_id for place in places for message_id in ready(redis_client, place)]
                    assert set(after) <= set(published)
                    aside = {row.message_id for row in page_of(sqlite, set_aside=True).rows if row.error}
                    assert set(before) - set(published) == aside
                    assert rows(sqlite).count() == len(aside)
                    for table in TABLES[:2]:
                        table.objects.using(sqlite).all().delete()
                    redis_client.delete(*(each.keys.outbox for each in queues[name].config.each_part))


def test_an_open_claim_of_another_process_is_continued_only_after_a_time(sqlite, mq_settings, redis_client):
    mq_settings(QUEUES={"mails": {"OUTBOX": True}})
    ids = publish(sqlite, "mails", 5)
    ended = relay(sqlite)
    for _ in ended.steps():
        ended._partition("mails", 1, -1)._tables.claim(queues["mails"].config, -1, 1)

    patient = relay(sqlite, take_over=1000.0)
    run(patient)
    assert ready(redis_client, "mails") == []

    run(relay(sqlite))
    assert ready(redis_client, "mails") == ids
    assert not rows(sqlite).exists()


def test_rows_that_were_set_aside_are_no_work(sqlite, mq_settings, django_assert_num_queries):
    mq_settings(QUEUES={"mails": {"OUTBOX": True}})
    publish(sqlite, "mails", 3)
    rows(sqlite).update(batch=0, error="too late")

    found = relay(sqlite)

    assert list(found.steps()) == []
    with django_assert_num_queries(1, using=sqlite):
        list(found.steps())


def test_a_full_queue_holds_up_only_itself(alias, mq_settings, redis_client):
    mq_settings(QUEUES={"full": {"OUTBOX": True, "MAX_DEPTH": 7}, "mails": {"OUTBOX": True}})
    wanted = publish(alias, "full", 20)
    others = publish(alias, "mails", 5)
    found = relay(alias)

    run(found)

    assert ready(redis_client, "mails") == others
    assert ready(redis_client, "full") == wanted[:7]
    assert found.is_waiting
    redis_client.xtrim(queues["full"].config.keys.ready, maxlen=0, approximate=False)
    run(found)
    assert ready(redis_client, "full") == wanted[7:14]
    redis_client.xtrim(queues["full"].config.keys.ready, maxlen=0, approximate=False)
    run(found)
    assert ready(redis_client, "full") == wanted[14:]
    assert not rows(alias).exists()


def test_a_claim_that_another_process_has_finished_is_no_work(sqlite, mq_settings, redis_client):
    mq_settings(QUEUES={"full": {"OUTBOX": True, "MAX_DEPTH": 2}})
    publish(sqlite, "full", 3)
    found = relay(sqlite)
    run(found)
    assert found.is_waiting
    redis_client.xtrim(queues["full"].config.keys.ready, maxlen=0, approximate=False)
    run(relay(sqlite))

    run(found)

    assert not found.is_waiting


@on_each_database
def test_after_repartitioning_rows_go_to_the_new_partitions_in_order(alias, mq_settings, redis_client):
    mq_settings(QUEUES={"pay": {"OUTBOX": True, "ORDERED": True, "PARTITIONS": 4}})
    old = [publish(alias, "pay", 300, key=key) for key in ("a", "b", "c")]
    mq_settings(QUEUES={"pay": {"OUTBOX": True, "ORDERED": True, "PARTITIONS": 3}})
    new = [publish(alias, "pay", 100, key=key) for key in ("a", "b", "c")]

    run(relay(alias))

    found = {n: ready(redis_client, f"pay.{n}") for n in range(3)}
    for earlier, later in zip(old, new, strict=True):
        ids = [message_id for some in found.values() for message_id in some if message_id in {*earlier, *later}]
        assert ids == earlier + later
    assert sum(map(len, found.values())) == 1200


def test_an_open_claim_is_split_by_its_mark_after_repartitioning(alias, mq_settings, redis_client, monkeypatch):
    mq_settings(QUEUES={"pay": {"OUTBOX": True, "PARTITIONS": 2}})
    ids = publish(alias, "pay", 40, key="a")
    ended = relay(alias)
    (_, step), *_ = ended.steps()
    monkeypatch.setattr("mq_django.outbox.relay.ROWS", 10)
    ended._partition("pay", 2, rows(alias)[0].part)._most = 10
    calls = []

    def fail(self, claim, refused):
        calls.append(claim)
        raise KeyboardInterrupt

    monkeypatch.setattr("mq_django.outbox.claims.OutboxTables.finish", fail)
    real, count = ended._partition("pay", 2, rows(alias)[0].part)._send, []

    def send_two(claim, chunk):
        if len(count) == 2:
            raise KeyboardInterrupt
        count.append(chunk)
        real(claim, chunk)

    ended._partition("pay", 2, rows(alias)[0].part)._send = send_two
    with pytest.raises(KeyboardInterrupt):
        step()
    monkeypatch.undo()
    before = [message_id for n in range(2) for message_id in ready(redis_client, f"pay.{n}")]
    assert 0 < len(before) < 40
    for key in redis_client.scan_iter(match="*{pay*control"):
        redis_client.hset(key, "partitions", 5)
    mq_settings(QUEUES={"pay": {"OUTBOX": True, "PARTITIONS": 5}})

    run(relay(alias))

    assert not rows(alias).exists()
    assert not states(alias).exclude(token="").exists()
    after = [
        f[b"id"].decode() for key in redis_client.scan_iter(match="*{pay*ready") for _, f in redis_client.xrange(key)
    ]
    assert sorted(after) == sorted(ids)


def test_rows_of_a_destination_that_is_not_configured_stay(sqlite, mq_settings, redis_client):
    mq_settings(QUEUES={"mails": {"OUTBOX": True}, "gone": {"OUTBOX": True}})
    publish(sqlite, "gone", 2)
    ids = publish(sqlite, "mails", 2)
    mq_settings(QUEUES={"mails": {"OUTBOX": True}})

    run(relay(sqlite))

    assert ready(redis_client, "mails") == ids
    assert OutboxMessage.objects.using(sqlite).filter(destination="gone").count() == 2


def test_a_relay_that_was_frozen_does_not_publish_a_claim_that_was_split(alias, mq_settings, redis_client):
    """Not even when the queue has its old number of partitions again."""
    mq_settings(QUEUES={"pay": {"OUTBOX": True, "PARTITIONS": 2}})
    ids = publish(alias, "pay", 5, key="a")
    frozen = claimed(partition(alias, "pay", rows(alias)[0].part))
    recorded = queues["pay"].config.keys.recorded
    redis_client.hset(recorded, "partitions", 5)
    mq_settings(QUEUES={"pay": {"OUTBOX": True, "PARTITIONS": 5}})
    run(relay(alias))
    redis_client.hset(recorded, "partitions", 2)

    frozen.advance()

    keys = redis_client.scan_iter(match="*{pay*ready")
    assert [f[b"id"].decode() for key in keys for _, f in redis_client.xrange(key)] == ids
    assert frozen.claim is None
