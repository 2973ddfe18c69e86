"""Run tests on Redis Clusters: `MQ_CLUSTER_URL=own pytest ...` starts one of three masters in each process of the tests.

`MQ_CLUSTER_URL=redis+cluster://host:port,host:port` names one that runs. Tests that count what a server does then need
`-n 0`. Wires that a test makes itself become wires to the cluster, and namespaces in RSMQ's format get a hash tag.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from mq_django.conf import read
from mq_django.transport.cluster import Cluster
from mq_django.transport.cluster_wires import ClusterSession, ClusterWire
from mq_django.transport.connections import _options
from mq_django.transport.locations import make_cluster
from mq_django.transport.sessions import Pooled, Session

#: The cluster that tests run on: its URL, OWN for one that the process starts, "" for none.
URL = os.environ.get("MQ_CLUSTER_URL", "")
OWN = "own"

#: Replies of INFO, by node.
Replies = Mapping[str, Mapping[str, Any]]


class RawCluster(redis.RedisCluster):
    """A client of a cluster whose counters are those of all its nodes."""

    def info(self, section: str) -> dict[str, Any]:  # type: ignore[override]
        """Return a section of INFO: integers are the sums of those of all masters; else the words of one of them."""
        found: Replies = super().info(section, target_nodes=self.PRIMARIES)
        first = next(iter(found.values()))
        names = {name: None for each in found.values() for name in each}
        return {
            name: _sum([each[name] for each in found.values() if name in each]) if name not in _TEXTS else first[name]
            for name in names
        }


#: Integers of INFO that are no counts.
_TEXTS = frozenset({"process_id", "tcp_port", "uptime_in_seconds"})


def _sum(values: Sequence[Any]) -> Any:
    if isinstance(values[0], Mapping):
        return {name: _sum([each.get(name, 0) for each in values]) for name in values[0]}
    return sum(values) if all(isinstance(value, int) for value in values) else values[0]


def raw_client(url: str) -> RawCluster:
    """Return a raw client of a cluster: bytes, RESP2 shapes, no retries."""
    first = url.replace("+cluster", "").partition(",")[0]
    return RawCluster.from_url(first, protocol=2, socket_timeout=10, retry=Retry(NoBackoff(), 0))


@cache
def cluster(url: str) -> Cluster:
    """Return the nodes of a cluster, with clients as producers have them."""
    return make_cluster(read({"CONNECTION": url})[0], _options("produce"), patience=2.0)


def route_wires(monkeypatch: Any, url: Callable[[], str]) -> None:
    """Let `Session(client)` and `Pooled(client)` of the raw client be wires to the cluster."""

    def made_for(single: type, routed: type) -> None:
        def new(cls: type, client: Any) -> Any:
            # The product makes them for a node.
            by_test = sys._getframe(1).f_globals["__name__"].startswith("tests.")
            return routed(cluster(url())) if by_test else object.__new__(cls)

        monkeypatch.setattr(single, "__new__", new, raising=False)

    made_for(Session, ClusterSession)
    made_for(Pooled, ClusterWire)


def tagged(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings whose queues in RSMQ's format have their keys in one slot."""
    queues = {name: _tagged(options) for name, options in settings.get("QUEUES", {}).items()}
    return {**settings, "QUEUES": queues}


def _tagged(options: Any) -> Any:
    if not isinstance(options, Mapping) or options.get("STORE") != "rsmq":
        return options
    namespace = str(options.get("NAMESPACE", "rsmq"))
    return {**options, "NAMESPACE": namespace if "{" in namespace else f"{{{namespace}}}"}
