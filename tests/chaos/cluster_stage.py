"""A stage whose Redis is a cluster, and whose consumers serve queues of every kind on each of its masters."""

import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.retry import Retry

from mq_django.conf import get_config
from mq_django.core.keys import QueueKeys
from mq_django.errors import StoreError
from mq_django.transport.cluster_topology import hash_slot
from mq_django.transport.private_server import ServerBinary
from tests.chaos import history, places
from tests.chaos.checker import Ending, Terms, Verdict, check
from tests.chaos.places import Rest
from tests.chaos.settings import MAX_ATTEMPTS, SPREAD, WHOLES
from tests.chaos.spread import Spread
from tests.chaos.spread_checker import check_spread, unreplicated
from tests.chaos.stage import RECOVERY, Stage, is_rewriting
from tests.cluster_rig.private_cluster import PrivateCluster
from tests.cluster_rig.private_node import PrivateNode
from tests.waiting import wait_until


class ClusterStage(Stage):
    """Everything that a scenario of a cluster acts on."""

    def __init__(self, binary: ServerBinary, rng: random.Random, folder: Path, **options: Any) -> None:
        super().__init__(binary, rng, folder, **options)
        settings = {
            # Queues whose slots have a node are served while others have none.
            "cluster-require-full-coverage": "no",
            # Enough for processes that are killed: what is written is the system's to save.
            "appendfsync": "everysec",
        }
        self.cluster = PrivateCluster(3, self.replicas, binary=binary, settings=settings)
        self.producer: Spread

    #: Replicas of each master.
    replicas = 0

    def open(self, *, rate: float, ms: float) -> None:
        """Start the cluster."""
        self.cluster.start()
        self.producer = Spread(self.history, random.Random(self.rng.random()), rate=rate, ms=ms)

    def start_server(self) -> None:
        """Start the nodes that do not run, and wait until all agree."""
        for node in self.cluster.nodes:
            node.start()
        self.cluster.settle()

    @property
    def connection(self) -> str:
        """Return the URL that producers and consumers use."""
        return self.cluster.url

    @property
    def every(self) -> list[QueueKeys]:
        """Return the keys of all queues."""
        return [get_config().queue(name).keys for name in (*SPREAD, *WHOLES)]

    @property
    def client(self) -> redis.Redis:
        """Return a client of the whole cluster."""
        nodes = [ClusterNode("127.0.0.1", node.port) for node in self.cluster.running]  # type: ignore[no-untyped-call]
        client: Any = RedisCluster(
            startup_nodes=nodes,
            protocol=2,
            socket_timeout=30,
            retry=Retry(NoBackoff(), 5),
            require_full_coverage=False,
        )
        return client

    def slot(self, queue: str) -> int:
        """Return the slot of a queue."""
        return hash_slot(get_config().queue(queue).keys.ready)

    def queues_on(self, node: PrivateNode) -> list[str]:
        """Return the queues that are on a master."""
        return [queue for queue in SPREAD if self.cluster.owner(self.slot(queue)) is node]

    def strike_node(
        self, kind: str, queues: Sequence[str], hit: Callable[[], None], *, loses: bool = False, spares: bool = False
    ) -> str:
        """Do something to a node, note which queues it has, and return the fault's name for heal()."""
        name, began = f"{kind}-{next(self._faults)}", time.monotonic()
        # Noted before: it may take a while.
        told = {"pids": self.pids(), "queues": list(queues), "loses": loses, "spares": spares}
        hit()
        self.history.note("fault", fault=name, kind=kind, began=began, **told)
        return name

    def judge(self, events: Sequence[history.Event], ending: Ending) -> Verdict:
        """Return the verdict on what happened."""
        terms = Terms(max_attempts=MAX_ATTEMPTS, recovery=RECOVERY, excused=unreplicated(events))
        verdict = check(events, ending, terms)
        verdict.violations += check_spread(events)
        return verdict

    def left(self, client: redis.Redis) -> int:
        """Return how many messages are ready, pending or wait."""
        return sum(places.left(client, keys) for keys in self.every)

    def look(self, client: redis.Redis) -> Rest:
        """Return where everything is."""
        return places.look_at_all(client, self.every)

    def known(self, client: redis.Redis) -> set[str]:
        """Return everybody who is known to Redis as a consumer."""
        return {name for keys in self.every for name in places.consumers(client, keys)}

    def restarted(self, client: redis.Redis) -> Rest:
        """Return what is where after all nodes wrote their files anew and started on them."""
        for node in self.cluster.nodes:
            node.client.bgrewriteaof()
        wait_until(lambda: not any(is_rewriting(node.client) for node in self.cluster.nodes), timeout=30)
        for node in self.cluster.nodes:
            node.kill()
        self.start_server()
        with self.client as fresh:
            return self.look(fresh)

    def close(self) -> None:
        """End everything that the run started."""
        super().close()
        self.cluster.stop()

    def has_new_master(self, slot: int, old: PrivateNode) -> bool:
        """Return whether all running nodes know that a slot has another master."""
        with suppress(StoreError):
            views = [view for node in self.cluster.running for view in node.views()]
            return all(view.id != old.id for view in views if view.is_master and view.owns(slot))
        return False


class ReplicatedStage(ClusterStage):
    """A stage whose masters have a replica each, but for the last."""

    replicas = 1

    def open(self, *, rate: float, ms: float) -> None:
        """Start the cluster, and remove the replica of the last master."""
        super().open(rate=rate, ms=ms)
        (replica,) = self.cluster.replicas(self.cluster.nodes[2])
        self.cluster.remove_node(replica)
