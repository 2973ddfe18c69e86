"""A queue and its store, and what tests of stores do again and again."""

import pytest

from mq_django import queues
from mq_django.conf import get_config
from mq_django.stores import open_store
from mq_django.transport import scripts
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled, Session
from tests.stores.declared import guarded, in_one_slot


@pytest.fixture(autouse=True)
def declared_keys(monkeypatch):
    """Let every script fail that touches a key which it does not declare, or declares keys of several slots."""
    monkeypatch.setattr(scripts, "load", guarded(scripts.load))
    monkeypatch.setattr(scripts, "command", in_one_slot(scripts.command))


@pytest.fixture
def emails(mq_settings):
    return queues["emails"]


@pytest.fixture
def keys(emails):
    return emails.config.keys


@pytest.fixture
def store(emails):
    found = open_store(emails.config, Pooled(get_client("consume")))
    found.create_groups()
    return found


@pytest.fixture
def open_queue(mq_settings):
    """Configure the queue `emails` and open it, on connections of their own: one store, or a list of `number` ones."""

    def open_with(number=1, **options):
        mq_settings(QUEUES={"emails": options})
        found = [open_store(get_config().queue("emails"), Session(get_client("consume"))) for _ in range(number)]
        found[0].create_groups()
        return found if number > 1 else found[0]

    return open_with


@pytest.fixture
def forget(redis_client, namespace):
    """Delete what the rows of a table have left before, for the next one."""

    def forget():
        for key in list(redis_client.scan_iter(match=f"*{namespace}*", count=1000)):
            redis_client.delete(key)

    return forget
