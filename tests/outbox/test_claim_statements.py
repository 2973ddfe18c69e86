"""The statements before a publish: their number, and what they find whatever other relays do meanwhile."""

from itertools import product

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

from mq_django import queues
from mq_django.models import OutboxMessage
from mq_django.outbox.claims import OutboxTables
from mq_django.outbox.relay import PartitionRelay
from tests.outbox.conftest import on_each_database
from tests.outbox.relays import claimed, partition, publish, ready, relay, rows, run, states

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(autouse=True)
def mails(mq_settings):
    mq_settings(QUEUES={"mails": {"OUTBOX": True}, "orders": {"OUTBOX": True}})


def claim(tables: OutboxTables, name: str = "mails"):
    return tables.claim(queues[name].config, -1, 1)


@pytest.mark.versions
@on_each_database
def test_before_a_publish_there_are_six_statements_and_a_commit(alias, monkeypatch):
    """The look, the lock, the claim, the candidates, their rows, and the number in these."""
    publish(alias, "mails", 1)
    found = relay(alias)
    run(found)
    publish(alias, "mails", 1)
    before, send = [], PartitionRelay._send

    def count(*args):
        before.append([query["sql"] for query in queries.captured_queries])
        send(*args)

    monkeypatch.setattr(PartitionRelay, "_send", count)
    with CaptureQueriesContext(connections[alias]) as queries:
        run(found)

    (statements,) = before
    assert len([sql for sql in statements if sql.startswith(("SELECT", "UPDATE"))]) == 6
    assert statements[-2 if alias == "outbox_sqlite" else -1] == "COMMIT"


@on_each_database
def test_a_claim_has_the_whole_rows(alias):
    queues["mails"].publish("a", {"n": 1}, key="k", delay=60, using=alias)
    queues["mails"].publish("b", {}, using=alias)

    found = claim(OutboxTables(alias))

    fields = [field.attname for field in OutboxMessage._meta.concrete_fields]
    values = [tuple(getattr(row, name) for name in fields if name != "batch") for row in found.rows]
    assert values == list(rows(alias).values_list(*(name for name in fields if name != "batch")))


@on_each_database
def test_a_claim_by_an_old_look_is_none(alias, redis_client):
    """Another relay has claimed meanwhile: whoever looked before that claims nothing under a number that is taken."""
    publish(alias, "mails", 1)
    run(relay(alias))
    publish(alias, "mails", 1)
    late = OutboxTables(alias)
    late.find_waiting()
    run(relay(alias))
    publish(alias, "mails", 1)

    assert claim(late) is None
    assert rows(alias).get().batch is None
    assert claim(late).name.number == 3


def test_a_look_counts_for_one_claim(alias):
    publish(alias, "mails", 1)
    run(relay(alias))
    publish(alias, "mails", 1)
    tables = OutboxTables(alias)
    tables.find_waiting()
    first = claim(tables)
    tables.finish(first, {})
    publish(alias, "mails", 1)

    assert claim(tables).name.number == first.name.number + 1


@on_each_database
def test_a_look_finds_open_claims_and_the_first_destination(alias):
    publish(alias, "mails", 1)
    publish(alias, "orders", 1)
    tables = OutboxTables(alias)
    assert tables.find_waiting() == ([], "mails")
    assert list(tables.destinations("mails")) == ["mails", "orders"]

    claimed(partition(alias, "mails"))

    opened, first = tables.find_waiting()
    assert [(state.destination, state.number, bool(state.token)) for state in opened] == [("mails", 1, True)]
    assert first == "orders"


@on_each_database
def test_a_stopped_place_is_no_open_claim(alias):
    publish(alias, "mails", 1)
    claimed(partition(alias, "mails"))
    states(alias).update(problem="a copy")
    publish(alias, "mails", 1)
    tables = OutboxTables(alias)

    assert tables.find_waiting() == ([], "mails")
    assert claim(tables) is None


@on_each_database
def test_rows_of_another_number_of_partitions_go_first(alias, mq_settings, redis_client):
    for parts, is_claimed in product((2, 5), (False, True)):
        name = f"pay-{parts}-{is_claimed}"
        mq_settings(QUEUES={name: {"OUTBOX": True, "ORDERED": True, "PARTITIONS": parts}})
        first = publish(alias, name, 1, key="a")
        if is_claimed:
            claimed(partition(alias, name, rows(alias).get().part))
        mq_settings(QUEUES={name: {"OUTBOX": True, "ORDERED": True, "PARTITIONS": 3}})
        second = publish(alias, name, 1, key="a")
        part = rows(alias).last().part

        assert OutboxTables(alias).claim(queues[name].config, part, 3) is None

        assert rows(alias).last().batch is None
        run(relay(alias))
        found = [message_id for number in range(3) for message_id in ready(redis_client, f"{name}.{number}")]
        assert found == first + second, name
