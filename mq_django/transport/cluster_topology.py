"""The nodes of a Redis Cluster, and which of them has a slot.

redis-py reads the topology (its `NodesManager`), on connections of its own with short timeouts. The connections for
commands are made here, with the same options as for a single server: redis-py's `RedisCluster` would send
commands again that may have been executed.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import redis
from redis import exceptions
from redis.cluster import ClusterNode, NodesManager
from redis.connection import parse_url
from redis.crc import key_slot

from mq_django.core.options import CLUSTER_SCHEMES
from mq_django.errors import ConfigurationError, ConnectionLost, ConnectionRejected, StoreError
from mq_django.transport.failures import translate, translate_connecting
from mq_django.transport.forks import NotedPool
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sentinel_urls import TOPOLOGY_OPTIONS
from mq_django.transport.sessions import interrupt

#: Seconds between two looks at the topology, while nodes say that it has changed or cannot be reached.
RENEW_EVERY = 0.25
#: Seconds for another thread to read the topology for the first time.
RENEW_WITHIN = 5.0

#: Seconds for which a node is known that has been named as the one that a slot is moved to.
FORGET_AFTER = 60.0

#: Host and port.
Address = tuple[str, int]


class Cluster:
    """The nodes of a cluster, with a client for each; it is safe to share between threads.

    Args:
        nodes: those that CONNECTION names. One that replies is enough: it knows the others.
        where: options of redis-py for the log-in and TLS.
        ours: options of redis-py for connections that send commands.
        patience: for how many seconds a command is sent again that no node has executed, because the cluster changes.
        named_by: the setting with the URL, for messages.
    """

    def __init__(
        self,
        nodes: Sequence[Address],
        where: Mapping[str, Any],
        ours: Mapping[str, Any],
        *,
        patience: float,
        named_by: str,
    ) -> None:
        self.nodes = tuple(nodes)
        self.patience = patience
        self._where = dict(where)
        self._ours = dict(ours)
        self._named_by = named_by
        self._manager: NodesManager | None = None
        #: Slot -> the master that has it.
        self._owners: dict[int, Address] = {}
        self._clients: dict[Address, redis.Redis] = {}
        #: Nodes to which slots are being moved, and when that was noted.
        self._importers: dict[Address, float] = {}
        self._lock = threading.Lock()
        #: Held while the topology is read.
        self._reading = threading.Lock()
        self._is_stale = True
        self._renew_at = 0.0

    def __str__(self) -> str:
        return "the Redis Cluster of " + ", ".join(_shown(node) for node in self.nodes)

    def owner(self, slot: int) -> redis.Redis:
        """Return the client of the master that has a slot.

        Raises:
            ConnectionLost: no node replies, or none has the slot.
            ConnectionRejected: the nodes are none of a cluster, or refuse the log-in.
            NotPermitted: the user has no permission to ask for the nodes.
        """
        return self._client_at(self._owner(slot))

    def owner_address(self, slot: int) -> str:
        """Return host and port of the master that has a slot. Raises the errors of owner()."""
        return _shown(self._owner(slot))

    def known_owner(self, slot: int) -> Address | None:
        """Return the address of the master that had a slot at the last look, without another look."""
        return self._owners.get(slot)

    def masters(self) -> list[redis.Redis]:
        """Return the client of each master that has slots, in the order of the slots. Raises the errors of owner()."""
        self._refresh()
        by_first_slot = {address: slot for slot, address in sorted(self._owners.items(), reverse=True)}
        return [self._client_at(address) for address in sorted(by_first_slot, key=by_first_slot.__getitem__)]

    def changed(self) -> None:
        """Note that the topology is no longer what it was: read it again before the next command."""
        self._is_stale = True

    def moved(self, slot: int, address: Address) -> redis.Redis:
        """Note that another master has a slot, and return its client."""
        self._owners[slot] = address
        self.changed()
        return self._client_at(address)

    def importer(self, address: Address) -> redis.Redis:
        """Return the client of a node to which a slot is being moved. It may have no slot yet."""
        self._importers[address] = time.monotonic()
        return self._client_at(address)

    def disconnect(self) -> None:
        """Close all connections. The next use connects again."""
        for client in list(self._clients.values()):
            client.connection_pool.disconnect()

    def _owner(self, slot: int) -> Address:
        if self._is_stale or not self._owners:
            self._refresh()
        address = self._owners.get(slot)
        if address is None:
            self.changed()
            failure = ConnectionLost(f"No node of {self} has slot {slot} now")
            failure.was_sent = False
            raise failure
        return address

    def _client_at(self, address: Address) -> redis.Redis:
        client = self._clients.get(address)
        if client is None:
            with self._lock:
                client = self._clients.setdefault(address, redis.Redis(connection_pool=self._pool(address, self._ours)))
        return client

    def _pool(self, address: Address, options: Mapping[str, Any]) -> redis.ConnectionPool:
        return NotedPool(host=address[0], port=address[1], **{**self._where, **options})

    def _refresh(self) -> None:
        """Read the topology, unless another thread does, or it was read a moment ago."""
        if self._owners and (not self._is_stale or time.monotonic() < self._renew_at):
            return
        if not self._reading.acquire(timeout=0 if self._owners else RENEW_WITHIN):
            return
        try:
            if self._is_stale or not self._owners:
                self._renew()
        finally:
            self._reading.release()

    def _renew(self) -> None:
        self._is_stale = False
        try:
            slots = self._read()
        except (exceptions.RedisError, exceptions.RedisClusterException, OSError) as error:
            self._is_stale, self._manager = True, None
            # The nodes that were known may be back before those that tell of them.
            if not self._owners:
                raise self._explained(error) from error
            return
        finally:
            self._renew_at = time.monotonic() + RENEW_EVERY
        self._owners = {slot: (nodes[0].host, int(nodes[0].port)) for slot, nodes in slots.items()}
        self._forget_others()

    def _read(self) -> Mapping[int, Sequence[ClusterNode]]:
        if self._manager is None:
            nodes = [ClusterNode(host, port) for host, port in self.nodes]  # type: ignore[no-untyped-call]
            # A cluster that lacks some slots serves the others.
            options: dict[str, Any] = {**self._where, **TOPOLOGY_OPTIONS, "client_name": self._ours.get("client_name")}
            self._manager = NodesManager(
                nodes, from_url=True, require_full_coverage=False, connection_pool_class=NotedPool, **options
            )
        else:
            self._manager.initialize()
        return self._manager.slots_cache

    def _forget_others(self) -> None:
        """Close the connections to nodes that have no slots any more. Threads that use them get ConnectionLost."""
        since = time.monotonic() - FORGET_AFTER
        importers = {address for address, noted in self._importers.items() if noted > since}
        with self._lock:
            gone = self._clients.keys() - set(self._owners.values()) - importers
            clients = [self._clients.pop(address) for address in gone]
        for client in clients:
            pool = client.connection_pool
            pool.disconnect(inuse_connections=False)
            # A thread that reads from one gets the end of the connection, as from a server that has gone.
            for connection in list(vars(pool).get("_in_use_connections", ())):
                interrupt(connection)

    def _explained(self, error: Exception) -> StoreError:
        """Return the error of mq_django for a topology that could not be read."""
        cause = error.__cause__ or error.__context__ or error
        # redis-py takes every error reply for that of a server without a cluster.
        if isinstance(cause.__context__, exceptions.NoPermissionError):
            return translate(cause.__context__)
        if "Cluster mode is not enabled" in str(cause):
            return ConnectionRejected(
                f"{self._named_by} names a Redis Cluster, and the server at {_shown(self.nodes[0])} is none. Write "
                "redis:// instead of redis+cluster://, or rediss:// instead of rediss+cluster://."
            )
        found = [translate_connecting(cause, self._pool(self.nodes[0], {}))] if isinstance(cause, Exception) else []
        if found and isinstance(found[0], ConnectionRejected):
            return found[0]
        failure = ConnectionLost(f"Cannot reach any node of {self}: {found[0] if found else error}")
        failure.was_sent = False
        return failure


def _shown(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# URLs of a Redis Cluster: `redis+cluster://user:password@host:port,host:port/0?option=value`.


def is_cluster(connection: str) -> bool:
    """Tell whether a CONNECTION names a Redis Cluster."""
    return connection.startswith(CLUSTER_SCHEMES)


def read_cluster_url(
    url: str, setting: str, cleaned: Callable[[str, str], str]
) -> tuple[list[Address], Mapping[str, Any]]:
    """Return the nodes of a URL, and its options of redis-py for the log-in and TLS.

    Args:
        url: with one or several nodes.
        setting: that has the URL, for messages.
        cleaned: checks the URL of one node, and returns it without the options that we set.

    Raises:
        ConfigurationError: it is not a URL of a cluster.
    """
    scheme, _, rest = url.partition("+cluster://")
    rest, _, query = rest.partition("?")
    hosts_and_login, _, database = rest.partition("/")
    login, at, hosts = hosts_and_login.rpartition("@")
    if database not in ("", "0"):
        raise ConfigurationError(f"{setting}: a Redis Cluster has only database 0, not {database!r}.")
    nodes: list[Address] = []
    options: dict[str, Any] = {}
    for host in hosts.split(","):
        one = cleaned(f"{scheme}://{login}{at}{host.strip()}{f'?{query}' if query else ''}", setting)
        if not urlsplit(one).hostname:
            raise ConfigurationError(
                f"{setting}: the URL of a Redis Cluster names its nodes: {scheme}+cluster://host:port,host:port"
            )
        options = parse_url(one)  # type: ignore[no-untyped-call]
        options.pop("db", None)
        nodes.append((str(options.pop("host")), int(options.pop("port", 6379))))
    return nodes, options


# The keys of commands, and the hash slots of keys in a Redis Cluster.
#
# Commands are plain tuples, because they are made on a hot path. Their keys are looked up only when a pipeline is
# routed or checked.

#: Commands without a key. They run on the server of their pipeline.
_KEYLESS = frozenset(
    {
        *("ASKING", "COMMAND", "PING", "SCAN", "SUBSCRIBE", "UNSUBSCRIBE", "PUBLISH", "TIME", "MULTI"),
        *("INFO", "CONFIG", "CLUSTER", "WAIT"),
    }
)


def keys_of(command: Command) -> Sequence[Argument]:
    """Return the keys of a command in order; none for a command that any server can run."""
    name = str(command[0]).upper()
    if name in ("EVALSHA", "EVAL"):
        return command[3 : 3 + int(command[2])]
    if name in ("XREADGROUP", "XREAD"):
        # After the names of the group and of the consumer, either of which may be "STREAMS".
        streams = command[command.index("STREAMS", 4 if name == "XREADGROUP" else 1) + 1 :]
        return streams[: len(streams) // 2]
    if name in ("XINFO", "XGROUP", "MEMORY"):
        return command[2:3]
    # Other commands of ours have one key.
    return () if name in _KEYLESS else command[1:2]


def hash_slot(key: Argument) -> int:
    """Return the hash slot of a key. It is computed from the text in its first braces, or else from the whole key."""
    return key_slot(key if isinstance(key, bytes) else str(key).encode())
