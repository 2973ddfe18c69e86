"""How far limits are used, as people see it."""

import pytest

from mq_django import queues
from mq_django.conf import get_config
from mq_django.core.messages import ACK
from mq_django.inspector.plans import limit_uses
from mq_django.stores import open_store
from mq_django.stores.base import Settlement
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled


@pytest.fixture
def transport(mq_settings):
    limits = {"RATE_LIMIT": {"queue": "90/m", "key": "3/m"}, "CONCURRENCY": {"queue": 50, "key": 1}}
    mq_settings(QUEUES={"emails": limits, "plain": {}})
    return Pooled(get_client("inspect"))


def config(name="emails"):
    return get_config().queue(name)


def test_keys_that_wait_come_in_pages(transport):
    for n in range(7):
        queues["emails"].publish_many([("sms", 1)] * 2, key=f"k{n}")
    store = open_store(config(), transport)
    store.create_groups()
    for _ in range(2):
        held = store.take("c1", count=14)
        store.settle("c1", [Settlement(item, ACK) for item in held])
    found = limit_uses([config()], [transport])[0]
    pages = [limit_uses([config()], [transport], start=start, count=2)[0].page for start in range(0, found.keys + 2, 2)]
    assert [use.key for page in pages for use in page] == [use.key for use in found.page]
    assert pages[-1] == []
