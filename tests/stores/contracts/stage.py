"""What the scenes of the contracts have in common."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import redis

from mq_django.conf import get_config
from mq_django.core.keys import GroupKeys, RsmqKeys
from mq_django.core.messages import Delivery, Outcome
from mq_django.core.publication import Publication
from mq_django.stores import open_members, open_store
from mq_django.stores.base import Settlement, Store
from mq_django.stores.log import Log
from mq_django.stores.members import Members
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Session
from tests.stores.cases import outgoing
from tests.stores.contracts.frozen import NOW_MS
from tests.stores.contracts.replay import Contracts
from tests.stores.everything import ME, OTHER


def message_of(number: int, name: str = "welcome", **options: Any) -> Publication:
    """Return a message with an id that every store takes: RSMQ's have 32 characters, and say when it was sent."""
    return outgoing(name, {"n": number}, id=rsmq_id(number), **options)


def rsmq_id(number: int) -> str:
    """Return an id of RSMQ's form, of some time before now."""
    return f"jo0000000{number:x}{f'{number:x}':x<22}"


class Stage:
    """A namespace in which scenes are played, one after the other."""

    def __init__(self, contracts: Contracts, configure: Callable[..., dict[str, Any]], namespace: str) -> None:
        self.contracts = contracts
        self.client: redis.Redis = contracts.client
        self.namespace = namespace
        self._configure = configure

    def under(self, title: str) -> AbstractContextManager[None]:
        """Record the calls that are made from here on under a title."""
        return self.contracts.under(title)

    def clear(self) -> None:
        """Remove everything."""
        self.contracts.restore({})

    def transport(self) -> Session:
        """Return a connection."""
        return Session(get_client("consume"))

    def configure(self, **settings: Any) -> None:
        """Use other settings."""
        self._configure(**settings)

    def queue(self, **options: Any) -> Store:
        """Return the store of a queue with these options, its groups made."""
        self._configure(QUEUES={"emails": options})
        return self.store("emails")

    def rsmq(self, **options: Any) -> Store:
        """Return the store of a queue in RSMQ's format."""
        return self.queue(STORE="rsmq", NAMESPACE=f"{self.namespace}:r", **options)

    def topic(self, **options: Any) -> Log:
        """Return the log of a topic."""
        self._configure(QUEUES={}, TOPICS={"orders": options})
        return Log(get_config().topic("orders"), self.transport())

    def group(self, name: str = "billing", **options: Any) -> Store:
        """Return the store of a group of a topic."""
        self.topic(**options)
        return self.store(f"orders:{name}")

    def store(self, name: str) -> Store:
        """Return a store by the name of its queue, its groups made."""
        store = open_store(get_config().queue(name), self.transport())
        store.create_groups()
        return store

    def members(self, store: Store) -> Members:
        """Return what knows the consumers of a queue."""
        return open_members(store.config, self.transport())

    def publish(self, store: Store, *items: Publication) -> None:
        """Publish messages so that a store has them."""
        if isinstance(store.keys, GroupKeys):
            Log(get_config().topic("orders"), self.transport()).publish(items)
        else:
            store.publish(items)

    def taken(self, store: Store, *items: Publication) -> Sequence[Delivery]:
        """Publish messages and take them."""
        self.publish(store, *items)
        found = store.take(ME, count=len(items))
        assert [item.message.id for item in found] == [item.message.id for item in items]
        return found

    def settle(self, store: Store, outcome: Outcome, items: Sequence[Delivery], **more: Any) -> list[str]:
        """Settle deliveries and return the ids of those that were not held."""
        return store.settle(ME, [Settlement(item, outcome, **more) for item in items])

    def lose(self, store: Store, item: Delivery) -> None:
        """Let another consumer hold a delivery."""
        assert store.reassign(ME, OTHER, [(item.stream, item.entry)]) == []

    def let_idle(self, store: Store, items: Sequence[Delivery]) -> None:
        """Let deliveries from a stream be an hour old, and those of RSMQ end in a second."""
        for item in items:
            if isinstance(store.keys, RsmqKeys):
                self.client.zadd(store.keys.zset, {item.message.id: NOW_MS + 1000})
            else:
                key, entry = store.keys.streams()[item.stream], item.entry.partition(b"@")[0]
                self.client.xclaim(key, store.keys.group, ME, 0, [entry], idle=3_600_000, justid=True)

    def make_due(self, store: Store, *members: str) -> None:
        """Let messages be due a second ago."""
        for place, member in enumerate(members):
            assert self.client.zadd(store.keys.due, {member: NOW_MS - 1000 + place}, xx=True, ch=True)
