"""Consumers that a test starts use the database of the test run and its time, or do not start."""

import os
import subprocess
import sys

import pytest
from django.core.management import CommandError, call_command
from shop.handlers import emails
from shop.models import Order
from shop.tasks import confirm

from mq_django import queues

#: Where other processes find the database.
IN_A_FILE = "TEST_DATABASE_FILE" in os.environ


def drain():
    command = [sys.executable, "manage.py", "runconsumer", "--drain"]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)


@pytest.mark.django_db(transaction=True)
def test_a_consumer_has_the_database_and_the_time_of_the_test(mq):
    order = Order.objects.create(email="ann@shop.example")
    mq.advance(days=2)
    emails.publish("welcome", {"email": "ann@shop.example"}, expires=60)
    mq.advance(hours=1)
    confirm.enqueue(order.pk)
    done = drain()
    order.refresh_from_db()
    if IN_A_FILE:
        assert done.returncode == 0, done.stderr
        assert order.confirmed
        assert mq.messages("emails") == []
        assert queues["emails"].find(mq.published("emails")[0].id).state.name == "EXPIRED"
        return
    assert done.returncode == 1
    assert "is in the memory of the process that runs the tests" in done.stderr
    assert not order.confirmed
    with pytest.raises(CommandError, match="in the memory of the process"):
        call_command("runconsumer", "--drain")
