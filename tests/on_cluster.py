"""Run tests on Redis Clusters: with `MQ_CLUSTER_URL=own`, each process of the tests starts one of three masters.

`MQ_CLUSTER_URL=redis+cluster://host:port,host:port` names one that runs. Tests that count what a server does then need
`-n 0`. Transports that a test makes itself lead to the cluster, and namespaces in RSMQ's format get a hash tag.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from mq_django.conf import read
from mq_django.transport.cluster_topology import Cluster
from mq_django.transport.cluster_transport import ClusterSession, ClusterTransport
from mq_django.transport.connections import _options
from mq_django.transport.locations import make_cluster
from mq_django.transport.sessions import Pooled, Session

#: The cluster that tests run on: its URL, OWN for one that the process starts, "" for none.
URL = os.environ.get("MQ_CLUSTER_URL", "")
OWN = "own"

#: Replies of INFO, by node.
Replies = Mapping[str, Mapping[str, Any]]


class RawCluster(redis.RedisCluster):
    """A client of a cluster that changes settings and users of all its nodes, and sums up their counters."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._asked = 0

    def execute_command(self, *words: Any, **options: Any) -> Any:
        """Run a command: some of them on all masters, with the reply of one of them."""
        if " ".join(str(word) for word in words[:2]).upper().startswith(_EVERYWHERE):
            options.setdefault("target_nodes", self.PRIMARIES)
            replies = super().execute_command(*words, **options)
            return next(iter(replies.values())) if isinstance(replies, Mapping) else replies
        return super().execute_command(*words, **options)

    def info(self, section: str) -> dict[str, Any]:  # type: ignore[override]
        """Return a section of INFO: integers are the sums of those of all masters; else the words of one of them."""
        found: Replies = super().info(section, target_nodes=self.PRIMARIES)
        first = next(iter(found.values()))
        names = {name: None for each in found.values() for name in each}
        summed = {name: _sum([each[name] for each in found.values() if name in each]) for name in names}
        summed |= {name: value for name, value in first.items() if name in _TEXTS}
        if "total_commands_processed" in summed:
            summed["total_commands_processed"] -= self._asked
        # Tests know that one INFO is counted.
        self._asked += len(found) - 1
        return summed


_EVERYWHERE = ("CONFIG SET", "CONFIG RESETSTAT", "ACL SETUSER", "ACL DELUSER", "CLIENT KILL")
#: Integers of INFO that are no counts.
_TEXTS = frozenset({"process_id", "tcp_port", "uptime_in_seconds"})


def _sum(values: Sequence[Any]) -> Any:
    if all(isinstance(value, Mapping) for value in values):
        names = {name: None for value in values for name in value}
        return {name: _sum([value.get(name, 0) for value in values]) for name in names}
    return sum(values) if all(isinstance(value, int) for value in values) else values[0]


def raw_client(url: str) -> RawCluster:
    """Return a raw client of a cluster: bytes, RESP2 shapes, no retries."""
    first = url.replace("+cluster", "").partition(",")[0]
    return RawCluster.from_url(first, protocol=2, socket_timeout=10, retry=Retry(NoBackoff(), 0))


@cache
def cluster(url: str) -> Cluster:
    """Return the nodes of a cluster, with clients as producers have them."""
    return make_cluster(read({"CONNECTION": url})[0], _options("produce"), patience=2.0)


def route_wires(url: str) -> None:
    """Let a test's `Session(client)` and `Pooled(client)` of a client of the cluster be transports to the cluster.

    This lasts as long as the process: a class whose `__new__` was removed again cannot be called.
    """

    def made_for(single: type, routed: type) -> None:
        def new(cls: type, client: Any) -> Any:
            # The product makes them for a node.
            by_test = sys._getframe(1).f_globals["__name__"].startswith("tests.")
            return routed(cluster(url)) if by_test and _is_of(client, url) else object.__new__(cls)

        single.__new__ = new  # type: ignore[method-assign,assignment]

    made_for(Session, ClusterSession)
    made_for(Pooled, ClusterTransport)


def _is_of(client: Any, url: str) -> bool:
    if isinstance(client, redis.RedisCluster):
        return True
    where = client.connection_pool.connection_kwargs
    return (where.get("host"), where.get("port")) in cluster(url).nodes


def tag(namespace: str) -> str:
    """Return a namespace whose keys are in one slot, if tests run on a cluster: RSMQ's own keys have no hash tag."""
    return f"{{{namespace}}}" if URL and "{" not in namespace else namespace


def tagged(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings whose queues in RSMQ's format have their keys in one slot."""
    queues = {name: _tagged(options) for name, options in settings.get("QUEUES", {}).items()}
    return {**settings, "QUEUES": queues}


def _tagged(options: Any) -> Any:
    if not isinstance(options, Mapping) or options.get("STORE") != "rsmq":
        return options
    return {**options, "NAMESPACE": tag(str(options.get("NAMESPACE", "rsmq")))}
