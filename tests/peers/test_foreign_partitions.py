"""Programs in JavaScript publish to the partitions of a queue, and handle one."""

import pytest

from mq_django import queues
from mq_django.core.partitions import partition_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("node")]

PARTITIONS = 8


@pytest.fixture
def shop(project):
    return project(QUEUES={"emails": {"PARTITIONS": PARTITIONS}})


def test_the_node_producer_chooses_the_partition_of_a_key(shop, redis_client):
    keys = [f"user:{number}" for number in range(20)]
    for key in keys:
        assert shop.node_publish("emails", "welcome", f'{{"key":"{key}"}}', "0", key, MQ_PARTITIONS=str(PARTITIONS))
    for number, part in enumerate(queues["emails"].config.parts):
        found = [fields[b"partitionkey"].decode() for _, fields in redis_client.xrange(part.keys.ready)]
        assert found == [key for key in keys if partition_of(key, PARTITIONS) == number]


def test_what_node_publishes_wakes_the_consumers_in_django(shop):
    shop.runconsumer("emails")
    queues["emails"].publish("welcome", {"n": 0}, key="user:7")
    shop.wait_handled(1)
    shop.node_publish("emails", "welcome", '{"n":1}', "0", "user:7", MQ_PARTITIONS=str(PARTITIONS))
    assert [told["data"] for told in shop.wait_handled(2)] == [{"n": 0}, {"n": 1}]


def test_a_node_consumer_handles_one_partition(shop, redis_client):
    number = partition_of("user:7", PARTITIONS)
    node = shop.node_consumer("emails", str(number), MQ_PARTITIONS=str(PARTITIONS))
    message_id = queues["emails"].publish("welcome", {"n": 1}, key="user:7")
    assert node.line()["id"] == message_id
    part = queues["emails"].config.parts[number]
    wait_until(lambda: redis_client.xlen(part.keys.ready) == 0)
    assert node.stop() == 0
    assert redis_client.hgetall(part.keys.consumers) == {}
