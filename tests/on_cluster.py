"""Run tests on a Redis Cluster: `MQ_CLUSTER_URL=redis+cluster://host:port,host:port pytest ...`.

Wires that a test makes itself become wires to the cluster, and namespaces in RSMQ's format get a hash tag.
"""

import os
import sys
from collections.abc import Mapping
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

URL = os.environ.get("MQ_CLUSTER_URL", "")


def raw_client() -> redis.RedisCluster:
    """Return a raw client of the cluster: bytes, RESP2 shapes, no retries."""
    first = URL.replace("+cluster", "").partition(",")[0]
    return redis.RedisCluster.from_url(first, protocol=2, socket_timeout=10, retry=Retry(NoBackoff(), 0))


@cache
def cluster() -> Cluster:
    return make_cluster(read({"CONNECTION": URL})[0], _options("produce"), patience=2.0)


def route_wires(monkeypatch: Any) -> None:
    """Let `Session(client)` and `Pooled(client)` of the raw client be wires to the cluster."""

    def made_for(single: type, routed: type) -> None:
        def new(cls: type, client: Any) -> Any:
            # The product makes them for a node.
            by_test = sys._getframe(1).f_globals["__name__"].startswith("tests.")
            return routed(cluster()) if by_test else object.__new__(cls)

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
