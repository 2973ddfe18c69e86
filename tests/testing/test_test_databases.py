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
        [sys.executable, "manage.py", "runconsumer", "--drain"], capture_output=True, text=True, timeout=280
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


def test_a_runner_that_tells_late_that_it_is_one_protects_the_database_of_the_settings(project, run):
    (project / "check.py").write_text("""
import django
django.setup()
from django.core.management import CommandError, call_command
from django.test.utils import setup_test_environment
setup_test_environment()
from mq_django.testing import MQ
with MQ():
    try:
        call_command("runconsumer", "--drain")
    except CommandError as error:
        print(error)
""")
    assert "no database of tests is known" in run("check.py").stdout


IN_PROCESS = """
from django.core.management import call_command
from django.db import connections
from django.test import TransactionTestCase
from mq_django.testing import MQTestMixin
from shop.models import Order
from shop.tasks import confirm

class Tests(MQTestMixin, TransactionTestCase):
    def test_it_confirms(self):
        order = Order.objects.create(email="ann@shop.example")
        confirm.enqueue(order.pk)
        call_command("runconsumer", "--drain")
        order.refresh_from_db()
        assert order.confirmed
        # Another one, for which Django has created no database of tests, is still there.
        assert "other" in connections.settings
"""


def test_in_the_process_of_a_test_it_leaves_the_databases_alone(project, run):
    with (project / "settings.py").open("a") as settings:
        settings.write(
            'DATABASES["other"] = {**DATABASES["default"], "NAME": BASE_DIR / "other.sqlite3", "TEST": {}}\n'
        )
    (project / "tests" / "test_a.py").write_text(IN_PROCESS)
    run("manage.py", "test", "tests", TEST_DATABASE_FILE="1")


def test_a_consumer_has_the_time_of_the_test(project, run):
    text = """
import subprocess
import sys
import pytest
from shop.handlers import emails

@pytest.mark.django_db(transaction=True)
def test_what_has_expired_is_not_handled(mq):
    mq.advance(days=2)
    emails.publish("welcome", {"email": "ann@shop.example"}, expires=60)
    mq.advance(hours=1)
    subprocess.run([sys.executable, "manage.py", "runconsumer", "--drain"], timeout=280, check=True)
    assert mq.messages("emails") == []
    from mq_django import queues
    assert queues["emails"].find(mq.published("emails")[0].id).place.name == "EXPIRED"
"""
    (project / "tests" / "test_a.py").write_text(text)
    run("-m", "pytest", "tests", TEST_DATABASE_FILE="1")
