from mq_django.core.messages import ACK
from mq_django.stores.base import Settlement
from tests.purging import purge


def test_a_purge_deletes_what_is_ready_and_what_waits_and_leaves_the_rest(emails, keys, store, redis_client):
    emails.publish("held", 1)
    (held,) = store.take("c1", count=1)
    emails.publish("sync", 2, unique="a", unique_for="handled")
    emails.publish("sync", 3, unique="b", unique_for="handled", delay=60)
    emails.publish("remind", 4, unique="c", delay=60)
    emails.publish_many([("welcome", n) for n in range(30)])
    emails.publish_many([("welcome", n) for n in range(30)], delay=60)
    emails.publish("welcome", 5, priority=5)
    emails.publish("welcome", 6, priority=-5)
    redis_client.xadd(keys.ready, {"type": "without an id"})
    redis_client.xadd(keys.dead, {"type": "old"})
    redis_client.zadd(keys.unhandled, {"a1": 7})
    assert len(purge(store.config)) == 67
    assert not redis_client.exists(keys.claims, keys.waiting, keys.due, keys.unique, keys.priority, keys.unhandled)
    assert redis_client.xlen(keys.dead) == 1
    assert store.depths().depth == store.depths().pending == 1
    assert store.settle("c1", [Settlement(held, ACK)]) == []


def test_each_place_is_counted_once(emails, keys, store, redis_client):
    emails.publish("held", 1)
    store.take("c1", count=1)
    emails.publish("welcome", 2)
    emails.publish("welcome", 3, priority=5)
    emails.publish("welcome", 4, priority=5)
    emails.publish("remind", 5, delay=60)
    redis_client.zadd(keys.unhandled, {"a1": 7})
    redis_client.zadd(keys.parked, {"p:1": 7})
    depths = store.depths()
    assert (depths.ready, depths.delayed, depths.unhandled, depths.parked, depths.pending) == (3, 1, 1, 1, 1)
    assert depths.depth == 7
