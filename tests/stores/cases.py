"""The stores that the contract is held against."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import redis

from mq_django.conf import QueueConfig, get_config
from mq_django.core.jsontext import dumps
from mq_django.core.keys import LOG
from mq_django.core.messages import Message
from mq_django.core.publication import Publication, PublishOptions
from mq_django.core.rsmq_format import new_id
from mq_django.stores import open_members, open_store
from mq_django.stores.base import Store
from mq_django.stores.log import Log
from mq_django.stores.members import Members
from mq_django.transport.connections import open_session

#: Where the messages go that a store is given without any factory.
SOME_QUEUE = QueueConfig(name="q")
OPTION_FIELDS = set(PublishOptions._fields)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A store, with what its users write."""

    name: str
    #: Parts of MQ_DJANGO.
    settings: Mapping[str, Any]
    #: What the runtime calls the queue.
    queue: str
    #: What it cannot do. A message that asks for it is refused with `NotSupported`.
    refuses: frozenset[str] = field(default=frozenset())
    #: Options of a queue that it does not have: each is a problem of the settings.
    lacks: frozenset[str] = field(default=frozenset())

    def open(self) -> Store:
        """Return the store on a connection of its own."""
        return open_store(get_config().queue(self.queue), open_session("consume"))

    def members(self) -> Members:
        """Return what knows the consumers of the queue."""
        return open_members(get_config().queue(self.queue), open_session("consume"))

    def publish(self, store: Store, *outgoing: Publication) -> list[str]:
        """Publish as users of this store do."""
        return store.publish(outgoing)

    def publish_garbage(self, store: Store, client: redis.Redis, garbage: bytes) -> None:
        """Put bytes that are no message where messages are taken from."""
        client.xadd(store.keys.ready, {"type": "welcome", "data": garbage})

    def namespaced(self, namespace: str) -> Mapping[str, Any]:
        """Return the settings of a test, whose keys start with its namespace."""
        return self.settings

    def limited(self, namespace: str, **options: Any) -> Mapping[str, Any]:
        """Return the settings with further options of the queue."""
        settings = self.namespaced(namespace)
        return {part: {name: {**own, **options} for name, own in some.items()} for part, some in settings.items()}


def message(name: str = "welcome", data: Any = None, **attributes: Any) -> Message:
    """Return a message of some queue, under an id that every store takes."""
    return Message(**{"id": new_id(), "name": name, "data": data, "queue": "q", **attributes})


def outgoing(name: str = "welcome", data: Any = None, **given: Any) -> Publication:
    """Return a message on its way, with options of publications and attributes of messages."""
    options = PublishOptions(SOME_QUEUE, **{field: given.pop(field) for field in OPTION_FIELDS & given.keys()})
    claims = options.claim_ms is not None
    return Publication(message(name, data, claims=claims, **given), dumps(data), options)


class TopicCase(Case):
    """A group that reads what is published to its topic."""

    def publish(self, store: Store, *outgoing: Publication) -> list[str]:
        """See Case.publish()."""
        Log(get_config().topic("orders"), open_session("produce")).publish(outgoing)
        return [item.message.id for item in outgoing]

    def publish_garbage(self, store: Store, client: redis.Redis, garbage: bytes) -> None:
        """See Case.publish_garbage()."""
        client.xadd(store.keys.streams()[LOG], {"type": "welcome", "data": garbage})


#: Each option of a queue, with a value that the default store takes.
OPTIONS = {
    "VISIBILITY_TIMEOUT": 10,
    "MAX_ATTEMPTS": 3,
    "RETRY": {"delay": 1},
    "TIMEOUT": 5,
    "MAX_SIZE": 1000,
    "MAX_DEPTH": 10,
    "RESULT_TTL": 5,
    "RATE_LIMIT": "5/s",
    "CONCURRENCY": 2,
}

STREAM = Case(name="stream", settings={"QUEUES": {"emails": {}}}, queue="emails")
#: With a limit that no test reaches: what is parked, and the order of keys, have tests of their own.
LINES = Case(
    name="lines", settings={"QUEUES": {"emails": {"CONCURRENCY": {"queue": 1000, "key": 1000}}}}, queue="emails"
)
TOPIC = TopicCase(
    name="topic",
    settings={"QUEUES": {}, "TOPICS": {"orders": {}}},
    queue="orders:billing",
    refuses=frozenset({"priority"}),
    lacks=frozenset({"MAX_DEPTH", "RESULT_TTL", "RATE_LIMIT", "CONCURRENCY"}),
)
#: What a group keeps itself, published to for it alone.
GROUP = Case(
    name="group",
    settings={"QUEUES": {}, "TOPICS": {"orders": {}}},
    queue="orders:billing",
    refuses=frozenset({"priority"}),
    lacks=frozenset({"MAX_DEPTH", "RESULT_TTL", "RATE_LIMIT", "CONCURRENCY"}),
)


class RsmqCase(Case):
    """A queue in RSMQ's format."""

    def publish_garbage(self, store: Store, client: redis.Redis, garbage: bytes) -> None:
        """See Case.publish_garbage()."""
        client.hset(store.keys.waiting, "x" * 32, garbage)
        client.zadd(store.keys.due, {"x" * 32: 1})

    def namespaced(self, namespace: str) -> Mapping[str, Any]:
        """See Case.namespaced()."""
        return {"QUEUES": {"emails": {**self.settings["QUEUES"]["emails"], "NAMESPACE": f"{namespace}:r"}}}


RSMQ = RsmqCase(
    name="rsmq",
    settings={"QUEUES": {"emails": {"STORE": "rsmq"}}},
    queue="emails",
    refuses=frozenset({"priority", "unique", "claim", "message_id"}),
    # Its own are NAMESPACE, VT, DELAY, MAXSIZE and REALTIME.
    lacks=frozenset({"VISIBILITY_TIMEOUT", "MAX_SIZE", "RESULT_TTL", "RATE_LIMIT", "CONCURRENCY"}),
)

CASES = [STREAM, TOPIC, GROUP, RSMQ]
