"""A topic with partitions: several logs that are one for those who publish, and for the groups."""

from datetime import UTC, datetime

import pytest

from mq_django import topics
from mq_django.conf import get_config
from mq_django.core.messages import HandBack
from mq_django.core.partitions import number_in, partition_of
from mq_django.errors import InvalidOffset, QueueClosed, UnknownGroup, UnknownTopic
from mq_django.stores import open_log, open_store
from mq_django.stores.base import Settlement
from mq_django.stores.partition_transport import PartitionTransport
from mq_django.transport.connections import get_client, open_transport
from mq_django.transport.sessions import Pooled
from tests.stores.test_partition_transport import Notifications

PARTITIONS = 4
ME = "host-1-me"


@pytest.fixture
def topic(mq_settings):
    mq_settings(QUEUES={}, TOPICS={"orders": {"PARTITIONS": PARTITIONS}})
    return topics["orders"]


@pytest.fixture
def part(topic):
    return get_config().queue("orders.2:billing")


@pytest.fixture
def notifications(redis_client, part):
    return Notifications(redis_client, part)


def key_in(number):
    """Return a key whose messages are in a partition."""
    return next(str(key) for key in range(1000) if partition_of(str(key), PARTITIONS) == number)


def opened(config, *, sleeps=False):
    transport = PartitionTransport(config, Pooled(get_client("consume")))
    transport.sleeps = sleeps
    store = open_store(config, transport)
    store.create_groups()
    return store


def taken(name, *, count=1000):
    """Take up to `count` messages of each partition for a group; return the data of all."""
    parts = get_config().queue(f"orders:{name}").parts
    return sorted(found.message.data for part in parts for found in opened(part).take(ME, count=count))


def add(redis_client, number, entry, data):
    """Add an entry to the log of a partition, as another program does."""
    log = get_config().topic("orders").parts[number].keys.log
    redis_client.xadd(log, {"type": "placed", "data": str(data)}, id=entry)


def test_a_message_is_in_the_partition_of_its_key_and_each_group_gets_all(topic):
    ids = [topic.publish("placed", number, key=f"order:{number}") for number in range(20)]
    assert [number_in(found) for found in ids] == [partition_of(f"order:{number}", PARTITIONS) for number in range(20)]
    assert taken("billing") == taken("stock") == list(range(20))


def test_messages_without_a_key_are_spread(topic):
    ids = topic.publish_many([("placed", number) for number in range(1000)])
    assert {number_in(found) for found in ids} == set(range(PARTITIONS))
    assert taken("billing") == list(range(1000))


def test_an_id_is_added_once_within_the_window_wherever_it_is(topic):
    for _ in range(2):
        topic.publish("placed", 1, message_id="order-1")
        topic.publish_many([("placed", 2), ("placed", 3)], message_ids=["order-2", "order-3"])
    assert taken("billing") == [1, 2, 3]


def test_the_place_of_a_group_is_one_in_each_partition(topic):
    billing = topic.group("billing")
    assert billing.subscribe("beginning")
    assert not billing.subscribe("beginning")
    topic.publish_many([("placed", number) for number in range(1000)])
    assert billing.status().position.lag == 1000
    assert len(taken("billing", count=100)) == 4 * 100
    status = billing.status()
    assert (status.position.lag, status.position.pending) == (600, 400)
    assert status.behind == 1000
    assert [group.position.name for group in topic.groups()] == ["billing"]
    assert billing.unsubscribe()
    assert topic.groups() == []


def test_a_group_is_moved_in_all_partitions(topic, redis_client):
    for number in range(PARTITIONS):
        add(redis_client, number, f"100000000000{number}-0", f"1{number}")
        add(redis_client, number, f"200000000000{number}-0", f"2{number}")
    billing = topic.group("billing")
    billing.subscribe("end")
    assert taken("billing") == []
    billing.seek(datetime.fromtimestamp(1_500_000_000, UTC))
    assert taken("billing") == [20, 21, 22, 23]
    # The id of an entry stands for its time in the others.
    billing.seek("2000000000002-0")
    assert taken("billing") == [22, 23]
    # Lists name it with its partition.
    billing.seek("2000000000001-0.1")
    assert taken("billing") == [21, 22, 23]
    with pytest.raises(InvalidOffset):
        billing.seek("2000000000001-0.x")
    billing.seek("beginning")
    assert taken("billing") == [10, 11, 12, 13, 20, 21, 22, 23]
    billing.seek("end")
    assert taken("billing") == []


def test_a_partition_that_does_not_have_a_group_gets_it_when_the_group_is_moved(topic):
    with pytest.raises(UnknownGroup, match="Topic 'orders' has no group 'billing'"):
        topic.group("billing").seek("end")
    assert topic.groups() == []
    opened(get_config().queue("orders.2:billing"))
    topic.publish_many([("placed", number) for number in range(1000)])
    topic.group("billing").seek("end")
    assert taken("billing") == []
    topic.group("billing").seek("beginning")
    assert taken("billing") == list(range(1000))


def test_a_group_can_be_moved_in_one_partition(topic):
    topic.publish_many([("placed", number) for number in range(1000)])
    assert len(taken("billing", count=100)) == 400
    partition = get_config().topic("orders.1")
    open_log(partition, open_transport("produce", partition.connection)).seek("billing", "beginning")
    assert topic.group("billing").status().position.lag == 700


def test_the_log_is_read_by_the_time_of_the_messages(topic, redis_client):
    add(redis_client, 3, "1000-0", 1)
    add(redis_client, 0, "1000-1", 2)
    add(redis_client, 2, "2000-0", 3)
    add(redis_client, 0, "3000-0", 4)
    messages = list(topic.group("billing").messages())
    assert [message.data for message in messages] == [1, 2, 3, 4]
    assert {message.queue for message in messages} == {"orders"}
    replayed = topic.group("billing").replay(print, since="1000-1", until="2000-0", dry=True)
    assert [message.data for message in replayed.handled] == [2, 3]


def test_another_number_of_partitions_is_refused_before_anything_is_written(topic, mq_settings, redis_client):
    topic.publish("placed", 1)
    mq_settings(QUEUES={}, TOPICS={"orders": {"PARTITIONS": 8}})
    before = redis_client.dbsize()
    with pytest.raises(QueueClosed, match="Topic 'orders' has 4 partitions in Redis, and PARTITIONS is 8 here"):
        topics["orders"].publish("placed", 2)
    with pytest.raises(QueueClosed, match="publish to a topic with another name"):
        topics["orders"].group("billing").subscribe()
    assert redis_client.dbsize() == before


def test_a_topic_that_has_messages_gets_no_partitions_by_the_setting_alone(mq_settings):
    mq_settings(QUEUES={}, TOPICS={"orders": {}})
    topics["orders"].publish("placed", 1)
    mq_settings(QUEUES={}, TOPICS={"orders": {"PARTITIONS": 2}})
    with pytest.raises(QueueClosed, match="Topic 'orders' has no partitions in Redis, and PARTITIONS is 2 here"):
        topics["orders"].publish("placed", 2)


def test_nobody_publishes_to_a_partition_by_its_name(topic):
    with pytest.raises(UnknownTopic, match=r"'orders\.2' is a partition: use the topic 'orders'"):
        topics["orders.2"]
    with pytest.raises(UnknownTopic, match=r"No topic 'orders\.4'"):
        topics["orders.4"]


def test_the_first_message_after_a_fetch_that_found_nothing_wakes_the_consumers_of_all_groups(
    topic, part, notifications, redis_client
):
    stores = [opened(part, sleeps=True), opened(get_config().queue("orders.2:stock"), sleeps=True)]
    topic.publish("placed", 1, key=key_in(2))
    assert notifications.count() == 0
    for store in stores:
        assert len(store.take(ME, count=5)) == 1
        assert store.take(ME, count=5) == []
    topic.publish("placed", 2, key=key_in(2))
    topic.publish("placed", 3, key=key_in(2))
    assert notifications.count() == 1
    topic.publish("placed", 4, key=key_in(1))
    assert notifications.count() == 0
    assert redis_client.pttl(part.keys.asleep) == -2


def test_what_a_group_gets_again_wakes_consumers(topic, part, notifications):
    store = opened(part, sleeps=True)
    topic.publish("placed", 1, key=key_in(2))
    (found,) = store.take(ME, count=5)
    assert store.take(ME, count=5) == []
    store.settle(ME, [Settlement(found, HandBack())])
    assert notifications.count() == 1
    assert len(store.take(ME, count=5)) == 1
    assert store.take(ME, count=5) == []
    topic.group("billing").seek("beginning")
    assert notifications.count() == 1
