"""Handlers with `@exactly_once` and a batch: one transaction for the messages of a call."""

import threading
from contextlib import suppress

import pytest
from asgiref.sync import sync_to_async
from django.db import DatabaseError, connections, transaction

from mq_django.core.messages import ACK, Bury, Delivery, HandBack, Message, Retry
from mq_django.inbox import entries, once
from mq_django.inbox.entries import Entries, Identity, Taken
from tests.inbox.conftest import on_each_database


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(once, "BUSY_PAUSE", 0.05)


class Calls:
    """A handler of batches that notes its calls, writes to the database, and fails for the message "bad"."""

    def __init__(self, effects):
        self._effects = effects
        self.sizes = []

    def __call__(self, messages):
        self.sizes.append(len(messages))
        for message in messages:
            self._effects.add(message)
            if message.id == "bad":
                raise ValueError("bad")


@pytest.fixture
def calls(effects):
    return Calls(effects)


def run(consumer, *ids, attempt=1):
    """Run the deliveries of some messages together, and return their outcomes by the ids of the messages."""
    entries = iter(range(1, len(ids) + 1))
    deliveries = [
        Delivery(Message(each, "n", each, "default", attempt=attempt), 0, f"2-{next(entries)}".encode(), b"1")
        for each in ids
    ]
    consumer.rig.dispatcher.dispatch(deliveries)
    consumer.outcomes(len(ids))
    found, consumer._outcomes = consumer._outcomes, []
    return found


def ids_of(rows):
    return [row.message_id for row in rows()]


@on_each_database
def test_a_call_is_one_transaction_with_the_rows_of_its_messages(consumer, calls, effects, using, rows):
    consumer.handle(calls, once=using, batch=10)
    assert run(consumer, "a", "b", "c") == [ACK] * 3
    assert (calls.sizes, effects.all(), ids_of(rows)) == ([3], ["a", "b", "c"], ["a", "b", "c"])


def test_messages_that_were_handled_before_are_left_out(consumer, calls, effects, using):
    consumer.handle(calls, once=using, batch=10)
    run(consumer, "a", "b")
    assert run(consumer, "a", "b", "c") == [ACK] * 3
    assert run(consumer, "a", "b", "c") == [ACK] * 3
    assert (calls.sizes, effects.all()) == ([2, 1], ["a", "b", "c"])


@on_each_database
def test_a_call_whose_transaction_the_database_has_given_up_acks_nothing(consumer, effects, using, rows):
    def lose(messages):
        for message in messages:
            effects.add(message)
        fails = connections[using].vendor == "postgresql"
        with suppress(DatabaseError), connections[using].cursor() as cursor:
            cursor.execute("SELECT message FROM there_is_no_such_table" if fails else "ROLLBACK")

    consumer.handle(lose, once=using, batch=10)
    outcomes = run(consumer, "a", "b")
    assert [type(outcome) for outcome in outcomes] == [Retry] * 2
    assert (effects.all(), ids_of(rows)) == ([], [])


def test_a_message_that_comes_twice_in_a_call_is_handled_once(consumer, calls, effects, using):
    consumer.handle(calls, once=using, batch=10)
    assert run(consumer, "a", "b", "a") == [ACK] * 3
    assert effects.all() == ["a", "b"]


@on_each_database
def test_halves_are_transactions_of_their_own(consumer, calls, effects, using, rows):
    consumer.handle(calls, once=using, batch=10)
    outcomes = run(consumer, "a", "b", "bad", "d")
    assert sorted(type(each).__name__ for each in outcomes) == ["Ack", "Ack", "Ack", "Retry"]
    assert (effects.all(), ids_of(rows)) == (["a", "b", "d"], ["a", "b", "d"])


@pytest.mark.parametrize("outcome", [Retry(error="later"), Bury("never")], ids=["retry", "bury"])
def test_one_outcome_for_all_rolls_back(consumer, effects, using, rows, outcome):
    def refuse(messages):
        effects.add(messages[0])
        return outcome

    consumer.handle(refuse, once=using, batch=10)
    assert [type(each) for each in run(consumer, "a", "b")] == [type(outcome)] * 2
    assert (effects.all(), rows()) == ([], [])


def test_an_outcome_for_each_message_is_an_error(consumer, effects, using, rows):
    def each_one(messages):
        effects.add(messages[0])
        return [None] * len(messages)

    consumer.handle(each_one, once=using, batch=10)
    outcomes = run(consumer, "a", "b")
    assert all("one transaction" in each.error for each in outcomes)
    assert (effects.all(), rows()) == ([], [])


def test_a_coroutine_function_runs_in_the_transaction(consumer, calls, effects, using):
    async def handle(messages):
        for message in messages:
            await sync_to_async(effects.add)(message)

    consumer.handle(handle, once=using, batch=10, is_async=True)
    assert run(consumer, "a", "b") == [ACK] * 2
    assert run(consumer, "a", "b") == [ACK] * 2
    assert effects.all() == ["a", "b"]


def test_a_later_attempt_runs_alone(consumer, calls, effects, using):
    consumer.handle(calls, once=using, batch=10)
    assert run(consumer, "a", "b", attempt=2) == [ACK] * 2
    assert (calls.sizes, effects.all()) == ([1, 1], ["a", "b"])
    assert run(consumer, "a", "b") == [ACK] * 2
    assert effects.all() == ["a", "b"]


@on_each_database
def test_many_rows_are_written_by_few_statements(using, rows, monkeypatch):
    monkeypatch.setattr(entries, "ROWS", 2)
    identities = [Identity("default", f"m{number}", None, "n") for number in range(5)]
    with transaction.atomic(using=using):
        Entries(using).add_all(identities)
    assert ids_of(rows) == [f"m{number}" for number in range(5)]
    assert Entries(using).handled([*identities, Identity("default", "other", None, "n")]) == set(identities)
    with pytest.raises(Taken), transaction.atomic(using=using):
        Entries(using).add_all([Identity("default", "other", None, "n"), identities[0]])
    assert len(rows()) == 5


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"], indirect=True)
def test_what_another_delivery_handles_now_is_handed_back(consumer, calls, effects, using, monkeypatch):
    """SQLite writes the rows last."""
    # What is locked stays so for longer than this test waits.
    monkeypatch.setattr(entries, "_LOCK_TIMEOUT", "100ms")
    monkeypatch.setattr(entries, "_MARIADB", entries._MARIADB.replace("_timeout=1", "_timeout=0"))
    consumer.handle(calls, once=using, batch=10)
    identity = Identity("default", "b", None, "n")
    written, ended = threading.Event(), threading.Event()

    def hold():
        try:
            with transaction.atomic(using=using):
                Entries(using).add(identity)
                written.set()
                assert ended.wait(30)
                transaction.set_rollback(True, using=using)
        finally:
            connections[using].close()

    other = threading.Thread(target=hold)
    other.start()
    assert written.wait(30)
    outcomes = run(consumer, "a", "b", "c", "d")
    ended.set()
    other.join(30)
    assert sorted(type(each).__name__ for each in outcomes) == ["Ack", "Ack", "Ack", "HandBack"]
    assert effects.all() == ["a", "c", "d"]
    assert any(isinstance(each, HandBack) for each in outcomes)
