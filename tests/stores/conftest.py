"""A queue and its store, and what tests of stores do again and again."""

import pytest

from mq_django import queues
from mq_django.stores import open_store
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled


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
