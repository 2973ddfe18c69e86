"""A connection pool to the server that CONNECTION names.

A URL or an alias defines the address and the login. Pools, timeouts, retries, the protocol and decoding are set by us:
options made for caches could lose or duplicate messages.
"""

import re
import socket
from collections.abc import Mapping
from inspect import signature
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import redis
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django_redis.pool import get_connection_factory
from redis.backoff import NoBackoff
from redis.connection import AbstractConnection, parse_url
from redis.retry import Retry

from mq_django.conf import EMBEDDED, URL_SCHEMES, Config
from mq_django.errors import ConfigurationError
from mq_django.transport import embedded

#: Options for asking Sentinels for the master. Short timeouts, so that a silent one does not delay the next.
_SENTINEL_OPTIONS: dict[str, Any] = {
    "socket_connect_timeout": 0.5,
    "socket_timeout": 1.0,
    "retry": Retry(NoBackoff(), 0),
    "protocol": 2,
}

#: Options of redis-py for the address, the login and the socket. Options of TLS, which start with `ssl`, also count.
_WHERE = frozenset(
    {
        *("host", "port", "path", "unix_socket_path", "db", "connection_class"),
        *("username", "password", "credential_provider", "redis_connect_func"),
        *("socket_type", "socket_keepalive", "socket_keepalive_options"),
    }
)

#: All other options of the installed redis-py, which we set ourselves.
_OURS = frozenset(
    name
    for kind in (redis.Redis, redis.ConnectionPool, redis.BlockingConnectionPool, AbstractConnection)
    for name in signature(kind.__init__).parameters
    if name not in _WHERE and not name.startswith("ssl")
)

#: Options of an alias about its own pools.
_ALIAS_POOLS = frozenset({"CONNECTION_POOL_CLASS", "PARSER_CLASS", "SOCKET_TIMEOUT", "SOCKET_CONNECT_TIMEOUT"})

_BAD_OPTION = re.compile(r"Invalid value for '(\w+)'")


def make_pool(config: Config, ours: Mapping[str, Any]) -> redis.ConnectionPool:
    """Return a new pool to the server of a config, with these options of redis-py.

    Raises:
        ConfigurationError: MQ_DJANGO["CONNECTION"] or the alias it names cannot be used.
        ConnectionLost: the embedded server does not start.
    """
    name = config.connection
    if name == EMBEDDED:
        return embedded.connection_pool(config.directory, **ours)
    if not name.startswith(URL_SCHEMES):
        return _alias_pool(name, ours)
    setting = 'MQ_DJANGO["CONNECTION"]'
    pool = redis.ConnectionPool.from_url(_without_ours(name, setting), **ours)
    _try(pool, setting)
    return pool


def _alias_pool(alias: str, ours: Mapping[str, Any]) -> redis.ConnectionPool:
    cache = settings.CACHES.get(alias)
    if cache is None or "django_redis" not in str(cache.get("BACKEND")):
        raise ConfigurationError(
            f'MQ_DJANGO["CONNECTION"] = {alias!r} must name a django-redis alias in CACHES, or be a URL or "embedded".'
        )
    setting = f"CACHES[{alias!r}]"
    locations = cache.get("LOCATION") or ""
    location = str(locations if isinstance(locations, str) else [*locations, ""][0]).split(",")[0].strip()
    url = _without_ours(location, f"The LOCATION of {setting}")
    options = {name: value for name, value in (cache.get("OPTIONS") or {}).items() if name not in _ALIAS_POOLS}
    options["CONNECTION_POOL_KWARGS"] = {**_where(options.get("CONNECTION_POOL_KWARGS")), **ours}
    options["SENTINEL_KWARGS"] = {**_where(options.get("SENTINEL_KWARGS")), **_SENTINEL_OPTIONS}
    try:
        # The factory handles TLS, login and Sentinels.
        factory = get_connection_factory(options=options)
        pool: redis.ConnectionPool = factory.get_connection_pool(factory.make_connection_params(url))
    except (ImportError, ImproperlyConfigured, TypeError, ValueError) as error:
        raise ConfigurationError(f"{setting} cannot be used for queues: {error}") from error
    _try(pool, setting)
    if any(pool.connection_kwargs.get(name) != value for name, value in ours.items() if name != "max_connections"):
        raise ConfigurationError(f"{setting} cannot be used for queues: its CONNECTION_FACTORY drops pool options.")
    return pool


def _where(options: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (options or {}).items() if name not in _OURS}


def _without_ours(url: str, setting: str) -> str:
    """Return a URL without the options that we set, because redis-py prefers options of the URL."""
    reason = _fault(url)
    if reason:
        raise ConfigurationError(f"{setting} is not a usable Redis URL: {reason}")
    address, _, query = url.partition("?")
    others = [(name, value) for name, value in parse_qsl(query) if name not in _OURS]
    return f"{address}?{urlencode(others)}" if others else address


def _fault(url: str) -> str:
    """Return the error of a URL, or "". Does not quote the URL, because it may contain a password."""
    try:
        parse_url(url)  # type: ignore[no-untyped-call]
    except ValueError as error:
        if option := _BAD_OPTION.match(str(error)):
            return f"the value of {option[1]!r} is wrong."
        return (
            f"it must start with one of {', '.join(URL_SCHEMES)} and have a port from 1 to 65535. In a user name or "
            "password, write /, ?, #, @, : and % percent-encoded."
        )
    parts = urlsplit(url)
    if parts.scheme == "unix" and not parts.path:
        # redis-py would connect to localhost:6379.
        return "it has no path to a socket."
    # redis-py uses database 0 if it is not a number.
    if parts.scheme != "unix" and not re.fullmatch(r"/?|/\d+/?", parts.path):
        return "its database is not a number."
    return ""


def _try(pool: redis.ConnectionPool, setting: str) -> None:
    """Create a connection object without connecting: redis-py checks most options only then."""
    try:
        connection = pool.connection_class(**pool.connection_kwargs)
    except (TypeError, ValueError, redis.RedisError) as error:
        raise ConfigurationError(f"{setting} has an option that redis-py does not take: {error}") from error
    if isinstance(connection, redis.UnixDomainSocketConnection) and not hasattr(socket, "AF_UNIX"):
        raise ConfigurationError(f"{setting} names a unix socket, which Python does not support on this system.")
