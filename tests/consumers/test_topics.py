"""`runconsumer` on a topic, with real processes."""

import os
import signal

import pytest

from mq_django import queues, topics
from tests.peers.programs import Project
from tests.waiting import wait_until


@pytest.fixture(params=[{}, {"PARTITIONS": 4}], ids=["one log", "partitions"])
def shop(mq_settings, redis_client, request):
    orders = {"RETRY": {"delay": 0.05}, "VISIBILITY_TIMEOUT": 2, **request.param}
    made = Project(mq_settings(QUEUES={"emails": {}}, TOPICS={"orders": orders}), redis_client)
    yield made
    made.stop()


def of(told, group):
    return [each["data"] for each in told if each.get("group") == group]


def groups():
    return {status.position.name: status for status in topics["orders"].groups()}


def test_every_group_handles_every_message_with_retries_of_its_own(shop):
    shop.runconsumer()
    wait_until(lambda: len(groups()) == 2, timeout=20)
    topics["orders"].publish("order.paid", "fails once")
    topics["orders"].publish("order.paid", 2)
    topics["orders"].publish("order.sent", 3)
    queues["emails"].publish("welcome", 4)
    told = shop.wait_handled(6)
    # Threads run side by side, so only what they did is certain, not in which order.
    assert set(of(told, "billing")) == {2, 3, "fails once"}
    assert set(of(told, "stock")) == {2, "fails once"}
    assert {each["group"]: each["attempt"] for each in told if each["data"] == "fails once"} == {
        "stock": 1,
        "billing": 2,
    }
    wait_until(lambda: all(status.position.pending == 0 for status in groups().values()))
    assert {status.position.lag for status in groups().values()} == {0}


def test_a_seek_replays_while_consumers_run(shop):
    shop.runconsumer("orders:billing")
    topics["orders"].publish_many([("order.paid", n) for n in range(50)])
    shop.wait_handled(50)
    topics["orders"].group("billing").seek("beginning")
    told = shop.wait_handled(100)
    assert sorted(of(told, "billing")) == sorted([*range(50), *range(50)])


def test_a_killed_consumer_loses_nothing_of_a_topic(shop):
    program = shop.runconsumer("orders", "--processes", "2")
    wait_until(lambda: len(groups()) == 2, timeout=20)
    topics["orders"].publish_many([("order.paid", n) for n in range(300)])
    shop.wait_handled(20)
    os.kill(shop.handled()[0]["pid"], signal.SIGKILL)
    wait_until(lambda: {s.position.lag + s.position.pending for s in groups().values()} == {0}, timeout=30)
    # What ran in the killed process runs alone in another one, which must start first.
    wait_until(
        lambda: set(of(shop.handled(), "billing")) == set(of(shop.handled(), "stock")) == set(range(300)), timeout=30
    )
    assert program.stop() == 0


def test_an_orderly_stop_loses_and_doubles_nothing(shop):
    first = shop.runconsumer("orders")
    wait_until(lambda: len(groups()) == 2, timeout=20)
    topics["orders"].publish_many([("order.paid", n) for n in range(400)])
    shop.wait_handled(50)
    assert first.stop() == 0
    shop.runconsumer("orders")
    told = shop.wait_handled(800)
    assert sorted(of(told, "billing")) == sorted(of(told, "stock")) == list(range(400))


def test_nothing_to_handle_is_a_sentence(mq_settings, redis_client):
    empty = Project(mq_settings(QUEUES={}, TOPICS={"other": {}}), redis_client)
    program = empty.runconsumer("other")
    assert program.process.wait(100) == 1
    assert "No queue is configured" in program.stop_and_tell()


def test_a_group_is_drained(shop):
    topics["orders"].group("billing").subscribe()
    topics["orders"].publish_many([("order.paid", n) for n in range(30)])
    program = shop.runconsumer("orders:billing", "--drain")
    assert program.process.wait(100) == 0
    assert sorted(of(shop.handled(), "billing")) == list(range(30))
    assert (groups()["billing"].position.lag, groups()["billing"].position.pending) == (0, 0)


def test_a_group_that_is_removed_while_it_is_consumed_begins_again(shop):
    shop.runconsumer("orders:billing")
    topics["orders"].publish_many([("order.paid", n) for n in range(10)])
    shop.wait_handled(10)
    assert topics["orders"].group("billing").unsubscribe()
    # The running consumer subscribes again, where its subscriber says: the seed's way to replay.
    told = shop.wait_handled(20)
    assert sorted(of(told, "billing")) == sorted([*range(10)] * 2)
