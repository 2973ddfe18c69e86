"""Rows are written in the transaction of the caller, with all that the message needs."""

from datetime import timedelta

import pytest
from django.db import connections, transaction

from mq_django import queues, topics
from mq_django.conf import get_config
from mq_django.core.publication import publication
from mq_django.errors import InvalidMessage, NoOutbox, NotSupported
from mq_django.models import OutboxMessage
from mq_django.outbox.rows import publication_of
from mq_django.task_backend.compat import task_enqueued
from tests.hearing import hears
from tests.outbox.conftest import on_each_database
from tests.outbox.relays import publish, ready, relay, rolled_back, row_of, rows, run
from tests.testapp import tasks

pytestmark = pytest.mark.usefixtures("quick")


def test_a_publication_comes_back_as_it_was(mq_settings):
    config = get_config().queue("emails")
    for options in (
        {},
        {"key": "order:7", "headers": {"traceparent": "00-ä"}, "priority": 5},
        {"deliver_at": None, "expires": 600},
        {"unique": "u", "unique_for": "handled", "on_conflict": "keep"},
        {"unique": "u", "unique_for": 60, "on_conflict": "error"},
        {"message_id": "mine", "once": True},
        {"runs_task": True},
    ):
        made = publication(config, "wörld", {"a": [1, "ü\u2028", {"data": None}], "b": ',"data":{'}, **options)
        assert publication_of(row_of(made), config) == made


def test_a_delay_counts_from_the_publish(mq_settings, monkeypatch):
    monkeypatch.setattr("mq_django.core.clock.now_ms", lambda: 1_800_000_000_000)
    config = get_config().queue("emails")
    made = publication(config, "x", 1, delay=60, unique="u", at_most=90)
    row = row_of(made)
    assert row.due_ms == row.published_ms + 60_000
    assert publication_of(row, config) == made._replace(options=made.options._replace(delay_ms=None, due_ms=row.due_ms))


def test_one_statement_writes_a_thousand_rows(postgres_alias, django_assert_num_queries, mq_settings):
    with rolled_back(postgres_alias), django_assert_num_queries(1, using=postgres_alias):
        publish(postgres_alias, "emails", 1000, outbox=True)


def test_a_savepoint_that_is_rolled_back_takes_its_rows_with_it(alias, mq_settings):
    with transaction.atomic(using=alias):
        (first,) = publish(alias, "emails", 1, outbox=True)
        with rolled_back(alias):
            publish(alias, "emails", 1, outbox=True)
    assert [row.message_id for row in rows(alias)] == [first]


@pytest.mark.versions
@on_each_database
def test_texts_are_compared_exactly(alias, mq_settings, redis_client):
    """MariaDB ignores case by default."""
    mq_settings(QUEUES={"Mails": {"OUTBOX": True}, "mails": {"OUTBOX": True}})
    upper, lower = publish(alias, "Mails", 2, key="Ä\U0001f600"), publish(alias, "mails", 2)

    run(relay(alias))

    assert (ready(redis_client, "Mails"), ready(redis_client, "mails")) == (upper, lower)


@on_each_database
def test_a_database_that_is_read_only_is_named(alias, mq_settings):
    statements = {
        "sqlite": ("PRAGMA query_only = 1", "PRAGMA query_only = 0"),
        "postgresql": ("SET default_transaction_read_only = on", "SET default_transaction_read_only = off"),
        "mysql": ("SET SESSION TRANSACTION READ ONLY", "SET SESSION TRANSACTION READ WRITE"),
    }
    begin, end = statements[connections[alias].vendor]
    with connections[alias].cursor() as cursor:
        cursor.execute(begin)
        try:
            with pytest.raises(NoOutbox, match=f"Database '{alias}' is read-only"):
                publish(alias, "emails", 1, outbox=True)
        finally:
            cursor.execute(end)


def test_an_ordered_queue_uses_the_outbox_for_all_messages_or_none(mq_settings):
    mq_settings(QUEUES={"a": {"ORDERED": True, "OUTBOX": True}, "b": {"ORDERED": True}})
    with pytest.raises(InvalidMessage, match="'a' has ORDERED"):
        queues["a"].publish("x", 1, outbox=False)
    with pytest.raises(InvalidMessage, match="'b' has ORDERED"):
        queues["b"].publish_many([("x", 1)], outbox=True)


def test_a_queue_in_the_format_of_rsmq_has_no_outbox(mq_settings):
    mq_settings(QUEUES={"jobs": {"STORE": "rsmq"}})
    with pytest.raises(NotSupported, match="no outbox"):
        queues["jobs"].publish("x", 1, outbox=True)


def test_what_is_published_to_one_group_of_a_topic_uses_no_outbox(mq_settings, redis_client):
    mq_settings(QUEUES={}, TOPICS={"orders": {"OUTBOX": True}})
    group = queues["orders:billing"]
    message_id = group.publish("x", 1)
    assert ready(redis_client, "orders:billing") == [message_id]
    with pytest.raises(NotSupported, match="only whole topics"):
        group.publish("x", 1, outbox=True)


def test_what_is_no_switch_is_refused(mq_settings):
    mq_settings(TOPICS={"orders": {}})
    for value in (1, "yes", []):
        with pytest.raises(InvalidMessage, match="outbox must be"):
            topics["orders"].publish("x", 1, outbox=value)


@pytest.fixture
def routed(sqlite, settings):
    """The alias of the database that a router chooses for rows."""

    class Router:
        def db_for_write(self, model, **_):
            return sqlite if model is OutboxMessage else None

    settings.DATABASE_ROUTERS = [Router()]
    return sqlite


def test_a_router_chooses_the_database(routed, mq_settings):
    message_id = queues["emails"].publish("x", 1, outbox=True)
    assert rows(routed).get().message_id == message_id


def test_a_task_is_announced_at_the_commit_of_its_row(routed, mq_settings):
    """Whatever `on_commit` says, which has no effect on a row."""
    mq_settings(QUEUES={"default": {"OUTBOX": True}, "emails": {}})
    with hears(task_enqueued) as told:
        for options in ({}, {"on_commit": False}):
            with rolled_back(routed):
                tasks.note.using(**options).enqueue(1)
            with transaction.atomic(using=routed):
                result = tasks.note.using(**options).enqueue(2)
                assert told == []
            assert [given["task_result"].id for given in told] == [result.id]
            told.clear()


def test_a_task_is_announced_at_once_where_nothing_says_when_its_row_is_committed(routed, mq_settings):
    mq_settings(QUEUES={"default": {"OUTBOX": True}, "emails": {}})
    transaction.set_autocommit(False, using=routed)
    try:
        with hears(task_enqueued) as told:
            result = tasks.note.enqueue(1)
        transaction.commit(using=routed)
    finally:
        transaction.set_autocommit(True, using=routed)
    assert [given["task_result"].id for given in told] == [result.id]
    assert rows(routed).get().message_id == result.id


def test_a_row_that_is_not_in_the_open_transaction_is_a_warning(routed, mq_settings, databases, recwarn):
    """It is committed alone. Who names the database is not warned."""
    with databases.added("business", "sqlite"), transaction.atomic(using="business"):
        said = rf"atomic\(using='business'\).*commit of database '{routed}'"
        with pytest.warns(RuntimeWarning, match=said) as warned:
            queues["emails"].publish("x", 1, outbox=True)
        queues["emails"].publish("x", 2, outbox=True, using=routed)
        with transaction.atomic(using=routed):
            queues["emails"].publish("x", 3, outbox=True)
    assert [warning.filename for warning in warned] == [__file__]
    assert list(recwarn) == []


def test_tasks_use_the_outbox_by_the_option_of_their_queue_and_by_using(sqlite, mq_settings, redis_client):
    mq_settings(QUEUES={"default": {}, "emails": {}})
    result = tasks.note.using(using=sqlite, outbox=True, delay=timedelta(seconds=0)).enqueue(1)
    assert rows(sqlite).get().message_id == result.id
    mq_settings(QUEUES={"default": {"OUTBOX": True}, "emails": {"OUTBOX": True}})
    found = tasks.note.using(using=sqlite).enqueue_many([(1,), (2,)])
    assert [row.message_id for row in rows(sqlite)] == [result.id, *(each.id for each in found)]
