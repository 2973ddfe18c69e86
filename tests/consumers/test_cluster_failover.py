"""A replica of a Redis Cluster becomes the master, and has less than the old one has confirmed."""

import pytest

from mq_django.conf import get_config
from tests.cluster_rig.private_cluster import PrivateCluster
from tests.cluster_rig.private_node import PrivateNode
from tests.clusters import cluster_binary
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def replicated():
    with PrivateCluster(3, 1, binary=cluster_binary()) as cluster:
        yield cluster


def cut_off(master: PrivateNode, replica: PrivateNode) -> None:
    """End the replication from a master to its replica, and let no other begin."""
    replica.client.config_set("masteruser", "nobody")
    replica.client.config_set("masterauth", "nothing")
    master.command("CLIENT", "KILL", "TYPE", "replica")
    wait_until(lambda: replica.client.info("replication")["master_link_status"] == "down")


@pytest.mark.parametrize("options", [{}, {"ORDERED": True}], ids=["plain", "ordered"])
def test_an_ack_that_the_new_master_does_not_have_holds_up_nothing(
    replicated, trees, publish, history, tmp_path, options
):
    go = tmp_path / "go"
    trees("--processes", "1", CONNECTION=replicated.url, QUEUES={"default": options})
    keys = get_config().queue("default").keys
    first, second = publish(["wait", str(go)], key="k"), publish(key="k")
    history.wait_for("start")
    master = replicated.owner(keys.ready)
    (replica,) = replicated.replicas(master)
    assert master.command("WAIT", 1, 30_000) == 1
    cut_off(master, replica)
    go.touch()
    wait_until(lambda: {first, second} <= history.counts().keys())
    wait_until(lambda: master.client.xpending(keys.ready, keys.group)["pending"] == 0)
    # Connections stay: the old master says that it has been replaced.
    replicated.failover(replica, option="TAKEOVER")
    new = replica.client
    left = "what was handled is settled at the new master, and the next of the key is handled again"
    wait_until(lambda: new.xlen(keys.ready) + new.hlen(keys.waiting) == 0, within=30, message=left)
