"""Sockets in forked children: these have none of ours.

While a child had a copy of a connection, Redis would take a dead consumer for one that reads. So a socket is noted when
it is connected, and a child closes what is noted, without telling Redis, which serves the parent. A fork waits for the
connections that other threads are opening, because a child could not find the sockets of these.
"""

import os
import socket
import threading
from functools import cache
from typing import Any, TypeVar
from weakref import WeakSet

import redis

Pool = TypeVar("Pool", bound=redis.ConnectionPool)

#: The longest wait of a fork, in seconds: longer than a consumer tries to connect.
LONGEST = 2.5

#: Held to change the next two, and during a fork.
_lock = threading.Condition()
#: The threads that are opening a connection.
_opening: set[int] = set()
_sockets: WeakSet[socket.socket] = WeakSet()


class Noted:
    """A connection of redis-py whose sockets are closed in forked children."""

    def _connect(self) -> Any:
        thread, sock = threading.get_ident(), None
        try:
            with _lock:
                _opening.add(thread)
            sock = super()._connect()  # type: ignore[misc]  # redis-py's
        finally:
            with _lock:
                if sock is not None:
                    _sockets.add(sock)
                _opening.discard(thread)
                _lock.notify_all()
        return sock


@cache
def noted(kind: Any) -> Any:
    """Return a class of connections whose sockets are noted."""
    return kind if issubclass(kind, Noted) else type(kind.__name__, (Noted, kind), {})


def note(pool: Pool) -> Pool:
    """Let all connections of a pool be noted, and those to the Sentinels that name its server; return it."""
    pool.connection_class = noted(pool.connection_class)
    for sentinel in getattr(getattr(pool, "sentinel_manager", None), "sentinels", ()):
        note(sentinel.connection_pool)
    return pool


class NotedPool(redis.ConnectionPool):
    """A pool of noted connections, for what makes pools itself."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        note(self)


def _before() -> None:
    _lock.acquire()
    own = {threading.get_ident()}
    _lock.wait_for(lambda: _opening <= own, LONGEST)


def _in_parent() -> None:
    _lock.release()


def _in_child() -> None:
    global _lock  # noqa: PLW0603 - the threads that wait for it do not exist here
    _lock = threading.Condition()
    _opening.clear()
    for sock in list(_sockets):
        sock.close()
    _sockets.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
