"""URLs of a Redis Cluster: `redis+cluster://user:password@host:port,host:port/0?option=value`."""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from redis.connection import parse_url

from mq_django.core.options import CLUSTER_SCHEMES
from mq_django.errors import ConfigurationError
from mq_django.transport.cluster import Address


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
    places, _, database = rest.partition("/")
    login, at, hosts = places.rpartition("@")
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
