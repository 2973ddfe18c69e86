"""Redis clients for queues: pools of our own, whatever the cache does with its own."""

import threading
from typing import Any, Literal

import redis
from django.core.signals import setting_changed
from django.dispatch import Signal
from redis.backoff import NoBackoff
from redis.retry import Retry

from mq_django.conf import get_config
from mq_django.transport.locations import make_pool
from mq_django.transport.sessions import Pooled, Session, Wire

Role = Literal["produce", "consume", "chores", "inspect"]

#: The longest blocking read. Short, because a server of 6.2 does not tell a blocked reader that its stream was deleted.
BLOCK_MS = 5000

#: (connecting, answering) in seconds. A publish fails within 5 s in all; a read may block first; a page asks for
#: several things and answers within 2 s. All so short that a consumer works again within 10 s of Redis's return.
TIMEOUTS: dict[Role, tuple[float, float]] = {
    "produce": (2.0, 2.5),
    "consume": (2.0, BLOCK_MS / 1000 + 3.0),
    "chores": (2.0, 4.0),
    "inspect": (0.5, 1.0),
}

#: Sent when all clients were closed: who keeps one asks for another.
clients_closed = Signal()

_lock = threading.Lock()
_clients: dict[Role, redis.Redis] = {}


def _options(role: Role) -> dict[str, Any]:
    connecting, answering = TIMEOUTS[role]
    return {
        "decode_responses": False,  # one entry that is not UTF-8 must not cost its whole batch
        "protocol": 2,  # replies have the same shapes whatever redis-py's default is
        "retry": Retry(NoBackoff(), 0),  # a write that is sent twice is a message that is there twice
        "retry_on_timeout": False,
        "socket_connect_timeout": connecting,
        "socket_timeout": answering,
        "max_connections": 2**31,  # a pool that has none left raises as if Redis were away; redis-py 8 has 100
        "client_name": f"mq_django:{role}",
        # What each connection keeps for reading. Only consumers read much at once; redis-py's own is 64 KiB for all.
        "socket_read_size": 65536 if role == "consume" else 16384,
    }


def get_client(role: Role) -> redis.Redis:
    """Return this process's client for one use; it is safe to share between threads and to fork with.

    Raises:
        ConfigurationError: MQ_DJANGO["CONNECTION"] cannot be used.
        ConnectionLost: the embedded server does not come up.
    """
    client = _clients.get(role)
    if client is not None:
        return client
    with _lock:
        if role not in _clients:
            _clients[role] = redis.Redis(connection_pool=make_pool(get_config(), _options(role)))
        return _clients[role]


def open_wire(role: Role) -> Wire:
    """Return a wire for any thread, which takes a connection for each round trip; get_client() says what it raises."""
    return Pooled(get_client(role))


def open_session(role: Role) -> Session:
    """Return a wire on a connection of its own, for one thread; get_client() says what it raises."""
    return Session(get_client(role))


def close_clients() -> None:
    """Disconnect every client; the next use connects anew."""
    with _lock:
        for client in _clients.values():
            client.connection_pool.disconnect()
        _clients.clear()
    clients_closed.send(None)


def _forget(*, setting: str, **_: Any) -> None:
    if setting in ("MQ_DJANGO", "CACHES"):
        close_clients()


setting_changed.connect(_forget, dispatch_uid="mq_django.connections")
