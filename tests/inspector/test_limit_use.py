"""How far limits are used, as people see it."""

import pytest

from mq_django import queues
from mq_django.conf import get_config
from mq_django.core.outcomes import ACK
from mq_django.inspector.limit_use import limit_use
from mq_django.stores import open_store
from mq_django.stores.base import Settlement
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled


@pytest.fixture
def wire(mq_settings):
    limits = {"RATE_LIMIT": {"queue": "90/m", "key": "3/m"}, "CONCURRENCY": {"queue": 50, "key": 1}}
    mq_settings(QUEUES={"emails": limits, "plain": {}})
    return Pooled(get_client("inspect"))


def config(name="emails"):
    return get_config().queue(name)


def test_a_queue_that_nobody_has_used_uses_nothing(wire):
    found = limit_use(config(), wire)
    assert (found.granted, found.concurrent, found.parked, found.keys, found.page) == (0, 0, 0, 0, [])


def test_what_is_handled_what_was_granted_and_who_waits_is_seen(wire):
    for key in ("a", "a", "a", "b", "c", "c"):
        queues["emails"].publish("sms", 1, key=key)
    store = open_store(config(), wire)
    store.create_groups()
    held = store.take("c1", count=10)
    found = limit_use(config(), wire)
    assert (found.granted, found.concurrent, found.parked, found.keys) == (3, 3, 3, 2)
    keys = {(use.key, use.parked, use.granted, use.concurrent) for use in found.page}
    assert keys == {("a", 2, 1, 1), ("c", 1, 1, 1)}
    assert all(found.now_ms < use.next_check_ms <= found.now_ms + 10_000 for use in found.page)
    store.settle("c1", [Settlement(item, ACK) for item in held])
    again = limit_use(config(), wire)
    # Their next messages run when somebody takes them.
    assert (again.concurrent, again.parked, again.granted) == (0, 3, 3)


def test_keys_that_wait_come_in_pages(wire):
    for n in range(7):
        queues["emails"].publish_many([("sms", 1)] * 2, key=f"k{n}")
    store = open_store(config(), wire)
    store.create_groups()
    for _ in range(2):
        held = store.take("c1", count=14)
        store.settle("c1", [Settlement(item, ACK) for item in held])
    found = limit_use(config(), wire)
    pages = [limit_use(config(), wire, start=start, count=2).page for start in range(0, found.keys + 2, 2)]
    assert [use.key for page in pages for use in page] == [use.key for use in found.page]
    assert pages[-1] == []


def test_looking_changes_nothing(wire, redis_client, namespace):
    queues["emails"].publish_many([("sms", 1)] * 3, key="a")
    store = open_store(config(), wire)
    store.create_groups()
    store.take("c1", count=10)
    before = {key: redis_client.dump(key) for key in redis_client.scan_iter(match=f"{namespace}:*")}
    limit_use(config(), wire)
    assert {key: redis_client.dump(key) for key in redis_client.scan_iter(match=f"{namespace}:*")} == before


def test_a_queue_without_limits_shows_what_is_left_of_them(wire):
    assert limit_use(config("plain"), wire).parked == 0
