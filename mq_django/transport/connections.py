"""Redis clients for queues. Caches have connection pools of their own."""

import os
import threading
from collections.abc import Sequence
from typing import Any, Literal

import redis
from django.core.signals import setting_changed
from django.dispatch import Signal
from redis.backoff import NoBackoff
from redis.retry import Retry

from mq_django.conf import get_config
from mq_django.errors import StoreError
from mq_django.transport import test_mode
from mq_django.transport.cluster_topology import Cluster, hash_slot, is_cluster
from mq_django.transport.cluster_transport import AnySession, ClusterSession, ClusterTransport
from mq_django.transport.failures import address
from mq_django.transport.forks import note
from mq_django.transport.locations import make_cluster, make_pool
from mq_django.transport.sessions import Pooled, Session, Transport, budgets_now
from mq_django.transport.test_server import make_test_pool

Role = Literal["produce", "consume", "chores", "inspect"]

#: The longest blocking read. Short, because a consumer notices at its end that a connection was lost without a notice.
BLOCK_MS = 5000

#: (connect, reply) in seconds. A publish fails within 5 s in total; a read may block first; a page sends several
#: requests and is built within 2 s. A consumer works again within 10 s after Redis is back.
TIMEOUTS: dict[Role, tuple[float, float]] = {
    "produce": (2.0, 2.5),
    "consume": (2.0, BLOCK_MS / 1000 + 3.0),
    "chores": (2.0, 4.0),
    "inspect": (0.5, 1.0),
}

#: For how many seconds a command is sent again that no node of a cluster has executed. The last try may have to wait
#: for its reply: together they must not exceed 5 s for a publish.
PATIENCE: dict[Role, float] = {"produce": 2.0, "consume": 0.5, "chores": 0.5, "inspect": 0.2}

#: Sent when all clients were closed. Receivers that hold a client get a new one.
clients_closed = Signal()

_lock = threading.Lock()
#: By role and connection.
_servers: dict[tuple[Role, str], redis.Redis | Cluster] = {}


def _options(role: Role) -> dict[str, Any]:
    connecting, answering = TIMEOUTS[role]
    return {
        "decode_responses": False,  # one entry that is not UTF-8 must not fail its whole batch
        "protocol": 2,  # replies have the same types with every version of redis-py
        "retry": Retry(NoBackoff(), 0),  # resending a write could publish a message twice
        "retry_on_timeout": False,
        "socket_connect_timeout": connecting,
        "socket_timeout": answering,
        "max_connections": 2**31,  # a full pool raises ConnectionError; the default of redis-py 8 is 100
        "client_name": f"mq_django:{role}",
        # The read buffer of each connection. Only consumers read large replies; redis-py's default is 64 KiB.
        "socket_read_size": 65536 if role == "consume" else 16384,
    }


def get_server(role: Role, connection: str = "") -> redis.Redis | Cluster:
    """Return this process's client for one use of one server, or of one cluster.

    It is safe to share between threads and to fork with.

    Args:
        role: the use.
        connection: the CONNECTION of a queue or topic; "": that of the project.

    Raises:
        ConfigurationError: CONNECTION cannot be used.
        ConnectionLost: the embedded server does not start.
    """
    server = _servers.get((role, connection))
    if server is not None:
        return server
    with _lock:
        if (role, connection) not in _servers:
            _servers[role, connection] = _make_server(role, connection)
        return _servers[role, connection]


def _make_server(role: Role, connection: str) -> redis.Redis | Cluster:
    config = get_config()
    # No test reaches a configured server: this is the only place where clients are made.
    if test_mode.is_on():
        return redis.Redis(connection_pool=note(make_test_pool(config, _options(role))))
    if is_cluster(connection or config.connection):
        return make_cluster(config, _options(role), connection, patience=PATIENCE[role])
    return redis.Redis(connection_pool=note(make_pool(config, _options(role), connection)))


def get_clients(role: Role, connection: str = "") -> list[redis.Redis]:
    """Return the clients of a server, or of each master of a cluster. Raises the errors of open_transport()."""
    server = get_server(role, connection)
    return server.masters() if isinstance(server, Cluster) else [server]


def get_client(role: Role, connection: str = "", *, key: str = "") -> redis.Redis:
    """Return this process's client of a server, or of the node of a cluster that has a key.

    Raises the errors of open_transport().
    """
    server = get_server(role, connection)
    return server.owner(hash_slot(key)) if isinstance(server, Cluster) else server


def node_of(connection: str, key: str) -> str:
    """Return host and port of the node of a cluster that has a key; "" without a cluster, and if that is not known."""
    server = get_server("chores", connection)
    if not isinstance(server, Cluster):
        return ""
    try:
        return server.owner_address(hash_slot(key))
    except StoreError:
        return ""


def address_of(connection: str) -> str:
    """Return what a CONNECTION leads to, for messages, without user and password. Raises the errors of get_server()."""
    server = get_server("chores", connection)
    return str(server) if isinstance(server, Cluster) else address(server.connection_pool)


def open_transport(role: Role, connection: str = "") -> Transport:
    """Return a transport for any thread, which takes a connection for each round trip.

    Within a budget it has the timeouts of "inspect": a budget does not limit the time that connecting takes.

    Raises:
        ConfigurationError: CONNECTION cannot be used.
        ConnectionLost: the embedded server does not start.
    """
    server = get_server(role if budgets_now() is None else "inspect", connection)
    return ClusterTransport(server) if isinstance(server, Cluster) else Pooled(server)


def open_transports(role: Role, connections: Sequence[str]) -> list[Transport]:
    """Return a transport for each connection, one for each server. Raises the errors of open_transport()."""
    transports = {connection: open_transport(role, connection) for connection in dict.fromkeys(connections)}
    return [transports[connection] for connection in connections]


def open_session(role: Role, connection: str = "") -> AnySession:
    """Return a transport on a connection of its own, for one thread. Raises the errors of open_transport()."""
    server = get_server(role, connection)
    return ClusterSession(server) if isinstance(server, Cluster) else Session(server)


def close_clients() -> None:
    """Disconnect all clients. The next use connects again."""
    with _lock:
        for server in _servers.values():
            server.disconnect() if isinstance(server, Cluster) else server.connection_pool.disconnect()
        _servers.clear()
    clients_closed.send(None)


def _after_fork() -> None:
    """Let a process that a test runner has forked find the server of its own worker."""
    global _lock  # noqa: PLW0603 - a thread of the parent may hold it during the fork
    _lock = threading.Lock()
    if test_mode.is_on():
        _servers.clear()
        clients_closed.send(None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _forget(*, setting: str, **_: Any) -> None:
    if setting in ("MQ_DJANGO", "CACHES"):
        close_clients()


setting_changed.connect(_forget, dispatch_uid="mq_django.connections")
