"""What tests of stores do again and again."""

from mq_django.core.messages import Delivery
from mq_django.stores.base import Settlement
from tests import places


def make_due(client, keys, *members):
    """Move due times into the past."""
    for member in members:
        client.zadd(keys.due, {member: places.now_ms(client) - 1}, xx=True)


def take_all(store, consumer="c1"):
    """Take everything that is ready."""
    found = []
    while taken := store.take(consumer, count=100):
        found += taken
    assert all(isinstance(item, Delivery) for item in found)
    return found


def settle(store, outcome, **more):
    """Take what is ready and settle it; return its messages."""
    taken = take_all(store)
    assert store.settle("c1", [Settlement(item, outcome, **more) for item in taken]) == []
    return [item.message for item in taken]
