"""What waits for a commit, and running it inside the transaction of a test."""

import logging

import pytest
from django.db import connection, transaction
from django.test import TestCase

from mq_django import queues
from mq_django.errors import ConnectionLost, TestKitError
from mq_django.testing.transactions import commit, pending
from tests import places
from tests.testapp import tasks

pytestmark = pytest.mark.django_db(databases=["default", "other"])


@pytest.fixture
def emails(mq_settings):
    return queues["emails"]


@pytest.fixture
def ready(emails, redis_client):
    """Return the names of the messages that are ready."""
    return lambda: [message["type"] for message in places.ready(redis_client, emails.config.keys)]


def shown():
    return [(record.queue, record.name, record.data) for record in pending()]


def test_what_waits_for_the_commit_is_shown_in_order_and_sent_once(emails, ready):
    message_id = emails.publish("welcome", {"user_id": 7}, key="user:7")
    emails.publish_many([("remind", 1), ("remind", (2, 3))])
    tasks.note.using(queue_name="emails").enqueue(7)
    path = tasks.note.module_path
    assert shown() == [
        *[("emails", "welcome", {"user_id": 7}), ("emails", "remind", 1), ("emails", "remind", [2, 3])],
        ("emails", path, {"args": [7], "kwargs": {}}),
    ]
    first, *_, last = pending()
    assert (first.id, first.key, first.task) == (message_id, "user:7", "")
    assert (last.task, last.args, last.kwargs) == (path, [7], {})
    assert ready() == []

    assert commit() == 3
    assert (pending(), ready()) == ([], ["welcome", "remind", "remind", path])
    assert commit() == 0
    assert len(ready()) == 4


def test_what_was_rolled_back_is_not_sent(emails, ready):
    with transaction.atomic():
        emails.publish("welcome", 1)
        transaction.set_rollback(True)
    with transaction.atomic():
        emails.publish("remind", 1)
    assert shown() == [("emails", "remind", 1)]
    commit()
    with transaction.atomic():
        emails.publish("welcome", 2)
        assert shown() == [("emails", "welcome", 2)]
        transaction.set_rollback(True)
    assert (pending(), commit(), ready()) == ([], 0, ["remind"])


def test_a_hook_that_another_one_registers_runs_in_it(emails, ready):
    order = []

    def first():
        order.append("first")
        emails.publish("remind", 1)
        transaction.on_commit(lambda: order.append("inner"))

    transaction.on_commit(first)
    transaction.on_commit(lambda: order.append("second"))
    assert commit() == 4
    assert (order, ready()) == (["first", "inner", "second"], ["remind"])


def test_each_database_has_its_own_commit(emails, ready):
    emails.publish("welcome", 1, using="other")
    emails.publish("remind", 1)
    assert sorted(shown()) == [("emails", "remind", 1), ("emails", "welcome", 1)]
    assert commit(using="other") == 1
    assert (ready(), shown()) == (["welcome"], [("emails", "remind", 1)])
    assert commit() == 1
    assert ready() == ["welcome", "remind"]


def test_after_a_hook_that_fails_the_later_ones_do_not_run(emails, ready):
    def fail():
        raise ZeroDivisionError("no")

    emails.publish("welcome", 1)
    transaction.on_commit(fail)
    emails.publish("remind", 1)
    with pytest.raises(ZeroDivisionError):
        commit()
    assert (pending(), commit(), ready()) == ([], 0, ["welcome"])


def test_the_failure_of_a_robust_hook_is_logged_as_django_logs_it(emails, ready, caplog, monkeypatch):
    def fail(*_):
        raise ConnectionLost("away")

    emails.publish("welcome", 1, robust=True)
    emails.publish("remind", 1)
    with monkeypatch.context() as patch:
        patch.setattr(type(emails.sink), "_write", fail)
        with caplog.at_level(logging.ERROR), pytest.raises(ConnectionLost):
            commit()
    (record,) = caplog.records
    assert record.name == "mq_django.testing.transactions"
    assert record.getMessage() == "Error calling OnCommitSink.send in on_commit() during transaction (away)."
    assert ready() == []


def test_what_the_callbacks_of_django_have_sent_no_longer_waits(emails, ready):
    with TestCase.captureOnCommitCallbacks(execute=True) as callbacks:
        emails.publish("welcome", 1)
        assert shown() == [("emails", "welcome", 1)]
    assert (len(callbacks), ready(), pending()) == (1, ["welcome"], [])
    assert (commit(), ready()) == (0, ["welcome"])


def test_django_captures_what_is_published_after_a_commit(emails, ready):
    emails.publish("first", 1)
    with TestCase.captureOnCommitCallbacks(execute=True):
        emails.publish("second", 1)
        commit()
        emails.publish("third", 1)
        assert ready() == ["first", "second"]
    assert ready() == ["first", "second", "third"]
    assert pending() == []


def test_callbacks_that_are_only_captured_still_wait(emails, ready):
    with TestCase.captureOnCommitCallbacks() as callbacks:
        emails.publish("welcome", 1)
    assert (len(callbacks), len(pending()), ready()) == (1, 1, [])
    callbacks[0]()
    assert (pending(), ready(), commit()) == ([], ["welcome"], 0)


@pytest.mark.django_db(transaction=True)
def test_outside_of_a_transaction_there_is_nothing_to_commit(emails, ready):
    emails.publish("welcome", 1)
    assert (pending(), ready()) == ([], ["welcome"])
    assert not connection.in_atomic_block
    with pytest.raises(TestKitError, match=r"needs a transaction that the test is in, and there is none\. In a Tr"):
        commit()
    with pytest.raises(TestKitError, match="there is none on database 'other'"):
        commit(using="other")
