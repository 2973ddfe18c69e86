"""Clusters for tests: which servers there are, and the cluster that the tests of a process share."""

import os
from pathlib import Path

from mq_django.transport.private_server import ServerBinary, find_server
from tests.cluster_rig.private_cluster import PrivateCluster

#: Names the program of all clusters in the environment: MQ_CLUSTER_SERVER=/usr/bin/valkey-server.
SERVER = "MQ_CLUSTER_SERVER"

#: Keys of one deletion.
KEYS_AT_ONCE = 500


def cluster_binary() -> ServerBinary:
    """Return the server program of clusters: the one in the environment, else the one that all other tests use."""
    named = os.environ.get(SERVER)
    return ServerBinary(path=Path(named), origin=SERVER) if named else find_server()


def delete_keys(cluster: PrivateCluster) -> None:
    """Delete all keys of a cluster whose slots do not move."""
    for node in cluster.masters:
        keys = list(node.client.scan_iter(count=1000))
        for start in range(0, len(keys), KEYS_AT_ONCE):
            with node.client.pipeline(transaction=False) as pipeline:
                for key in keys[start : start + KEYS_AT_ONCE]:
                    pipeline.unlink(key)
                pipeline.execute()
