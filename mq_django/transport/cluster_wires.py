"""Wires to a Redis Cluster: each trip goes to the node that has its slot."""

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import redis

from mq_django.errors import ConnectionLost, ConnectionRejected
from mq_django.transport.cluster import Address, Cluster
from mq_django.transport.failures import address
from mq_django.transport.fan_out import fan_out
from mq_django.transport.redirections import followed, routed, slot_of
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Pooled, Session, Wire

#: Seconds for which a session does not ask a node again that did not reply.
LOST_FOR = 2.0

T = TypeVar("T")


class ClusterWire(Wire):
    """A wire for any thread, which takes a connection to the node of each trip."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def trip(self, commands: Sequence[Command]) -> list[Any]:
        """See Wire.trip()."""
        return routed(self._cluster, commands, _pooled, waits=True) if commands else []

    def trips(self, trips: Sequence[Sequence[Command]]) -> list[list[Any]]:
        """See Wire.trips(). Nodes are asked at the same time; see fan_out() for those that cannot be reached."""
        shares, replies, lost = _by_node(self._cluster, trips)
        wires = {node: Pooled(node) for node in shares}
        numbers = [number for share in shares.values() for number in share]
        sent = [trips[number] for number in numbers]
        try:
            found = fan_out([wires[node] for node, share in shares.items() for _ in share], sent)
        except ConnectionLost:
            self._cluster.changed()
            raise
        for number, each in zip(numbers, followed(self._cluster, sent, found, _pooled), strict=True):
            replies[number] = each
        if lost and not shares:
            raise lost[0]
        return replies


class ClusterSession(Wire):
    """A wire for one thread, with a connection of its own to each node that it sends to; see Session."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._sessions: dict[redis.Redis, Session] = {}
        #: Node -> why it cannot be reached, and until when it is not asked again.
        self._lost: dict[redis.Redis, tuple[str, float]] = {}
        #: That of the latest command, which another thread may interrupt.
        self._current: Session | None = None
        #: The node of each slot that it has sent to, and how often another node was found to have one.
        self._owners: dict[int, Address | None] = {}
        self.moves = 0

    def trip(self, commands: Sequence[Command]) -> list[Any]:
        """See Wire.trip()."""
        if not commands:
            return []
        replies, slot = routed(self._cluster, commands, self._send_to), slot_of(commands)
        owner = self._cluster.known_owner(slot)
        if self._owners.setdefault(slot, owner) != owner:
            self._owners[slot] = owner
            self.moves += 1
        return replies

    def trips(self, trips: Sequence[Sequence[Command]]) -> list[list[Any]]:
        """See Wire.trips(). A node that cannot be reached has an error in the place of its replies."""
        shares, replies, lost = _by_node(self._cluster, trips)
        reached = False
        for owner, numbers in shares.items():
            sent = [trips[number] for number in numbers]
            try:
                found = self._trips_to(owner, sent)
                found, reached = followed(self._cluster, sent, found, self._send_to), True
            except (ConnectionLost, ConnectionRejected) as error:
                self._cluster.changed()
                lost.append(error)
                found = [[error for _ in commands] for commands in sent]
            for number, each in zip(numbers, found, strict=True):
                replies[number] = each
        if lost and not reached:
            raise lost[0]
        return replies

    def send(self, commands: Sequence[Command]) -> None:
        """Send commands to the node of their slot, without waiting for their replies."""
        owner = self._cluster.owner(slot_of(commands))
        self._current = self._session_to(owner)
        try:
            self._current.send(commands)
        except ConnectionLost:
            self._cluster.changed()
            raise

    def ping(self) -> None:
        """Send PING to the node of the latest command, without waiting for its reply."""
        self._sent_by.ping()

    def receive(self) -> Any:
        """Return the next reply to what send() has sent. An error reply is returned, not raised."""
        return self._sent_by.receive()

    def can_receive(self, seconds: float = 0.0) -> bool:
        """See Session.can_receive()."""
        return self._sent_by.can_receive(seconds)

    def is_at(self, commands: Sequence[Command]) -> bool:
        """Return whether the latest command went to the node that has the slot of these now."""
        return self._sessions.get(self._cluster.owner(slot_of(commands))) is self._current

    @property
    def _sent_by(self) -> Session:
        if self._current is None:
            raise ConnectionLost("The connection has been closed")
        return self._current

    @property
    def socket(self) -> Any:
        """The socket of the latest command, for select(); None while not connected."""
        return self._current.socket if self._current is not None else None

    def another(self) -> "ClusterSession":
        """Return a session on connections of its own to the same cluster."""
        return ClusterSession(self._cluster)

    def interrupt(self) -> None:
        """End another thread's wait for a reply. That thread gets ConnectionLost."""
        current = self._current
        if current is not None:
            current.interrupt()

    def release(self) -> None:
        """Put the connections back into their pools, with no reply outstanding."""
        for session in self._sessions.values():
            session.release()
        self._sessions.clear()

    def close(self) -> None:
        """Disconnect, so that a late reply cannot be taken for the reply to another command."""
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()
        self._current = None

    def _session_to(self, node: redis.Redis) -> Session:
        session = self._sessions.get(node)
        if session is None:
            session = self._sessions[node] = Session(node)
        return session

    def _send_to(self, node: redis.Redis, commands: Sequence[Command]) -> list[Any]:
        return self._at(node, lambda session: session.trip(commands))

    def _trips_to(self, node: redis.Redis, trips: Sequence[Sequence[Command]]) -> list[list[Any]]:
        return self._at(node, lambda session: session.trips(trips))

    def _at(self, node: redis.Redis, send: Callable[[Session], list[T]]) -> list[T]:
        reason, until = self._lost.get(node, ("", 0.0))
        if time.monotonic() < until:
            raise ConnectionLost(reason)
        session = self._current = self._session_to(node)
        try:
            replies = send(session)
        except ConnectionLost as raw:
            error = _named(raw, node)
            # A service asks for one queue after another: for all those on a silent node, it waits once.
            self._lost[node] = str(error), time.monotonic() + LOST_FOR
            # Another thread may have closed all of them.
            self._sessions.pop(node, session).close()
            raise error from raw
        self._lost.pop(node, None)
        return replies


#: A wire on connections of its own, for one thread.
AnySession = Session | ClusterSession


#: Errors of nodes, of which each concerns the trips to one of them.
Lost = list[ConnectionLost | ConnectionRejected]


def _by_node(
    cluster: Cluster, trips: Sequence[Sequence[Command]]
) -> tuple[dict[redis.Redis, list[int]], list[list[Any]], Lost]:
    """Return the numbers of the trips to each node, and for those whose slot no node has, errors as their replies."""
    shares: dict[redis.Redis, list[int]] = {}
    replies: list[list[Any]] = [[] for _ in trips]
    lost: Lost = []
    for number, commands in enumerate(trips):
        if not commands:
            continue
        try:
            shares.setdefault(cluster.owner(slot_of(commands)), []).append(number)
        except ConnectionLost as error:
            lost.append(error)
            replies[number] = [error for _ in commands]
    return shares, replies, lost


def _pooled(node: redis.Redis, commands: Sequence[Command]) -> list[Any]:
    try:
        return Pooled(node).trip(commands)
    except ConnectionLost as error:
        raise _named(error, node) from error


def _named(error: ConnectionLost, node: redis.Redis) -> ConnectionLost:
    """Return an error that names the node."""
    at = address(node.connection_pool)
    named = ConnectionLost(str(error) if at in str(error) else f"Node {at} of the Redis Cluster: {error}")
    named.was_sent = error.was_sent
    return named
