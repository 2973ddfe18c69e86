"""Rows that wait are found, cancelled, retried and discarded."""

from datetime import UTC, datetime

import pytest
from asgiref.sync import async_to_sync
from django.db import connections
from django.db.utils import ConnectionHandler
from django.test import TestCase

from mq_django import CancelResult, LookupState, await_result, get_result, queues, wait_result
from mq_django.conf import get_config
from mq_django.errors import CannotWait, NoOutbox, WaitTimeout
from mq_django.inspector import outbox_views
from mq_django.outbox import insertion
from mq_django.outbox.claims import OutboxTables
from mq_django.outbox.stored_rows import find_row
from mq_django.transport import test_mode
from tests.databases.fixtures import known
from tests.outbox.conftest import on_each_database
from tests.outbox.relays import publish, ready, relay, rolled_back, rows, run
from tests.testapp import tasks
from tests.working import work

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(autouse=True)
def only(monkeypatch, mq_settings):
    """Look at the databases of these tests only."""
    mq_settings(QUEUES={"default": {"OUTBOX": True}, "emails": {"OUTBOX": True}})
    ours = lambda: [alias for alias in connections if alias.startswith("outbox_")]  # noqa: E731
    monkeypatch.setattr("mq_django.outbox.stored_rows.aliases_with_rows", ours)


@pytest.fixture
def only_sqlite(sqlite, monkeypatch):
    """Let there be this database and no other."""
    found = ConnectionHandler({"default": {}, sqlite: connections.databases[sqlite]})
    del found.settings["default"]
    monkeypatch.setattr(insertion, "connections", found)
    yield sqlite
    found.close_all()


@on_each_database
def test_an_unclaimed_row_is_cancelled_in_the_transaction(alias, redis_client):
    first, second = publish(alias, "emails", 2)
    with rolled_back(alias):
        assert queues["emails"].cancel(first, using=alias) is CancelResult.CANCELLED
    assert rows(alias).count() == 2

    assert queues["emails"].cancel(first, using=alias) is CancelResult.CANCELLED

    run(relay(alias))
    assert ready(redis_client, "emails") == [second]


def test_a_claimed_row_is_not_cancelled(alias, redis_client):
    (message_id,) = publish(alias, "emails", 1)
    assert OutboxTables(alias).claim(get_config().queue("emails"), -1, 1)

    assert queues["emails"].cancel(message_id, using=alias) is CancelResult.NOT_WAITING

    run(relay(alias))
    assert ready(redis_client, "emails") == [message_id]


@pytest.mark.parametrize("alias", ["postgresql", "mariadb"], indirect=True)
@pytest.mark.parametrize("ordered", [False, True])
def test_rows_that_another_transaction_has_locked_hold_up_no_others(alias, redis_client, mq_settings, ordered):
    """Those of their key wait, also for a topic, which is read in its order. SQLite has no SKIP LOCKED."""
    mq_settings(QUEUES={"emails": {"OUTBOX": True, "ORDERED": ordered}})
    (locked, *_) = publish(alias, "emails", 3, key="a")
    others = publish(alias, "emails", 2, key="b")
    other = connections[alias].copy()
    try:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute("DELETE FROM mq_django_outbox WHERE message_id = %s", [locked])

        run(relay(alias))

        assert ready(redis_client, "emails") == others
        other.rollback()
    finally:
        other.close()
    run(relay(alias))
    assert len(ready(redis_client, "emails")) == 5


@on_each_database
def test_rows_are_cancelled_and_found_by_their_unique_key(alias, redis_client):
    emails = queues["emails"]
    emails.publish("welcome", {"n": 1}, delay=60, unique='k"1', using=alias)
    emails.publish("welcome", {"n": 2}, delay=60, unique='k"1', using=alias)
    other = emails.publish("welcome", {"text": '"unique":"k\\"1"'}, delay=60, unique="k", using=alias)

    assert emails.find(unique='k"1').message.data == {"n": 2}
    assert emails.cancel(unique='k"1', using=alias) is CancelResult.CANCELLED

    assert list(rows(alias).values_list("message_id", flat=True)) == [other]
    assert emails.cancel(unique='k"1', using=alias) is CancelResult.NOT_WAITING


def test_a_unique_key_is_cancelled_in_the_outbox_and_in_redis(sqlite):
    emails = queues["emails"]
    emails.publish("welcome", 1, delay=60, unique="k", using=sqlite)
    run(relay(sqlite))
    emails.publish("welcome", 2, delay=60, unique="k", using=sqlite)
    assert emails.find(unique="k").state is LookupState.DELAYED

    assert emails.cancel(unique="k", using=sqlite) is CancelResult.CANCELLED

    assert not rows(sqlite).exists()
    assert emails.find(unique="k").state is LookupState.NOT_WAITING


def test_a_row_is_rescheduled_while_it_is_delayed_and_unclaimed(alias, redis_client):
    emails = queues["emails"]
    first = emails.publish("welcome", 1, delay=60, using=alias)
    second = emails.publish("welcome", 1, delay=60, unique="k", using=alias)
    at_once = emails.publish("welcome", 1, using=alias)
    moment = datetime(2030, 1, 1, tzinfo=UTC)

    with rolled_back(alias):
        assert emails.reschedule(first, deliver_at=moment, using=alias) is CancelResult.RESCHEDULED
        assert rows(alias).get(message_id=first).due_ms == 1_893_456_000_000
    assert rows(alias).get(message_id=first).due_ms < 1_893_456_000_000
    assert emails.reschedule(unique="k", deliver_at=moment, using=alias) is CancelResult.RESCHEDULED
    assert emails.reschedule(at_once, delay=5, using=alias) is CancelResult.NOT_WAITING

    run(relay(alias))
    assert emails.find(second).due_ms == 1_893_456_000_000
    assert emails.reschedule(second, delay=5, using=alias) is CancelResult.RESCHEDULED


def test_a_database_without_the_table_is_named(tmp_path, django_db_blocker):
    options = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "empty.db")}
    text = "Database 'empty' has no table 'mq_django_outbox'.* migrate mq_django --database empty.* its dependencies"
    with django_db_blocker.unblock(), known("empty", options):
        for named in ({"message_id": "m1"}, {"unique": "k"}):
            with pytest.raises(NoOutbox, match=text):
                queues["emails"].cancel(**named, using="empty")
            with pytest.raises(NoOutbox, match=text):
                queues["emails"].reschedule(**named, delay=5, using="empty")
        with pytest.raises(NoOutbox, match=text):
            queues["emails"].publish("x", 1, using="empty", outbox=True)


def test_a_message_in_the_outbox_is_found(sqlite):
    message_id = queues["emails"].publish("welcome", {"n": 1}, delay=60, using=sqlite)

    found = queues["emails"].find(message_id)

    assert found.state is LookupState.OUTBOX
    assert found.message.data == {"n": 1}
    assert found.due_ms == rows(sqlite).get().due_ms
    run(relay(sqlite))
    assert queues["emails"].find(message_id).state is LookupState.DELAYED


def test_the_result_of_a_task_in_the_outbox_is_ready(sqlite):
    result = tasks.note.using(using=sqlite).enqueue(1)
    assert get_result(result.id).status == "READY"
    run(relay(sqlite))
    assert not rows(sqlite).exists()
    assert get_result(result.id).status == "READY"


def test_a_result_in_redis_is_read_without_any_database(sqlite, monkeypatch):
    result = tasks.note.using(using=sqlite).enqueue(1)
    run(relay(sqlite))
    monkeypatch.setattr("mq_django.outbox.stored_rows.aliases_with_rows", None)
    assert get_result(result.id).status == "READY"


def test_a_row_that_is_published_while_its_result_is_looked_for_is_found(sqlite, monkeypatch):
    result = tasks.note.using(using=sqlite).enqueue(1)

    def late(*named):
        run(relay(sqlite))
        return find_row(*named)

    monkeypatch.setattr("mq_django.outbox.stored_rows.find_row", late)
    assert get_result(result.id).status == "READY"


@pytest.mark.parametrize("wait", [wait_result, async_to_sync(await_result)], ids=["sync", "async"])
@pytest.mark.parametrize("option", [None, True])
def test_a_wait_for_the_result_of_a_task_in_the_outbox_ends_with_it(sqlite, monkeypatch, mq_settings, wait, option):
    mq_settings(QUEUES={"default": {"OUTBOX": not option}})
    result = tasks.shout.using(using=sqlite, outbox=option).enqueue("hello")

    def look(message_id):
        try:
            return get_result(message_id)
        finally:
            # It is published and runs after it was looked for.
            run(relay(sqlite))
            work("default")

    monkeypatch.setattr("mq_django.task_backend.waiting.get_result", look)
    assert wait(result, timeout=60).return_value == "HELLO"


def test_a_task_whose_unique_key_is_taken_leaves_no_result_in_redis(sqlite, redis_client):
    task = tasks.note.using(using=sqlite, unique="u", unique_for="handled")
    first, second = task.enqueue(1), task.enqueue(2)

    run(relay(sqlite))

    keys = queues[tasks.note.queue_name].config.keys
    assert redis_client.exists(keys.result(first.id)) == 1
    assert redis_client.exists(keys.result(second.id)) == 0
    assert rows(sqlite).get().message_id == second.id


def test_a_chunk_that_is_sent_again_does_not_write_results_again(sqlite, redis_client, monkeypatch):
    """Its task may have ended meanwhile."""
    result = tasks.note.using(using=sqlite).enqueue(1)
    monkeypatch.setattr(OutboxTables, "finish", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run(relay(sqlite))
    monkeypatch.undo()
    key = queues[tasks.note.queue_name].config.keys.result(result.id)
    redis_client.set(key, "it has ended")

    run(relay(sqlite))

    assert redis_client.get(key) == b"it has ended"


def test_rows_that_were_set_aside_are_retried_or_discarded(alias, redis_client):
    ids = publish(alias, "emails", 3)
    rows(alias).update(batch=0, error="no", failed_ms=1)
    first, second, third = (row.pk for row in rows(alias))

    assert outbox_views.retry(alias, [first, second]) == 2
    assert outbox_views.discard(alias, [third]) == 1
    assert outbox_views.discard(alias, [first]) == 0

    run(relay(alias))
    assert ready(redis_client, "emails") == ids[:2]
    assert not rows(alias).exists()


def test_databases_with_the_table_are_looked_for_once(only_sqlite, monkeypatch):
    monkeypatch.setattr(insertion, "_known", set())
    assert insertion.aliases_with_rows() == [only_sqlite]
    monkeypatch.setattr(insertion, "has_table", None)
    assert insertion.aliases_with_rows() == [only_sqlite]


def test_a_database_without_the_table_is_looked_at_again_after_a_minute(only_sqlite, monkeypatch):
    now, looks = [1000.0], []
    monkeypatch.setattr(insertion, "_known", set())
    monkeypatch.setattr(insertion, "_without", {})
    monkeypatch.setattr(insertion, "has_table", lambda alias: looks.append(alias) or len(looks) > 1)
    monkeypatch.setattr(insertion.time, "monotonic", lambda: now[0])

    found = []
    for seconds in (0, 59, 1):
        now[0] += seconds
        found.append(insertion.aliases_with_rows())

    assert found == [[], [], [only_sqlite]]
    assert looks == [only_sqlite, only_sqlite]


def test_a_default_database_that_is_none_is_not_asked(monkeypatch):
    """Projects have `DATABASES = {"default": {}, ...}` and a router, as Django documents."""
    monkeypatch.setattr(insertion, "_known", set())
    monkeypatch.setattr(insertion, "connections", ConnectionHandler({"default": {}}))
    monkeypatch.setattr(insertion, "has_table", None)
    assert insertion.aliases_with_rows() == []


@pytest.mark.django_db
def test_a_test_asks_only_the_databases_that_it_may_use(monkeypatch):
    """Django raises an AssertionError for `other`, which this test does not name."""
    monkeypatch.setattr(insertion, "_known", set())
    monkeypatch.setattr(insertion, "_without", {})
    assert insertion.aliases_with_rows() == insertion.outbox_aliases() == ["default"]

    # Other tests may use more of them, and look before this one.
    monkeypatch.setattr(insertion, "_known", {"default", "other"})
    monkeypatch.setattr(outbox_views, "_with_tables", {"default", "other"})
    monkeypatch.setattr(test_mode, "relay", relay)
    monkeypatch.setattr(test_mode, "outboxes", {"default"})
    assert insertion.aliases_with_rows() == outbox_views.outbox_databases() == ["default"]


def test_nobody_waits_for_a_task_that_is_not_committed(sqlite):
    with rolled_back(sqlite):
        result = tasks.note.using(using=sqlite).enqueue(1)
        with pytest.raises(CannotWait):
            wait_result(result, timeout=30)


def test_a_test_may_wait_for_a_task_that_the_callbacks_of_django_have_committed(sqlite):
    with rolled_back(sqlite):
        with TestCase.captureOnCommitCallbacks(using=sqlite, execute=True):
            result = tasks.note.using(using=sqlite).enqueue(1)
        with pytest.raises(WaitTimeout):
            wait_result(result, timeout=0)
