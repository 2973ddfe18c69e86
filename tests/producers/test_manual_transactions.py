"""With autocommit off nothing says when a transaction is committed: what would wait for that is refused."""

import pytest
from django.core.management import CommandError
from django.db import connection, transaction

from mq_django import queues
from mq_django.errors import InvalidMessage
from mq_django.models import OutboxMessage
from tests.producers.test_every_way import WAYS, configured, sent  # noqa: F401 - fixtures

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.versions]


@pytest.fixture
def manual():
    connection.ensure_connection()
    transaction.set_autocommit(False)
    yield
    transaction.rollback()
    transaction.set_autocommit(True)


def test_every_way_is_refused(sent, manual, capsys):  # noqa: F811
    for name, way in WAYS.items():
        if name == "a signal":
            way()  # the error of a trigger is logged, and not raised in the sender of the signal
            continue
        with pytest.raises((InvalidMessage, CommandError), match="Autocommit of database 'default' is off"):
            way()
    assert sent == []


def test_it_is_sent_at_once_where_that_is_asked_for_and_waits_in_atomic(sent, manual):  # noqa: F811
    queues["emails"].publish("welcome", 1, on_commit=False)
    assert len(sent) == 1
    with transaction.atomic():
        queues["emails"].publish("welcome", 1)
        assert len(sent) == 1


def test_a_setting_is_known_before_the_connection_is_open(sent, monkeypatch):  # noqa: F811
    connection.close()
    monkeypatch.setitem(connection.settings_dict, "AUTOCOMMIT", False)
    with pytest.raises(InvalidMessage, match="Autocommit"):
        queues["emails"].publish("welcome", 1)
    assert connection.connection is None


def test_the_outbox_is_a_row_of_the_transaction_in_any_case(manual):
    queues["emails"].publish("welcome", 1, outbox=True)
    assert OutboxMessage.objects.count() == 1
    transaction.rollback()
    assert OutboxMessage.objects.count() == 0
