"""Redis clients for queues: pools of our own, whatever the cache does with its own."""

import threading
from typing import Any, Literal

import redis
from django.conf import settings
from django.core.cache import InvalidCacheBackendError
from django.core.signals import setting_changed
from django_redis.pool import get_connection_factory
from redis.backoff import NoBackoff
from redis.retry import Retry

from mq_django.conf import EMBEDDED, URL_SCHEMES, Config, get_config
from mq_django.errors import ConfigurationError
from mq_django.transport import embedded

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

#: How Sentinels are asked who is master.
_SENTINEL_OPTIONS: dict[str, Any] = {
    "socket_connect_timeout": 0.5,
    "socket_timeout": 1.0,
    "retry": Retry(NoBackoff(), 0),
    "protocol": 2,
}

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
        "client_name": f"mq_django:{role}",
        # What each connection keeps for reading. Only consumers read much at once; redis-py's own is 64 KiB for all.
        "socket_read_size": 65536 if role == "consume" else 16384,
    }


def _alias_pool(alias: str, options: dict[str, Any]) -> redis.ConnectionPool:
    from_settings = settings.CACHES.get(alias)
    if from_settings is None or "django_redis" not in str(from_settings.get("BACKEND")):
        raise ConfigurationError(
            f'MQ_DJANGO["CONNECTION"] = {alias!r} must name a django-redis alias in CACHES, or be a URL or "embedded".'
        )
    cache_options = dict(from_settings.get("OPTIONS", {}))
    # The factory keeps the alias's TLS, log-in and Sentinels; the pool's own options are ours.
    cache_options["CONNECTION_POOL_KWARGS"] = {**cache_options.get("CONNECTION_POOL_KWARGS", {}), **options}
    # Those that do not answer must not keep us from asking the others.
    cache_options["SENTINEL_KWARGS"] = {**_SENTINEL_OPTIONS, **(cache_options.get("SENTINEL_KWARGS") or {})}
    location = from_settings["LOCATION"]
    url = location if isinstance(location, str) else location[0]
    try:
        factory = get_connection_factory(options=cache_options)
    except InvalidCacheBackendError as error:
        raise ConfigurationError(f"CACHES[{alias!r}] cannot be used for queues: {error}") from error
    pool: redis.ConnectionPool = factory.get_connection_pool(factory.make_connection_params(url.split(",")[0]))
    return pool


def _make_pool(config: Config, role: Role) -> redis.ConnectionPool:
    options = _options(role)
    name = config.connection
    if name == EMBEDDED:
        return embedded.connection_pool(config.directory, **options)
    is_url = name.startswith(URL_SCHEMES)
    pool = redis.ConnectionPool.from_url(name) if is_url else _alias_pool(name, options)
    # Last, because a URL's query string and an alias's options win over what a pool is given.
    pool.connection_kwargs.update(options)
    return pool


def get_client(role: Role) -> redis.Redis:
    """Return this process's client for one use; it is safe to share between threads and to fork with.

    Raises:
        ConfigurationError: MQ_DJANGO["CONNECTION"] cannot be used.
    """
    client = _clients.get(role)
    if client is not None:
        return client
    with _lock:
        if role not in _clients:
            _clients[role] = redis.Redis(connection_pool=_make_pool(get_config(), role))
        return _clients[role]


def close_clients() -> None:
    """Disconnect every client; the next use connects anew."""
    with _lock:
        for client in _clients.values():
            client.connection_pool.disconnect()
        _clients.clear()


def _forget(*, setting: str, **_: Any) -> None:
    if setting in ("MQ_DJANGO", "CACHES"):
        close_clients()


setting_changed.connect(_forget, dispatch_uid="mq_django.connections")
