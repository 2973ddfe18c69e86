"""Transports to a Redis Cluster: each pipeline goes to the node that has its slot."""

import random
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import redis
from redis import exceptions

from mq_django.errors import ConnectionLost, ConnectionRejected, NotSupported
from mq_django.transport.cluster_topology import Address, Cluster, hash_slot, keys_of
from mq_django.transport.failures import address, not_executed
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Pooled, Session, Transport, fan_out

# Follow the refusals of a Redis Cluster's nodes.
#
# A node refuses a command whose slot it does not have, or has only in part while the slot is moved. Such a command
# was not executed, so it is sent again: to another node (MOVED, and for one time ASK), or later (TRYAGAIN,
# CLUSTERDOWN). No other command is: one whose reply is missing may have been executed.
#
# Protocol: https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/

#: Errors of commands that a node has not executed. MovedError is an AskError.
_REFUSALS = (exceptions.AskError, exceptions.TryAgainError, exceptions.ClusterDownError)
_ASKING: Command = ("ASKING",)
#: Seconds until a refused command is sent again, at random between them.
PAUSES = 0.02, 0.1
#: Redirections that are followed without a pause: nodes may name each other until they agree.
QUICKLY = 2

#: Sends commands to a node in one round trip.
Send = Callable[[redis.Redis, Sequence[Command]], list[Any]]


def slot_of(commands: Sequence[Command]) -> int:
    """Return the hash slot of a pipeline. Channels are assigned to nodes like keys.

    Raises:
        NotSupported: no command has a key, so that it could be any node's.
    """
    for command in commands:
        keys = command[1:2] if command[0] in ("SUBSCRIBE", "PUBLISH") else keys_of(command)
        if keys:
            return hash_slot(keys[0])
    raise NotSupported(f"{commands[0][0]!s} has no key, so no node of the Redis Cluster can be chosen for it")


def followed(
    cluster: Cluster, pipelines: Sequence[Sequence[Command]], replies: Sequence[list[Any]], send: Send
) -> list[list[Any]]:
    """Return the replies of pipelines, after those commands were sent again that their node has refused.

    Those that no node can be reached for have an error as their reply, which concerns no other pipeline.
    """
    found: list[list[Any]] = []
    for commands, each in zip(pipelines, replies, strict=True):
        if any(isinstance(reply, ConnectionLost) for reply in each):
            cluster.changed()
        if not any(isinstance(reply, _REFUSALS) for reply in each):
            found.append(each)
            continue
        try:
            found.append(routed(cluster, commands, send, each))
        except ConnectionLost as error:
            found.append([error if isinstance(reply, _REFUSALS) else reply for reply in each])
    return found


class _Patience:
    """Says how long a pipeline is tried again, in seconds from its first refusal: a read may have blocked before it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began = time.monotonic()
        self._refused: float | None = None
        self._tries = 0

    def ends_connecting(self) -> bool:
        """Return whether no further connection is tried: each may have taken seconds."""
        self._tries += 1
        return time.monotonic() > self._began + self._seconds

    def ends_following(self) -> bool:
        """Return whether no further refusal is followed. The first ones are, also when they came late."""
        self._tries += 1
        self._refused = self._refused or time.monotonic()
        return self._tries > QUICKLY and time.monotonic() > self._refused + self._seconds

    def pause(self, node: redis.Redis | None) -> None:
        """Wait before the next try, unless a refusal has just named the node."""
        if node is None or self._tries > QUICKLY:
            time.sleep(random.uniform(*PAUSES))  # noqa: S311 - so that not all come back at once


def routed(
    cluster: Cluster,
    commands: Sequence[Command],
    send: Send,
    replies: Sequence[Any] | None = None,
    *,
    waits: bool = False,
) -> list[Any]:
    """Send a pipeline to the node that has its slot, and again what that refuses, in the same order.

    Args:
        cluster: the nodes.
        commands: a pipeline.
        send: sends commands to a node.
        replies: of the pipeline, if it was sent already.
        waits: try again, too, when no connection can be made. Services do that themselves, and not this long.
    """
    slot, patience = slot_of(commands), _Patience(cluster.patience)
    found: list[Any] = [*(replies or [None] * len(commands))]
    left: Sequence[int] = range(len(commands))
    node: redis.Redis | None = None
    asking = False
    if replies is not None:
        left = _refused(commands, found, left)
        node, asking = _redirected(cluster, slot, found[left[0]])
    while True:
        part = [commands[at] for at in left]
        try:
            node = node or cluster.owner(slot)
            got = send(node, [word for command in part for word in (_ASKING, command)] if asking else part)
        except ConnectionLost as error:
            cluster.changed()
            if error.was_sent or not waits or patience.ends_connecting():
                raise
            node, asking = None, False
        else:
            for at, reply in zip(left, got[1::2] if asking else got, strict=True):
                found[at] = reply
            left = _refused(commands, found, left)
            if not left:
                return found
            if patience.ends_following():
                return [not_executed(reply) if at in left else reply for at, reply in enumerate(found)]
            node, asking = _redirected(cluster, slot, found[left[0]], asked=node)
        patience.pause(node)


def _refused(commands: Sequence[Command], replies: Sequence[Any], among: Sequence[int]) -> Sequence[int]:
    """Return which commands are to be sent again. WAIT is about what was written before it, so it goes with them."""
    if not any(isinstance(replies[at], _REFUSALS) for at in among):
        return ()
    return [at for at in among if isinstance(replies[at], _REFUSALS) or commands[at][0] == "WAIT"]


def _redirected(
    cluster: Cluster, slot: int, refusal: Exception, asked: redis.Redis | None = None
) -> tuple[redis.Redis | None, bool]:
    """Return the node that a refused command is to be sent to, or None for its owner later; and whether by ASKING."""
    if not isinstance(refusal, exceptions.AskError):
        cluster.changed()
        return None, False
    host = refusal.host
    if not host and asked is not None:
        # The node does not know its own address: its neighbour is on the same host.
        host = str(asked.connection_pool.connection_kwargs.get("host"))
    if isinstance(refusal, exceptions.MovedError):
        return cluster.moved(slot, (host, refusal.port)), False
    return cluster.importer((host, refusal.port)), True


#: Seconds for which a session does not ask a node again that did not reply.
LOST_FOR = 2.0

T = TypeVar("T")


class ClusterTransport(Transport):
    """A transport for any thread, which takes a connection to the node of each pipeline."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """See Transport.pipeline()."""
        return routed(self._cluster, commands, _pooled, waits=True) if commands else []

    def pipelines(self, pipelines: Sequence[Sequence[Command]]) -> list[list[Any]]:
        """See Transport.pipelines(). All nodes are asked at once; see fan_out() for those that cannot be reached."""
        shares, replies, lost = _by_node(self._cluster, pipelines)
        transports = {node: Pooled(node) for node in shares}
        numbers = [number for share in shares.values() for number in share]
        sent = [pipelines[number] for number in numbers]
        try:
            found = fan_out([transports[node] for node, share in shares.items() for _ in share], sent)
        except ConnectionLost:
            self._cluster.changed()
            raise
        for number, each in zip(numbers, followed(self._cluster, sent, found, _pooled), strict=True):
            replies[number] = each
        if lost and not shares:
            raise lost[0]
        return replies

    def together(self, commands: Sequence[Command], *, most: int = 0) -> list[Any]:
        """See Transport.together(): each queue is in a hash slot of its own, so a node gets one pipeline."""
        return [reply for (reply,) in self.pipelines([[command] for command in commands])]


class ClusterSession(ClusterTransport):
    """A transport for one thread, with a connection of its own to each node that it sends to; see Session."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._sessions: dict[redis.Redis, Session] = {}
        #: Node -> why it cannot be reached, and until when it is not asked again.
        self._lost: dict[redis.Redis, tuple[str, float]] = {}
        #: That of the latest command, which another thread may interrupt.
        self._current: Session | None = None
        #: The node of each slot that it has sent to, and how often another node was found to have one.
        self._owners: dict[int, Address | None] = {}
        self.moves = 0

    def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """See Transport.pipeline()."""
        if not commands:
            return []
        replies, slot = routed(self._cluster, commands, self._send_to), slot_of(commands)
        owner = self._cluster.known_owner(slot)
        if self._owners.setdefault(slot, owner) != owner:
            self._owners[slot] = owner
            self.moves += 1
        return replies

    def pipelines(self, pipelines: Sequence[Sequence[Command]]) -> list[list[Any]]:
        """See Transport.pipelines(). A node that cannot be reached has an error in the place of its replies."""
        shares, replies, lost = _by_node(self._cluster, pipelines)
        reached = False
        for owner, numbers in shares.items():
            sent = [pipelines[number] for number in numbers]
            try:
                found = self._pipelines_to(owner, sent)
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
        return self._at(node, lambda session: session.pipeline(commands))

    def _pipelines_to(self, node: redis.Redis, pipelines: Sequence[Sequence[Command]]) -> list[list[Any]]:
        return self._at(node, lambda session: session.pipelines(pipelines))

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


#: A transport on connections of its own, for one thread.
AnySession = Session | ClusterSession


#: Errors of nodes, of which each concerns the pipelines to one of them.
Lost = list[ConnectionLost | ConnectionRejected]


def _by_node(
    cluster: Cluster, pipelines: Sequence[Sequence[Command]]
) -> tuple[dict[redis.Redis, list[int]], list[list[Any]], Lost]:
    """Return the numbers of the pipelines to each node, and an error as the reply of those whose slot no node has."""
    shares: dict[redis.Redis, list[int]] = {}
    replies: list[list[Any]] = [[] for _ in pipelines]
    lost: Lost = []
    for number, commands in enumerate(pipelines):
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
        return Pooled(node).pipeline(commands)
    except ConnectionLost as error:
        raise _named(error, node) from error


def _named(error: ConnectionLost, node: redis.Redis) -> ConnectionLost:
    """Return an error that names the node."""
    at = address(node.connection_pool)
    named = ConnectionLost(str(error) if at in str(error) else f"Node {at} of the Redis Cluster: {error}")
    named.was_sent = error.was_sent
    return named
