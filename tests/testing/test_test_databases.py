"""Consumers that a test starts use the databases of the test run, or do not start."""

import sqlite3

CONSUMER = """
import subprocess
import sys
import pytest
from django.conf import settings
from shop.models import Order
from shop.tasks import confirm

@pytest.mark.django_db(transaction=True)
def test_a_consumer_confirms(mq):
    order = Order.objects.create(email="ann@shop.example")
    confirm.enqueue(order.pk)
    done = subprocess.run(
        [sys.executable, "manage.py", "runconsumer", "--drain"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == CODE, done.stderr
    assert MESSAGE in done.stderr
    order.refresh_from_db()
    assert order.confirmed is (CODE == 0)
"""


def write(project, *, code, message):
    (project / "tests" / "test_a.py").write_text(CONSUMER.replace("CODE", str(code)).replace("MESSAGE", repr(message)))


def test_it_uses_the_database_of_the_test(project, run, configured_keys):
    write(project, code=0, message="")
    run("-m", "pytest", "tests", TEST_DATABASE_FILE="1")
    assert configured_keys() == []
    # pytest removes its own; nothing was written to that of the settings.
    if (project / "development.sqlite3").exists():
        with sqlite3.connect(project / "development.sqlite3") as database:
            assert database.execute("SELECT * FROM sqlite_master").fetchall() == []


def test_it_refuses_a_database_in_memory(project, run):
    write(project, code=1, message="is in the memory of the process that runs the tests")
    run("-m", "pytest", "tests")


def test_it_refuses_the_database_of_the_settings(run):
    assert "no database of tests is known" in run("manage.py", "runconsumer", code=1, MQ_DJANGO_TESTING="1").stderr


def test_in_the_process_of_a_test_it_refuses_a_transaction_and_a_database_in_memory(project, run):
    text = """
import pytest
from django.core.management import CommandError, call_command

def test_it(mq, db):
    with pytest.raises(CommandError, match="This test is in a transaction"):
        call_command("runconsumer", "--drain")

@pytest.mark.django_db(transaction=True)
def test_outside_of_a_transaction(mq):
    with pytest.raises(CommandError, match="in the memory of the process"):
        call_command("runconsumer", "--drain")
"""
    (project / "tests" / "test_a.py").write_text(text)
    run("-m", "pytest", "tests")
