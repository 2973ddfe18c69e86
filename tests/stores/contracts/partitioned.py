"""Partitions: their number, and the preludes of the scripts that publish, wake and fetch."""

from collections.abc import Iterator
from typing import Any

import pytest

from mq_django.conf import get_config
from mq_django.core.messages import HandBack
from mq_django.core.partitions import number_in
from mq_django.errors import QueueClosed
from mq_django.stores import open_store
from mq_django.stores.line_store import Shares
from mq_django.stores.partition_transport import CLOSED, PartitionTransport
from tests.stores.contracts.frozen import NOW_MS
from tests.stores.contracts.stage import Stage, message_of
from tests.stores.everything import ME, OTHER


def scenes() -> Iterator[Any]:
    """Yield every scene."""
    yield from (slept, of_a_key, limited)


def opened(stage: Stage, **options: Any) -> tuple[Any, PartitionTransport]:
    """Return the store of a partition, and its transport."""
    stage.configure(QUEUES={"emails": {"PARTITIONS": 2, **options}})
    part = get_config().queue("emails.1")
    assert number_in(part.name) == 1
    transport = PartitionTransport(part, stage.transport())
    store = open_store(part, transport)
    store.create_groups()
    return store, transport


def slept(stage: Stage) -> None:
    store, transport = opened(stage)
    transport.sleeps = True
    with stage.under("of a partition: nothing is there"):
        assert store.take(ME, count=5) == []
    with stage.under("to a partition, while consumers sleep"):
        store.publish([message_of(1)])
    with stage.under("to a partition"):
        store.publish([message_of(2)])
    with stage.under("to a partition, later"):
        store.publish([message_of(3, delay_ms=5000)])
    for known in (CLOSED, "8"):
        stage.client.hset(store.keys.control, "partitions", known)
        for options in ({}, {"delay_ms": 5000}):
            with stage.under(f"to a partition that is not there: {known}"), pytest.raises(QueueClosed):
                store.publish([message_of(4, **options)])


def of_a_key(stage: Stage) -> None:
    store, transport = opened(stage, ORDERED=True)
    store.publish([message_of(number, key="a") for number in (1, 2)])
    (first,) = store.take(ME, count=5)
    transport.sleeps = True
    with stage.under("of a partition: the key is busy"):
        assert store.take(OTHER, count=5) == []
    with stage.under("of a partition, whose key goes on"):
        stage.settle(store, HandBack(), [first])


def limited(stage: Stage) -> None:
    stage.configure(QUEUES={"emails": {"PARTITIONS": 2, "CONCURRENCY": 3, "RATE_LIMIT": "5/h"}})
    config = get_config().queue("emails")
    mine, other = Shares(config, stage.transport(), ME), Shares(config, stage.transport(), OTHER)
    with stage.under("all is free"):
        mine.ask(0, 2)
    with stage.under("another holds two of three"):
        other.ask(0, 2)
    with stage.under("there is none: it will be told"):
        other.ask(1, 1)
    mine.give_back(1)
    with stage.under("one of two grants was not used, and somebody waits"):
        mine.ask(1, 0)
    with stage.under("all have ended"):
        mine.ask(0, 0)
    with stage.under("the rate allows two more"):
        mine.ask(0, 3)
    with stage.under("it allows none"):
        mine.ask(2, 1)
    stage.client.hset(config.keys.shares, mapping={OTHER: f"3:{NOW_MS - 1}", "nobody": "junk"})
    with stage.under("what others held no longer counts"):
        mine.ask(0, 0)
    stage.client.hset(config.keys.control, "limits", '{"concurrency": {"most": 1}}')
    with stage.under("a limit was changed"):
        mine.ask(0, 3)
