"""A slot of a Redis Cluster that stays half moved stops no queue but its own."""

from itertools import combinations

import pytest

from mq_django.conf import get_config
from mq_django.transport.cluster_topology import hash_slot
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

#: Seconds: short, so that a queue whose heartbeats do not come is soon left alone.
VISIBILITY_SECONDS = 3


def neighbours(cluster, namespace: str) -> tuple[str, str]:
    """Return two queues that are on the same master, in the order of their names: of four some are."""
    owned = {queue: cluster.owner(f"{namespace}:{{{queue}}}:") for queue in ("a", "b", "c", "default")}
    return next(pair for pair in combinations(owned, 2) if owned[pair[0]] is owned[pair[1]])


def test_other_queues_of_its_node_go_on(cluster, trees, publish, history, namespace):
    first, second = neighbours(cluster, namespace)
    options = {"VISIBILITY_TIMEOUT": VISIBILITY_SECONDS}
    trees("--processes", "1", CONNECTION=cluster.url, QUEUES={first: options, second: options})
    early = publish(queue=second)
    wait_until(lambda: early in history.counts())
    slot = hash_slot(get_config().queue(first).keys.ready)
    home = cluster.owner(slot)
    target = next(node for node in cluster.masters if node is not home)
    steps = cluster.moving_slots([slot], target, keys_at_once=1)
    try:
        for _ in range(3):
            next(steps)
        # More heartbeats than would be missed.
        for _ in range(3 * VISIBILITY_SECONDS):
            delayed = publish(queue=second, delay=1.0)
            wait_until(lambda: delayed in history.counts(), within=5.0)  # noqa: B023 - called at once
    finally:
        for _ in steps:
            pass
        cluster.settle()
        cluster.move_slots([slot], home)
