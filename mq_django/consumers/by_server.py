"""The queues of a `runconsumer` by the server that they are on.

What works for several queues in one thread is made once per server, so that a server that is slow or down does not
affect the queues of another one. In a Redis Cluster, each master is a server. A queue whose slot is moved to another
master stays with those that it was with at the start: its commands follow it, and a process that starts later has it
with its new neighbours. Queues keep the numbers that they have in the whole process.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from mq_django.conf import DeliveryOptions, QueueConfig
from mq_django.consumers.service import Service
from mq_django.core.partitions import listed
from mq_django.stores import open_store
from mq_django.stores.base import Store
from mq_django.transport.cluster_transport import AnySession
from mq_django.transport.connections import node_of, open_session

#: Queues on one server, by their numbers.
ServerQueues = Mapping[int, QueueConfig]


def by_server(queues: Sequence[QueueConfig]) -> dict[str, ServerQueues]:
    """Return the queues on each server, by its connection, and of a cluster also by the address of the master."""
    found: dict[str, dict[int, QueueConfig]] = {}
    for number, config in enumerate(queues):
        found.setdefault(server_of(config.connection, config.keys.wake), {})[number] = config
    return {**found}


def server_of(connection: str, key: str) -> str:
    """Return a name of the server that has a key."""
    return f"{connection} {node_of(connection, key)}".strip()


def connection_of(queues: ServerQueues) -> str:
    """Return the connection of queues on one server."""
    return next(iter(queues.values())).connection


def open_session_to(queues: ServerQueues) -> AnySession:
    """Return a session of its own to the server of these queues, for one thread."""
    return open_session("chores", connection_of(queues))


def open_stores(queues: ServerQueues, session: AnySession | None = None) -> dict[int, Store]:
    """Open the stores of these queues on a session, for one thread. None: on one of their own."""
    session = session or open_session_to(queues)
    return {number: open_store(config, session) for number, config in queues.items()}


def assign(services: Iterable[Service], configs: Collection[DeliveryOptions], *, servers: int) -> None:
    """Tell services which server they use: that of these queues or topics.

    If there are several servers, the names of the services say so in logs and to the watchdog.
    """
    names = ", ".join(listed([config.name for config in configs]))
    for service in services:
        service.connection = next(iter(configs)).connection
        if servers > 1:
            service.name = f"{service.name} ({names:.60})"
