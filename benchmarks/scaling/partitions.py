"""What a queue with partitions costs on a cluster: how evenly its nodes are used, and what it does at rest."""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import redis

from benchmarks import environments
from benchmarks.contenders import Contender
from benchmarks.scaling.server_use import ServerUse
from benchmarks.trees import ROOT, Tree, wait_until
from benchmarks.trial import Failed
from benchmarks.workloads import Figures
from mq_django.core.partitions import tag_of
from tests.cluster_rig.private_cluster import PrivateCluster

NODES, PARTITIONS, PROCESSES, KEYS, MESSAGES = 3, 64, 4, 10_000, 20_000
#: The figures.
LOAD = f"{PARTITIONS} partitions on {NODES} nodes: load of the busiest node by the mean"
IDLE = f"{PARTITIONS} partitions: commands/s of an idle partition"
CONNECTIONS = f"{PARTITIONS} partitions: connections to a node by processes"
#: Seconds until all is handled, without new connections, and for which an idle tree is measured.
PATIENCE, STEADY, MEASURED = 120.0, 5.0, 20.0


def costs(contender: Contender) -> Figures:
    """Publish messages with keys to a queue with partitions, handle them, and let its consumers rest."""
    with PrivateCluster(NODES, settings={"appendonly": "no", "save": ""}) as cluster:
        nodes = [redis.Redis.from_url(f"redis://127.0.0.1:{node.port}") for node in cluster.masters]
        clients = [node.client_id() for node in nodes]
        variables = {
            "BENCH_REDIS_URL": cluster.url,
            "BENCH_KEYS": str(KEYS),
            "BENCH_OPTIONS": json.dumps({"PARTITIONS": PARTITIONS, "ORDERED": True}),
            "DJANGO_SETTINGS_MODULE": "benchmarks.ours.settings",
            **environments.variables(contender),
            **contender.variables,
        }
        command = environments.command(contender)
        before = [ServerUse.of(node) for node in nodes]
        publish = [*command, "publish", "--count", str(MESSAGES)]
        env = {**os.environ, **variables}
        subprocess.run(publish, cwd=ROOT, env=env, check=True, capture_output=True, timeout=PATIENCE)
        consume = [*command, "consume", "--processes", str(PROCESSES), "--threads", "8"]
        with tempfile.TemporaryDirectory() as folder, Tree(consume, variables, Path(folder) / "log"):
            if not wait_until(lambda: not _left(nodes), timeout=PATIENCE, step=0.2):
                raise Failed(f"{_left(nodes)} messages of {MESSAGES} were not handled")
            used = [ServerUse.of(node).since(then).cpu for node, then in zip(nodes, before, strict=True)]
            time.sleep(STEADY)
            began, then = time.monotonic(), _scripts(nodes)
            time.sleep(MEASURED)
            calls = (_scripts(nodes) - then) / (time.monotonic() - began)
            most = max(
                sum(one["id"] != str(mine) for one in node.client_list())
                for node, mine in zip(nodes, clients, strict=True)
            )
    return {LOAD: max(used) / (sum(used) / NODES), IDLE: calls / PARTITIONS, CONNECTIONS: most / (PROCESSES + 1)}


def _scripts(nodes: Sequence[redis.Redis]) -> float:
    """Return how many scripts were called; idle consumers send nothing else but a PING now and then."""
    return float(sum(node.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"] for node in nodes))


def _left(nodes: Sequence[redis.Redis]) -> int:
    """Return how many messages the partitions have."""
    keys = [f"mq:{{{tag_of('bench0', number, PARTITIONS)}}}:" for number in range(PARTITIONS)]
    return sum(_length(node, key) for node in nodes for key in keys)


def _length(node: redis.Redis, key: str) -> int:
    try:
        return int(node.xlen(f"{key}ready")) + int(node.hlen(f"{key}waiting"))
    except redis.exceptions.MovedError:
        # It is on another node.
        return 0
