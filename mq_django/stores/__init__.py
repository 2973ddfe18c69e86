"""How queues live in Redis, and nothing else that does."""

from mq_django.conf import QueueConfig
from mq_django.stores.base import Store
from mq_django.stores.stream import StreamStore
from mq_django.transport.sessions import Wire

_STORES = {"stream": StreamStore}


def open_store(config: QueueConfig, wire: Wire) -> Store:
    """Return the store of a queue, talking through `wire`."""
    return _STORES[config.store](config, wire)


__all__ = ["open_store"]
