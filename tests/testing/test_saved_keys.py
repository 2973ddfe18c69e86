"""The queues are empty for a while, and then as before."""

import pytest

from mq_django import queues, topics
from mq_django.testing.looking import messages, topic
from mq_django.testing.test_state import without_keys
from mq_django.transport.scripts import MOVED_CLOCK
from tests.seeding import bury, publish, take

pytestmark = pytest.mark.usefixtures("mq_settings")


def states(queue):
    return [(each.message.id, each.state) for each in messages(queue)]


def test_messages_in_all_places_come_back(mq_settings, namespace):
    mq_settings(TOPICS={"orders": {}}, QUEUES={"emails": {}, "jobs": {"STORE": "rsmq", "NAMESPACE": namespace}})
    bury("emails", "note")
    publish("emails", "note", 1)
    take("emails", 1)
    publish("emails", "note", 2)
    publish("emails", "note", 3, delay=60)
    publish("jobs", "note", 4)
    topics["orders"].publish("paid", 7, on_commit=False)
    before = states("emails"), states("jobs"), topic("orders")
    assert {state for _, state in before[0]} == {"dead", "pending", "ready", "delayed"}
    with without_keys():
        assert (states("emails"), states("jobs"), topic("orders").messages) == ([], [], [])
        publish("emails", "note", "meanwhile")
    assert (states("emails"), states("jobs"), topic("orders")) == before


def test_a_pending_message_is_still_held(redis_client):
    publish("emails", "note", 1)
    (delivery,) = take("emails", 1)
    with without_keys():
        pass
    keys = queues["emails"].config.keys
    assert [row["message_id"] for row in redis_client.xpending_range(keys.ready, keys.group, "-", "+", 9)] == [
        delivery.entry
    ]


def test_keys_expire_when_they_would_have(redis_client, namespace):
    redis_client.set(f"{namespace}:a", "1", px=50_000)
    redis_client.set(f"{namespace}:b", "1")
    with without_keys():
        assert redis_client.exists(f"{namespace}:a", f"{namespace}:b") == 0
    assert 0 < redis_client.pttl(f"{namespace}:a") <= 50_000
    assert redis_client.pttl(f"{namespace}:b") == -1


def test_they_come_back_after_an_error():
    message_id = publish("emails", "note", 1)
    with pytest.raises(KeyError), without_keys():
        raise KeyError
    assert states("emails") == [(message_id, "ready")]


def test_the_moved_time_stays(redis_client, mq_settings, namespace):
    """Its key is in the default namespace."""
    mq_settings(NAMESPACE=MOVED_CLOCK.partition(":")[0])
    redis_client.set(MOVED_CLOCK, 5)
    try:
        with without_keys():
            assert redis_client.get(MOVED_CLOCK) == b"5"
    finally:
        redis_client.delete(MOVED_CLOCK)
