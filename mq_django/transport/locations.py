"""A connection pool to the server that CONNECTION names.

A URL or an alias defines the address and the login. Pools, timeouts, retries, the protocol and decoding are set by us:
options made for caches could lose or duplicate messages.
"""

import re
import socket
from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import redis
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string
from django_redis.cache import RedisCache
from django_redis.client import ShardClient
from django_redis.pool import get_connection_factory
from redis.connection import AbstractConnection, parse_url
from redis.sentinel import Sentinel, SentinelConnectionPool

from mq_django.conf import EMBEDDED, SENTINEL_SCHEMES, SERVER_SCHEMES, URL_SCHEMES, Config, shown_setting
from mq_django.core.texts import class_name, repr_of
from mq_django.errors import ConfigurationError
from mq_django.transport import private_server
from mq_django.transport.cluster_topology import Cluster, read_cluster_url
from mq_django.transport.sentinel_urls import TOPOLOGY_OPTIONS, MasterFinder, SentinelURL, master_pool

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

_NO_ADDRESS = (
    f"it must start with one of {', '.join(SERVER_SCHEMES)} and have a port from 1 to 65535. In a user name or "
    "password, write /, ?, #, @, : and % percent-encoded."
)
_BAD_OPTION = re.compile(r"Invalid value for '(\w+)'")


def make_pool(config: Config, ours: Mapping[str, Any], connection: str = "") -> redis.ConnectionPool:
    """Return a new pool to a server, with these options of redis-py.

    Args:
        config: the settings of the project.
        ours: options of redis-py.
        connection: the CONNECTION of a queue or topic; "": that of the project.

    Raises:
        ConfigurationError: CONNECTION or the alias it names cannot be used.
        ConnectionLost: the embedded server does not start.
    """
    name, setting = connection or config.connection, config.where_is(connection)
    if name == EMBEDDED:
        return private_server.embedded_pool(config.embedded_directory, **ours)
    if not name.startswith(URL_SCHEMES):
        return _alias_pool(name, setting, ours)
    return pool_of_url(name, setting, ours)


def pool_of_url(url: str, setting: str, ours: Mapping[str, Any]) -> redis.ConnectionPool:
    """Return a new pool to the server that a URL names, which does not connect yet.

    Args:
        url: the URL.
        setting: what names it, for messages.
        ours: options of redis-py.

    Raises:
        ConfigurationError: the URL cannot be used.
    """
    if url.startswith(SENTINEL_SCHEMES):
        try:
            found = SentinelURL.read(url)
        except ValueError as error:
            raise ConfigurationError(f"{setting} is not a usable Redis URL: {error}") from error
        where = parse_url(_without_ours(found.server_url, setting))  # type: ignore[no-untyped-call]
        pool: redis.ConnectionPool = master_pool(found, where, ours)
    else:
        pool = redis.ConnectionPool.from_url(_without_ours(url, setting), **ours)
    _try(pool, setting)
    return pool


def make_cluster(config: Config, ours: Mapping[str, Any], connection: str = "", *, patience: float = 0.0) -> Cluster:
    """Return the Redis Cluster that a CONNECTION names. It connects when it is used.

    Args:
        config, ours, connection: see make_pool().
        patience: see Cluster.

    Raises:
        ConfigurationError: CONNECTION cannot be used.
    """
    setting = config.where_is(connection)
    nodes, where = read_cluster_url(connection or config.connection, setting, _without_ours)
    _try(redis.ConnectionPool(host=nodes[0][0], port=nodes[0][1], **{**where, **ours}), setting)
    return Cluster(nodes, where, ours, patience=patience, named_by=setting)


def _alias_pool(alias: str, named_by: str, ours: Mapping[str, Any]) -> redis.ConnectionPool:
    cache, setting = settings.CACHES.get(alias), f"CACHES[{alias!r}]"
    if cache is None or not is_django_redis(cache):
        raise ConfigurationError(
            f'{named_by} = {shown_setting(alias)} must name a django-redis alias in CACHES, or be a URL or "embedded".'
        )
    servers = servers_of(cache)
    url = _without_ours(servers[0] if servers else "", f"The LOCATION of {setting}")
    options = _alias_options(cache, setting)
    try:
        _check_classes(options, servers, setting)
        options["CONNECTION_POOL_KWARGS"] = {**_where(options.get("CONNECTION_POOL_KWARGS")), **ours}
        options["SENTINEL_KWARGS"] = {**_where(options.get("SENTINEL_KWARGS")), **TOPOLOGY_OPTIONS}
        # The factory handles TLS, login and Sentinels.
        factory = get_connection_factory(options=options)
        pool: redis.ConnectionPool = factory.get_connection_pool(factory.make_connection_params(url))
    except ConfigurationError:
        raise
    except (ImportError, ImproperlyConfigured, TypeError, ValueError) as error:
        raise ConfigurationError(f"{setting} cannot be used for queues: {error}") from error
    _try(pool, setting)
    if isinstance(pool, SentinelConnectionPool) and type(pool.sentinel_manager) is Sentinel:
        pool.sentinel_manager = pool.proxy.sentinel_manager = MasterFinder.of(pool.sentinel_manager)
    if any(pool.connection_kwargs.get(name) != value for name, value in ours.items() if name != "max_connections"):
        raise ConfigurationError(f"{setting} cannot be used for queues: its CONNECTION_FACTORY drops pool options.")
    return pool


def is_django_redis(cache: Mapping[str, Any]) -> bool:
    """Tell whether a cache in CACHES is django-redis's, or of a class made from it."""
    try:
        backend = import_string(str(cache.get("BACKEND")))
    except ImportError:
        return False
    return isinstance(backend, type) and issubclass(backend, RedisCache)


def servers_of(cache: Mapping[str, Any]) -> list[str]:
    """Return the servers in a cache's LOCATION, as its backend reads it; the first is the one that is written to."""
    location = cache.get("LOCATION")
    if isinstance(location, str):
        # Django's own backend takes semicolons, too.
        location = location.split(",") if is_django_redis(cache) else re.split("[;,]", location)
    elif not isinstance(location, list | tuple | set):
        return []
    return [server for part in location if (server := str(part).strip())]


def _alias_options(cache: Mapping[str, Any], setting: str) -> dict[str, Any]:
    options = cache.get("OPTIONS") or {}
    if not isinstance(options, Mapping):
        raise ConfigurationError(f"The OPTIONS of {setting} must be a dict, not {class_name(type(options))}.")
    for name in ("CONNECTION_POOL_KWARGS", "SENTINEL_KWARGS"):
        if not isinstance(options.get(name) or {}, Mapping):
            raise ConfigurationError(f"{name} in the OPTIONS of {setting} must be a dict.")
    return {name: value for name, value in options.items() if name not in _ALIAS_POOLS}


def _check_classes(options: Mapping[str, Any], servers: Sequence[str], setting: str) -> None:
    """Refuse classes of an alias that do what a queue would not: keep keys elsewhere, or send commands otherwise."""
    client = options.get("CLIENT_CLASS")
    if client and len(servers) > 1 and issubclass(import_string(client), ShardClient):
        raise ConfigurationError(f"{setting} spreads its keys over several servers, and a queue has to be on one.")
    redis_client = options.get("REDIS_CLIENT_CLASS")
    if redis_client and import_string(redis_client) is not redis.Redis:
        raise ConfigurationError(
            f"{setting} has the REDIS_CLIENT_CLASS {repr_of(redis_client)}, which queues would not use: they have "
            "clients of their own. Name an alias without it, or a URL: that of a Redis Cluster is "
            "redis+cluster://HOST:PORT,HOST:PORT."
        )


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
        read = parse_url(url)  # type: ignore[no-untyped-call]
    except ValueError as error:
        if option := _BAD_OPTION.match(str(error)):
            return f"the value of {option[1]!r} is wrong."
        return _NO_ADDRESS
    parts = urlsplit(url)
    # redis-py would use port 6379, or fail at the first connection.
    if parts.scheme != "unix" and (parts.port == 0 or read.get("port") == "0"):
        return _NO_ADDRESS
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
