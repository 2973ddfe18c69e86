"""Connections that a tree of consumers has to a server, and to each node of a cluster."""

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import redis

from benchmarks import environments
from benchmarks.contenders import Contender
from benchmarks.trees import ROOT, Tree, wait_until
from benchmarks.trial import Failed, Trial
from benchmarks.workloads import Figures
from tests.cluster_rig.private_cluster import PrivateCluster

#: Consumer processes and queues.
SHAPES = ((1, 1), (1, 5), (4, 1), (4, 5))
NODES = 3
#: Messages of each queue that are handled before: some connections are opened when they are first needed.
MESSAGES = 200
#: Seconds until a tree must have all its connections, and for how long their number must then stay.
START, STEADY = 60.0, 3.0


def on_server(processes: int, queues: int) -> str:
    """Return the name of the figure of one server."""
    return f"connections: {processes} processes, {queues} queues"


def on_node(processes: int, queues: int) -> str:
    """Return the name of the figure of the node of a cluster that has the most."""
    return f"{on_server(processes, queues)}, the most of a node of {NODES}"


def of_trees(contender: Contender) -> Figures:
    """Count the connections of idle trees of several sizes, on a server and on a cluster."""
    figures: dict[str, float] = {}
    with PrivateCluster(NODES, settings={"appendonly": "no", "save": ""}) as cluster:
        for processes, queues in SHAPES:
            with Trial(contender, queues=queues) as trial:
                (found,) = _count(contender, [trial.url], trial.url, processes, queues)
            figures[on_server(processes, queues)] = found
            urls = [f"redis://127.0.0.1:{node.port}" for node in cluster.masters]
            figures[on_node(processes, queues)] = max(_count(contender, urls, cluster.url, processes, queues))
    return figures


def _count(contender: Contender, nodes: Sequence[str], url: str, processes: int, queues: int) -> list[int]:
    """Let a tree handle some messages; return its connections to each node, when they have stayed the same."""
    variables = {
        "BENCH_REDIS_URL": url,
        "BENCH_QUEUES": str(queues),
        "DJANGO_SETTINGS_MODULE": "benchmarks.ours.settings",
        **environments.variables(contender),
        **contender.variables,
    }
    command = environments.command(contender)
    publish = [*command, "publish", "--count", str(MESSAGES * queues)]
    subprocess.run(publish, cwd=ROOT, env={**os.environ, **variables}, check=True, capture_output=True, timeout=START)
    before = [{one["id"] for one in _clients(node)} for node in nodes]
    consume = [*command, "consume", "--processes", str(processes), "--threads", "8"]
    with tempfile.TemporaryDirectory() as folder, Tree(consume, variables, Path(folder) / "log"):
        seen: list[tuple[float, list[int]]] = []

        def is_steady() -> bool:
            clients = [
                [one for one in _clients(node) if one["id"] not in old] for node, old in zip(nodes, before, strict=True)
            ]
            now = [len(found) for found in clients]
            if not seen or seen[-1][1] != now:
                seen.append((time.monotonic(), now))
            blocked = sum(one["cmd"].startswith("xreadgroup") for found in clients for one in found)
            return blocked >= processes * queues and time.monotonic() - seen[-1][0] > STEADY

        if not wait_until(is_steady, timeout=START, step=0.2):
            raise Failed(f"{processes} processes on {queues} queues had {[now for _, now in seen]} connections")
    return seen[-1][1]


def _clients(node: str) -> list[dict[str, str]]:
    """Return the connections of a node but this one."""
    with redis.Redis.from_url(node) as client:
        mine = str(client.client_id())
        return [one for one in client.client_list() if one["id"] != mine]
