"""One transaction around a handler, with a row that names its message."""

import threading
from contextlib import suppress

import pytest
from django.db import DatabaseError, connections, transaction

from mq_django.core.handler_options import current_database
from mq_django.core.messages import ACK, Ack, Bury, HandBack, Retry, StepDrop, StepEnd
from mq_django.inbox import once
from mq_django.models import InboxMessage
from tests.inbox.conftest import on_each_database
from tests.inbox.effects import Effects


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(once, "BUSY_PAUSE", 0.05)


@pytest.mark.versions
@on_each_database
def test_a_repeat_is_acked_without_its_handler(consumer, effects, using, rows):
    consumer.handle(effects.add, once=using)
    assert consumer.run() == ACK
    assert consumer.run(attempt=2) == ACK
    assert effects.all() == ["m"]
    (row,) = rows()
    assert (row.queue, row.message_id, row.handler, row.number, row.outcome) == ("default", "m", "n", 0, "")
    # Another id, or another key, is another message.
    assert [consumer.run("a"), consumer.run("b"), consumer.run("b", key="k")] == [ACK, ACK, ACK]
    assert effects.all() == ["a", "b", "b", "m"]


def test_a_repeat_has_the_result_of_the_first(consumer, effects, using):
    def count(message):
        effects.add(message)
        return Ack(b'{"count":"\xc3\xa9"}')

    consumer.handle(count, once=using, keeps_result=True)
    first = consumer.run()
    assert first == Ack(b'{"count":"\xc3\xa9"}') == consumer.run()
    assert effects.all() == ["m"]


def test_a_repeat_of_a_step_ends_it_in_the_same_way(consumer, using):
    ends = iter([StepEnd(b"1", value=b"[2]", added="8-9")])
    consumer.handle(lambda message: next(ends), once=using, keeps_result=True)
    assert consumer.run() == consumer.run() == StepEnd(b"1", value=b"[2]", added="8-9")


def test_a_dropped_step_leaves_no_row(consumer, using, rows):
    consumer.handle(lambda message: StepDrop(), once=using)
    assert consumer.run() == StepDrop()
    assert rows() == []


@pytest.mark.versions
@on_each_database
@pytest.mark.parametrize("outcome", [Retry(error="not yet"), Bury("never")], ids=["retry", "bury"])
def test_what_is_no_ack_is_rolled_back(consumer, effects, using, rows, outcome):
    def refuse(message):
        effects.add(message)
        return outcome

    consumer.handle(refuse, once=using)
    assert type(consumer.run()) is type(outcome)
    assert effects.all() == []
    # Else the message would be acked at its next delivery.
    assert rows() == []


def test_an_exception_is_rolled_back_and_the_next_attempt_runs(consumer, effects, using, rows):
    fails = iter([True, False])

    def fail_once(message):
        effects.add(message)
        if next(fails):
            raise ValueError("broken")

    consumer.handle(fail_once, once=using)
    assert "broken" in consumer.run().error
    assert (effects.all(), rows()) == ([], [])
    assert consumer.run(attempt=2) == ACK
    assert effects.all() == ["m"]


@on_each_database
def test_a_transaction_that_is_marked_for_rollback_is_no_ack(consumer, effects, using, rows):
    def undo(message):
        effects.add(message)
        transaction.set_rollback(True, using=using)

    consumer.handle(undo, once=using)
    assert "marked its transaction for rollback" in consumer.run().error
    assert (effects.all(), rows()) == ([], [])


@pytest.mark.parametrize("kind", ["sqlite", "mariadb"], indirect=True)
def test_a_transaction_that_the_database_has_rolled_back_is_no_ack(consumer, effects, using, rows):
    """After a deadlock on MariaDB, or a full disk on SQLite. PostgreSQL keeps a transaction that has failed."""

    def lose(message):
        effects.add(message)
        with connections[using].cursor() as cursor:
            cursor.execute("ROLLBACK")
        Effects(using).add(message)

    consumer.handle(lose, once=using)
    assert "marked its transaction for rollback" in consumer.run().error
    assert rows() == []


@on_each_database
def test_a_statement_that_fails_and_is_caught_is_an_ack_only_if_its_transaction_commits(consumer, effects, using, rows):
    """PostgreSQL accepts no other statement in the transaction then, and rolls back at its commit without an error."""

    def go_on(message):
        effects.add(message)
        with suppress(DatabaseError), connections[using].cursor() as cursor:
            cursor.execute("SELECT message FROM effects WHERE there_is_no_such_column = 1")

    consumer.handle(go_on, once=using)
    outcome = consumer.run()
    if connections[using].vendor == "postgresql":
        assert "catching an error of the database" in outcome.error
        assert (effects.all(), rows()) == ([], [])
    else:
        assert outcome == ACK
        assert effects.all() == ["m"]
        assert len(rows()) == 1


@on_each_database
def test_an_error_inside_an_atomic_block_of_the_handler_may_be_caught(consumer, effects, using):
    def go_on(message):
        effects.add(message)
        with suppress(DatabaseError), transaction.atomic(using=using), connections[using].cursor() as cursor:
            cursor.execute("SELECT message FROM effects WHERE there_is_no_such_column = 1")

    consumer.handle(go_on, once=using)
    assert consumer.run() == ACK
    assert effects.all() == ["m"]


@pytest.mark.parametrize("kind", ["mariadb"], indirect=True)
def test_a_deadlock_that_is_caught_is_no_ack(consumer, effects, using, rows):
    """MariaDB rolls back the whole transaction of one of both, and its next statement begins another one."""
    with connections[using].cursor() as cursor:
        cursor.executemany("INSERT INTO effects (message) VALUES (%s)", [["x"]] * 20)
        cursor.execute("CREATE OR REPLACE TABLE pair (id integer PRIMARY KEY, n integer) ENGINE=InnoDB")
        cursor.execute("INSERT INTO pair VALUES (1, 0), (2, 0)")
    has_one, has_two = threading.Event(), threading.Event()

    def change(row):
        with connections[using].cursor() as cursor:
            cursor.execute("UPDATE pair SET n = n + 1 WHERE id = %s", [row])

    def other():
        try:
            with transaction.atomic(using=using):
                with connections[using].cursor() as cursor:
                    # Whoever has changed more rows goes on.
                    cursor.execute("DELETE FROM effects WHERE message = 'x'")
                change(2)
                has_two.set()
                assert has_one.wait(60)
                change(1)
        finally:
            connections[using].close()

    def meet(message):
        effects.add(message)
        change(1)
        has_one.set()
        with suppress(DatabaseError):
            change(2)
            raise AssertionError("there was no deadlock")
        Effects(using).add(message)

    consumer.handle(meet, once=using)
    thread = threading.Thread(target=other)
    thread.start()
    assert has_two.wait(60)
    outcome = consumer.run()
    thread.join(60)
    assert "catching an error of the database" in outcome.error
    assert (effects.all(), rows()) == ([], [])


@on_each_database
def test_an_atomic_block_that_is_left_open_is_no_ack(consumer, effects, using, rows):
    def leave_open(message):
        transaction.atomic(using=using).__enter__()
        effects.add(message)

    consumer.handle(leave_open, once=using)
    assert isinstance(consumer.run(), Retry)
    assert (effects.all(), rows()) == ([], [])


@on_each_database
def test_without_autocommit_nothing_is_acked(consumer, effects, using, monkeypatch):
    """Nobody would commit what is written, and an ack would lose it."""
    monkeypatch.setitem(connections.settings[using], "AUTOCOMMIT", False)
    consumer.handle(effects.add, once=using)
    assert "AUTOCOMMIT is off" in consumer.run().error
    if connections[using].vendor == "sqlite":
        # Its driver commits at the end of a savepoint, and the row says so.
        assert consumer.run(attempt=2) == ACK
        assert effects.all() == ["m"]
    else:
        assert "AUTOCOMMIT is off" in consumer.run(attempt=2).error
        assert effects.all() == []


def test_an_error_of_an_on_commit_hook_does_not_undo_the_ack(consumer, effects, using, caplog):
    called = []

    def fail_later(message):
        effects.add(message)
        transaction.on_commit(lambda: called.append(current_database()) or 1 / 0, using=using)

    consumer.handle(fail_later, once=using)
    assert consumer.run() == ACK
    assert consumer.run(attempt=2) == ACK
    assert effects.all() == ["m"]
    assert "an on-commit hook has failed" in caplog.text
    # The handler has ended, so its rules are over.
    assert called == [None]


@on_each_database
def test_a_message_that_runs_elsewhere_is_handed_back(consumer, effects, using):
    begun, ends, runs = threading.Event(), threading.Event(), []

    def wait(message):
        runs.append(message.attempt)
        if len(runs) == 1:
            begun.set()
            assert ends.wait(60)
        effects.add(message)

    consumer.handle(wait, once=using)
    consumer.start()
    assert begun.wait(60)
    if connections[using].vendor == "sqlite":
        # The second delivery runs as well, and the first one to commit decides.
        assert consumer.run() == ACK
        ends.set()
    else:
        assert consumer.run() == HandBack()
        assert runs == [1]
        ends.set()
    consumer.outcomes(2)
    assert consumer.run() == ACK
    assert effects.all() == ["m"]


@on_each_database
def test_many_deliveries_at_once_have_one_effect(consumer, effects, using):
    consumer.handle(effects.add, once=using)
    for _ in range(12):
        consumer.start()
    outcomes = consumer.outcomes(12)
    assert consumer.run() == ACK
    assert effects.all() == ["m"]
    # SQLite refuses a write to a transaction that has read before, and the handler gets this error.
    kinds = (Ack, HandBack, Retry) if connections[using].vendor == "sqlite" else (Ack, HandBack)
    assert all(isinstance(outcome, kinds) for outcome in outcomes)


@on_each_database
def test_different_messages_do_not_wait_for_each_other(consumer, effects, using):
    together = threading.Barrier(4, timeout=60)

    def meet(message):
        together.wait()
        effects.add(message)

    consumer.handle(meet, once=using)
    for number in range(4):
        consumer.start(str(number))
    assert consumer.outcomes(4) == [ACK] * 4
    assert effects.all() == list("0123")


def test_a_row_that_cannot_be_read_is_an_ack(consumer, effects, using):
    consumer.handle(effects.add, once=using, keeps_result=True)
    consumer.run()
    InboxMessage.objects.using(using).update(outcome='{"event": 1}')
    assert consumer.run() == ACK
    assert effects.all() == ["m"]


@on_each_database
def test_text_that_the_database_does_not_accept_is_shown_in_ascii(consumer, effects, using, rows):
    consumer.handle(lambda message: None, once=using)
    assert consumer.run("é\x00🙂" * 100) == ACK
    (row,) = rows()
    assert row.message_id.startswith("\\xe9<U+0000>\\U0001f642")
    assert len(row.message_id) == 255
