"""The Redis data structures of queues: all reads and writes of messages and members.

A message of a queue is in exactly one of these states, and one script moves it from one to the next:

    delayed --due--> ready --fetched--> pending --acked--> (history, if the queue keeps one)
       ^                                   |
       +----------- retried ---------------+----buried---> dead

Beside them are `unhandled` (nobody handles its name) and `parked` (its key or a limit makes it wait). The log of a
topic keeps its messages, and each of its groups has a position in it and a queue of its own.

`open_store()` returns the store of a queue by its config: `StreamStore`, `LineStore` for queues with limits, an order
or turns, `TopicStore` for a group of a topic, and `RsmqStore` for RSMQ's format. All have the interface `base.Store`.
Queues with partitions have a store each; producers use all of them as one `PartitionedStore`.

`settling` turns the outcomes of deliveries into calls of one script, with all that is written about them: a batch is
one round trip, and each call says which consumer holds the delivery, so that a consumer that lost it changes nothing.
`members` has the consumers and supervisors of a queue, and their heartbeats. `dead_letters`, `handled`, `results`,
`schedules` and `workflow_home` have what their names say.

A store never decides what becomes of a message, and never decodes its data.
"""

from mq_django.conf import DeliveryOptions, GroupConfig, QueueConfig, RsmqConfig, TopicConfig
from mq_django.errors import NotSupported
from mq_django.registry import start_of
from mq_django.stores.base import QueueAccess, Store
from mq_django.stores.line_store import LineStore
from mq_django.stores.log import Log, PartitionedLog, TopicStore
from mq_django.stores.members import Members
from mq_django.stores.partition_transport import transport_of
from mq_django.stores.partitioned_store import PartitionedStore, Publishes
from mq_django.stores.rsmq_store import RsmqMembers, RsmqStore
from mq_django.stores.stream_store import StreamStore
from mq_django.transport.sessions import Transport


def open_store(config: QueueConfig, transport: Transport) -> Store:
    """Return the store of a queue, of a partition, or of a group of a topic, that uses `transport`.

    Raises:
        NotSupported: the queue has partitions: each of them has a store.
    """
    if config.parts:
        raise NotSupported(f"Queue {config.name!r} has partitions: name one of them, such as {config.parts[0].name!r}")
    if isinstance(config, RsmqConfig):
        return RsmqStore(config, transport)
    transport = transport_of(config, transport)
    if isinstance(config, GroupConfig):
        return TopicStore(config, transport, start=start_of(config.public_name))
    return LineStore(config, transport) if config.limits else StreamStore(config, transport)


def open_access(config: QueueConfig, transport: Transport, *, key: str | None = None) -> QueueAccess:
    """Return what producers use of a queue, or of its partition for a key."""
    if not config.parts:
        return open_store(config, transport)
    if key is not None:
        destination = config.partition_for(key=key)
        return open_store(destination, transport)
    return PartitionedStore(config, {part.name: open_store(part, transport) for part in config.parts}, transport)


def open_log(config: TopicConfig, transport: Transport) -> Log | PartitionedLog:
    """Return the log of a topic or of one of its partitions, or the logs of all partitions as one."""
    if not config.parts:
        return Log(config, transport_of(config, transport))
    return PartitionedLog(
        config, {part.name: Log(part, transport_of(part, transport)) for part in config.parts}, transport
    )


def open_publisher(destination: DeliveryOptions, transport: Transport) -> Publishes:
    """Return what publishes to a queue, a topic or one of their partitions."""
    if isinstance(destination, TopicConfig):
        return open_log(destination, transport)
    assert isinstance(destination, QueueConfig)
    return open_store(destination, transport)


def open_members(config: QueueConfig, transport: Transport) -> Members:
    """Return the members of a queue: its consumers and their supervisors."""
    return RsmqMembers(config, transport) if isinstance(config, RsmqConfig) else Members(config, transport)


__all__ = ["open_access", "open_log", "open_members", "open_publisher", "open_store"]
