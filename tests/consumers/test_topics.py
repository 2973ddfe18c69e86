"""`runconsumer` on a topic, with real processes."""

import json
import os
import signal

import pytest
from django.core.management import CommandError, call_command

from mq_django import inspector, queues, topics
from tests.waiting import wait_until

#: Of the topic. One without is handled in test_asking, test_pausing and test_servers_of_queues.
PARTITIONS = 4


class Shop:
    """What the handlers of `tests.peers` do in trees."""

    def __init__(self, trees, client, namespace):
        self.runconsumer, self._client, self._key = trees, client, f"{namespace}:handled"

    def wait_for_groups(self, program):
        """Wait until both groups have begun in each partition: one that begins at the end gets nothing earlier."""
        wait_until(lambda: program.logged().count(" starts at ") == 2 * PARTITIONS, timeout=20)

    def handled(self):
        return [json.loads(line) for line in self._client.lrange(self._key, 0, -1)]

    def wait_handled(self, count):
        """Wait until so many messages were handled, and return them."""
        wait_until(lambda: self._client.llen(self._key) >= count, message=f"{count} messages handled")
        return self.handled()


@pytest.fixture
def shop(mq_settings, trees, redis_client, namespace, monkeypatch):
    monkeypatch.setenv("MQ_TEST_APPS", "tests.peers")
    orders = {"RETRY": {"delay": 0.05}, "PARTITIONS": PARTITIONS}
    mq_settings(QUEUES={"emails": {}}, TOPICS={"orders": orders})
    return Shop(trees, redis_client, namespace)


def of(told, group):
    return [each["data"] for each in told if each.get("group") == group]


def groups():
    return {status.position.name: status for status in topics["orders"].groups()}


def at_rest():
    """Also of what was handed back, which waits under the keys of the groups and not in the log."""
    views = inspector.overview([f"orders:{name}" for name in groups()])
    return {view.depth + view.lag for view in views} == {0}


def test_every_group_handles_every_message_whoever_is_killed_and_replays_what_it_is_told_to(shop):
    program = shop.runconsumer("--processes", "2")
    shop.wait_for_groups(program)
    topics["orders"].publish("order.paid", "fails once")
    topics["orders"].publish("order.paid", 2)
    topics["orders"].publish("order.sent", 3)
    queues["emails"].publish("welcome", 4)
    told = shop.wait_handled(6)
    # Threads run side by side, so only what they did is certain, not in which order.
    assert set(of(told, "billing")) == {2, 3, "fails once"}
    assert set(of(told, "stock")) == {2, "fails once"}
    attempts = {each["group"]: each["attempt"] for each in told if each["data"] == "fails once"}
    assert attempts == {"stock": 1, "billing": 2}
    wait_until(at_rest)

    topics["orders"].group("billing").seek("beginning")
    told = shop.wait_handled(9)[6:]
    assert set(of(told, "billing")) == {2, 3, "fails once"}
    wait_until(at_rest)

    # The running consumer subscribes again, where its subscriber says: the seed's way to replay.
    assert topics["orders"].group("billing").unsubscribe()
    told = shop.wait_handled(12)[9:]
    assert set(of(told, "billing")) == {2, 3, "fails once"}
    wait_until(at_rest)

    # Neither a killed consumer nor an orderly stop loses anything.
    before = len(shop.handled())
    everything = set(range(100, 300))
    topics["orders"].publish_many([("order.paid", n) for n in everything])
    os.kill(shop.wait_handled(before + 20)[before]["pid"], signal.SIGKILL)

    def handled(group):
        return set(of(shop.handled()[before:], group))

    # What ran in the killed process runs alone in another one, which must start first.
    wait_until(lambda: handled("billing") == handled("stock") == everything, timeout=30)
    wait_until(at_rest)
    before = len(shop.handled())
    topics["orders"].publish_many([("order.paid", n) for n in range(300, 600)])
    shop.wait_handled(before + 50)
    assert program.stop() == 0
    assert shop.runconsumer("orders", "--drain").wait() == 0
    told = shop.handled()[before:]
    assert sorted(of(told, "billing")) == sorted(of(told, "stock")) == list(range(300, 600))
    assert {(each.position.lag, each.position.pending) for each in groups().values()} == {(0, 0)}


def test_nothing_to_handle_is_a_sentence(mq_settings):
    mq_settings(QUEUES={}, TOPICS={"other": {}})
    with pytest.raises(CommandError, match="No queue is configured"):
        call_command("runconsumer", "other")
