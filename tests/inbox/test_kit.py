"""Handlers with `@exactly_once` in the transaction of a test, with the test kit."""

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, transaction

from mq_django import exactly_once, handler, queues, resumable
from mq_django.core.messages import ACK, Retry
from mq_django.models import InboxMessage
from mq_django.testing import faults
from mq_django.testing.idempotence import assert_idempotent
from tests.working import run

pytestmark = [pytest.mark.django_db(databases=["default", "other"]), pytest.mark.usefixtures("handlers")]


@pytest.fixture
def handled():
    """Handle messages named `add` by adding a group of users, and return the ids of those that ran."""
    found = []

    @handler("default", "add")
    @exactly_once
    def add(message):
        found.append(message.id)
        Group.objects.create(name=message.data)
        if message.data == "bad":
            raise ValueError("broken")

    return found


def names():
    return sorted(Group.objects.values_list("name", flat=True))


def test_a_message_is_handled_in_the_transaction_of_the_test(handled):
    for name in ("a", "bad"):
        queues["default"].publish("add", name, on_commit=False)
    first, second = run("default")
    assert first.outcome == ACK
    assert isinstance(second.outcome, Retry)
    assert names() == ["a"]
    assert [row.message_id for row in InboxMessage.objects.all()] == [first.message.id]


def test_a_repeat_is_acked(handled):
    for _ in range(2):
        queues["default"].publish("add", "a", message_id="m", on_commit=False)
        assert run("default")[0].outcome == ACK
    assert handled == ["m"]


@pytest.mark.parametrize("point", faults.POINTS)
def test_a_crash_leaves_one_effect(handled, point):
    queues["default"].publish("add", "a", message_id="m", on_commit=False)
    faults.crash_at(point)
    run("default")
    assert names() == ["a"]


def test_it_cannot_go_on_in_the_middle():
    """Its position would be saved before its transaction is committed."""

    @handler("default", "all")
    @exactly_once
    def touch_all(message):
        for _ in resumable(Group.objects.using(message.data)):
            """Nothing is done."""

    for database in ("default", "other"):
        queues["default"].publish("all", database, on_commit=False)
    assert [handled.error.partition(":")[0] for handled in run("default")] == ["mq_django.errors.NotResumable"] * 2


def test_such_a_handler_is_idempotent():
    @handler("default", "count")
    @exactly_once
    def add(message):
        Group.objects.create(name=f"group {Group.objects.count()}")

    assert_idempotent(add, 1)


def test_a_handler_that_catches_an_error_of_the_database_outside_atomic_is_retried():
    @handler("default", "careless")
    @exactly_once
    def add(message):
        Group.objects.create(name="a")
        try:
            Group.objects.create(name="a")
        except IntegrityError:
            """Nothing: on some databases the transaction is of no use from here on."""
            transaction.set_rollback(True)

    queues["default"].publish("careless", 1, on_commit=False)
    (handled,) = run("default")
    assert "marked its transaction for rollback" in handled.error
    assert names() == []
