"""Follow the refusals of a Redis Cluster's nodes.

A node refuses a command whose slot it does not have, or has only in part while the slot is moved. Such a command was
not executed, so it is sent again: to another node (MOVED, and for one time ASK), or later (TRYAGAIN, CLUSTERDOWN). No
other command is: one whose reply is missing may have been executed.

Protocol: https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/
"""

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import redis
from redis import exceptions

from mq_django.errors import ConnectionLost, NotSupported
from mq_django.transport.cluster import Cluster
from mq_django.transport.failures import not_executed
from mq_django.transport.hash_slots import hash_slot, keys_of
from mq_django.transport.scripts import Command

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
    """Return the hash slot of a trip. Channels are assigned to nodes like keys.

    Raises:
        NotSupported: no command has a key, so that it could be any node's.
    """
    for command in commands:
        keys = command[1:2] if command[0] in ("SUBSCRIBE", "PUBLISH") else keys_of(command)
        if keys:
            return hash_slot(keys[0])
    raise NotSupported(f"{commands[0][0]!s} has no key, so no node of the Redis Cluster can be chosen for it")


def followed(
    cluster: Cluster, trips: Sequence[Sequence[Command]], replies: Sequence[list[Any]], send: Send
) -> list[list[Any]]:
    """Return the replies of trips, after those commands were sent again that their node has refused.

    Those that no node can be reached for have an error as their reply, which concerns no other trip.
    """
    found: list[list[Any]] = []
    for commands, each in zip(trips, replies, strict=True):
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
    """Says for how long a trip is tried again, in seconds from its first refusal: a read may have blocked before it."""

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
    """Send a trip to the node that has its slot, and again what that refuses, in the same order.

    Args:
        cluster: the nodes.
        commands: a trip.
        send: sends commands to a node.
        replies: of the trip, if it was sent already.
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
