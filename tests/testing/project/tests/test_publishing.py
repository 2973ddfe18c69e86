"""No test touches the configured server, whichever runner runs it."""

import os
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.test import SimpleTestCase, TestCase
from shop.handlers import emails

from mq_django.transport.connections import get_client

ANN = {"email": "ann@shop.example"}


def note_server():
    """Write the server of this process to a file, whose name is that of the process."""
    Path(os.environ["SERVERS"], str(os.getpid())).write_text(os.environ["MQ_DJANGO_TEST_SERVER"])


def ready():
    return get_client("chores", "").xlen(emails.config.keys.ready)


class Publishes:
    def test_it_publishes(self):
        with self.captureOnCommitCallbacks(execute=True):
            emails.publish("welcome", ANN)
        assert ready()
        note_server()


class First(Publishes, TestCase):
    pass


class Second(Publishes, TestCase):
    pass


class Third(Publishes, TestCase):
    pass


class Fourth(Publishes, TestCase):
    pass


class Forks(SimpleTestCase):
    def test_a_forked_process_has_the_server_of_its_test(self):
        before = ready()
        emails.publish("welcome", {}, on_commit=False)
        child = os.fork()
        if not child:
            emails.publish("welcome", {}, on_commit=False)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert ready() == before + 2


@pytest.mark.parametrize("number", [1, 2])
def test_what_another_test_has_written_is_gone(number):
    emails.publish("welcome", ANN)
    assert ready() == 1


def test_settings_of_a_test_do_not_lead_to_it(settings):
    queues = {"default": {}, "emails": {"CONNECTION": os.environ["CONFIGURED_REDIS"]}}
    settings.MQ_DJANGO = {**settings.MQ_DJANGO, "QUEUES": queues}
    assert emails.publish("welcome", ANN)


def test_in_a_transaction_no_consumer_starts_in_the_process_of_the_test(mq, db):
    with pytest.raises(CommandError, match="This test is in a transaction"):
        call_command("runconsumer", "--drain")
