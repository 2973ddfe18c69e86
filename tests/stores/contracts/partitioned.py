"""Partitions: their number, and the preludes of the scripts that publish, wake and fetch."""

from collections.abc import Iterator
from typing import Any

import pytest

from mq_django.conf import get_config
from mq_django.core.outcomes import Bury, HandBack, Retry
from mq_django.core.partitions import number_in
from mq_django.errors import QueueClosed
from mq_django.stores import open_store
from mq_django.stores.partition_count import CLOSED, record_command
from mq_django.stores.partition_wire import PartitionWire
from mq_django.stores.repartitioning import Repartitioning
from mq_django.stores.runtime_schedules import RuntimeSchedules
from mq_django.stores.shares import Shares
from tests.stores.contracts.frozen import NOW_MS
from tests.stores.contracts.stage import Stage, message_of
from tests.stores.everything import ME, OTHER


def scenes() -> Iterator[Any]:
    """Yield every scene."""
    yield from (numbered, slept, of_a_key, renumbered, renumbered_twice, limited)


def numbered(stage: Stage) -> None:
    for partitions in (1, 4, 8):
        stage.queue() if partitions == 1 else stage.configure(QUEUES={"emails": {"PARTITIONS": partitions}})
        with stage.under(f"by the settings: {partitions}"):
            stage.wire().trip([record_command(get_config().queue("emails"))])
    stage.clear()
    stage.queue().publish([message_of(1)])
    stage.configure(QUEUES={"emails": {"PARTITIONS": 4}})
    with stage.under("there are messages in no partition"):
        stage.wire().trip([record_command(get_config().queue("emails"))])
    stage.clear()
    RuntimeSchedules(stage.queue().config, stage.wire()).define("night", b'{"every": 3600}', before=b"", who="ann")
    stage.configure(QUEUES={"emails": {"PARTITIONS": 4}})
    with stage.under("there are schedules of run time in no partition"):
        stage.wire().trip([record_command(get_config().queue("emails"))])


def opened(stage: Stage, **options: Any) -> tuple[Any, PartitionWire]:
    """Return the store of a partition, and its wire."""
    stage.configure(QUEUES={"emails": {"PARTITIONS": 2, **options}})
    part = get_config().queue("emails.1")
    assert number_in(part.name) == 1
    wire = PartitionWire(part, stage.wire())
    store = open_store(part, wire)
    store.create_groups()
    return store, wire


def slept(stage: Stage) -> None:
    store, wire = opened(stage)
    wire.sleeps = True
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
    store, wire = opened(stage, ORDERED=True)
    store.publish([message_of(number, key="a") for number in (1, 2)])
    (first,) = store.take(ME, count=5)
    wire.sleeps = True
    with stage.under("of a partition: the key is busy"):
        assert store.take(OTHER, count=5) == []
    with stage.under("of a partition, whose key goes on"):
        stage.settle(store, HandBack(), [first])


def renumbered(stage: Stage) -> None:
    stage.configure(QUEUES={"emails": {"PARTITIONS": 2, "ORDERED": True, "AFTER_BURY": "hold"}})
    queue = get_config().queue("emails")
    store = open_store(queue.parts[1], stage.wire())
    store.create_groups()
    for number, outcome in ((1, Retry()), (2, Bury("no")), (3, HandBack())):
        store.publish([message_of(number, key=f"k{number}"), message_of(number + 10, key=f"k{number}")])
        stage.settle(store, outcome, store.take(ME, count=5))
    store.publish([message_of(5, delay_ms=5000), message_of(6)])
    stage.client.set(store.keys.result("over"), "a result", px=60_000)
    stage.client.hset(store.keys.claims, mapping={"k:u": "1:gone", "i:gone": "u"})
    stage.client.hset(store.keys.step_notes, mapping={"#": "7", "w:1": "7 done - 1"})
    stage.client.hset(queue.keys.control, "partitions", 2)
    change = Repartitioning(queue, stage.wire())
    with stage.under("begun"):
        change.begin(3)
    with stage.under("closed"):
        change.close("me")
    with stage.under("step by step"):
        while change.take() != (0, 0):
            pass
    with stage.under("another process is ahead"):
        stage.client.hset(queue.keys.control, "repartition:state", "opening")
        with pytest.raises(QueueClosed):
            change.all_taken()
        stage.client.hset(queue.keys.control, "repartition:state", "taking")
    change.all_taken()
    with stage.under("something is on its way"), pytest.raises(QueueClosed):
        change.open()
    stage.client.hset(queue.keys.control, "repartition:state", "putting")
    change.look()
    for part in change.old.each_part:
        while change.put(part)[0]:
            pass
    with stage.under("of a task that has ended"):
        change.copy_results()
    with stage.under("at the end"):
        change.open()
    change.look()


def renumbered_twice(stage: Stage) -> None:
    stage.configure(QUEUES={"emails": {"PARTITIONS": 2}})
    queue = get_config().queue("emails")
    store = open_store(queue.parts[1], stage.wire())
    store.create_groups()
    store.publish([message_of(1)])
    stage.client.hset(queue.keys.control, "partitions", 2)
    change = Repartitioning(queue, stage.wire())
    change.begin(3)
    change.close("me")
    while change.take() != (0, 0):
        pass
    change.all_taken()
    wire = stage.wire()
    (before,) = wire.trip([("DUMP", store.keys.moving)])
    change.put(store.config)
    wire.trip([("RESTORE", store.keys.moving, 0, before, "REPLACE")])
    with stage.under("what has arrived"):
        change.put(store.config)
    change.open()
    with stage.under("it is open"), pytest.raises(QueueClosed):
        change.take()
    with stage.under("it is done"), pytest.raises(QueueClosed):
        change.close("me")


def limited(stage: Stage) -> None:
    stage.configure(QUEUES={"emails": {"PARTITIONS": 2, "CONCURRENCY": 3, "RATE_LIMIT": "5/h"}})
    config = get_config().queue("emails")
    mine, other = Shares(config, stage.wire(), ME), Shares(config, stage.wire(), OTHER)
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
