"""A private cluster comes up complete, moves slots, survives its nodes, and goes with its owner."""

import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import ResponseError

from mq_django.errors import ConnectionLost, NotSupported, StoreError
from mq_django.transport.hash_slots import hash_slot
from mq_django.transport.servers import ServerBinary
from tests.cluster_rig import private_node
from tests.cluster_rig.private_cluster import PrivateCluster
from tests.cluster_rig.private_node import BUS_DISTANCE, PrivateNode, free_port
from tests.cluster_rig.private_nodes import SLOTS
from tests.cluster_rig.slot_moves import await_owner, slot_ranges
from tests.clusters import cluster_binaries, delete_keys
from tests.processes import alive
from tests.waiting import wait_until

BINARIES = cluster_binaries()
KEY = "{moved}"
SLOT = hash_slot(KEY)


def each(one: ServerBinary) -> Any:
    return pytest.param(one, id=one.origin, marks=() if one == BINARIES[0] else pytest.mark.slow)


@pytest.fixture(scope="module", params=[each(one) for one in BINARIES])
def binary(request) -> ServerBinary:
    return request.param


@pytest.fixture(scope="module")
def masters(binary):
    with PrivateCluster(binary=binary) as cluster:
        yield cluster


@pytest.fixture
def replicated(binary):
    """A cluster with replicas for one test: what nodes know of earlier failovers decides the next."""
    with PrivateCluster(3, 1, binary=binary) as cluster:
        yield cluster


@pytest.fixture
def target(masters):
    """A master that does not have the slot. The slot, and what is in it, goes back when the test ends."""
    home = masters.owner(SLOT)
    yield next(node for node in masters.masters if node is not home)
    masters.move_slots([SLOT], home)
    delete_keys(masters)


def fill(cluster: PrivateCluster, number: int) -> list[bytes]:
    node = cluster.owner(SLOT)
    for count in range(number):
        node.client.set(f"{KEY}{count}", count)
    return sorted(node.client.scan_iter())


class TestThree:
    def test_masters_share_all_slots(self, masters):
        assert len(masters.masters) == len(masters.nodes) == 3
        assert sorted(slot for node in masters.nodes for slot in masters.slots(node)) == list(range(SLOTS))
        assert {node.facts()["cluster_state"] for node in masters.nodes} == {"ok"}

    def test_the_url_names_them(self, masters):
        addresses = ",".join(f"127.0.0.1:{node.port}" for node in masters.nodes)
        assert masters.url == f"redis+cluster://{addresses}"

    def test_they_listen_on_loopback_only_below_the_ports_of_outgoing_connections(self, masters):
        assert {node.client.config_get("bind")["bind"] for node in masters.nodes} == {"127.0.0.1"}
        assert all(node.port + BUS_DISTANCE < 32_768 for node in masters.nodes)

    def test_an_owner_has_its_keys(self, masters):
        node = masters.owner("key")
        masters.client(node).set("key", "value")
        assert masters.owner(hash_slot("key")) is node
        other = next(one for one in masters.nodes if one is not node)
        with pytest.raises(ResponseError, match=r"^(MOVED )?\d+ "):
            masters.client(other).get("key")
        delete_keys(masters)
        assert node.client.get("key") is None

    def test_an_ordinary_client_of_clusters_uses_it(self, masters):
        first = ClusterNode("127.0.0.1", masters.nodes[0].port)
        with closing(RedisCluster(startup_nodes=[first])) as client:
            for number in range(30):
                client.set(f"key{number}", number)
            assert [client.get(f"key{number}") for number in range(30)] == [b"%d" % number for number in range(30)]
        delete_keys(masters)

    def test_starting_twice_leaves_the_first(self, masters):
        pids = [node.pid for node in masters.nodes]
        assert [node.pid for node in masters.start().nodes] == pids


class TestSlots:
    def test_move_key_by_key(self, masters, target):
        keys = fill(masters, 25)
        steps = []
        masters.move_slots([SLOT], target, on_step=steps.append)
        assert [step.name for step in steps] == ["importing", "migrating", "keys", "keys", "keys", "moved"]
        assert sorted(key for step in steps for key in step.keys) == keys
        assert masters.owner(SLOT) is target
        assert sorted(target.client.scan_iter()) == keys

    def test_stay_half_moved_until_the_next_step(self, masters, target):
        fill(masters, 20)
        source = masters.owner(SLOT)
        steps = masters.moving_slots([SLOT], target)
        moved = [next(steps).name for _ in range(3)]
        assert moved == ["importing", "migrating", "keys"]
        assert [len(list(node.client.scan_iter())) for node in (source, target)] == [10, 10]
        assert masters.owner(SLOT) is source
        with pytest.raises(StoreError, match=f"{SLOT} 127.0.0.1:{target.port}"):
            source.command("GET", f"{KEY}new")
        # As after a crash of whoever moves it: begun again, the move ends well.
        steps.close()
        masters.move_slots([SLOT], target)
        assert [len(list(node.client.scan_iter())) for node in (source, target)] == [0, 20]

    def test_that_are_half_moved_go_elsewhere_with_all_keys(self, masters, target):
        keys = fill(masters, 20)
        home = masters.owner(SLOT)
        third = next(node for node in masters.masters if node not in (home, target))
        for end in (third, home):
            steps = masters.moving_slots([SLOT], target)
            assert [next(steps).name for _ in range(3)] == ["importing", "migrating", "keys"]
            masters.move_slots([SLOT], end)
            assert masters.owner(SLOT) is end
            assert sorted(end.client.scan_iter()) == keys

    def test_go_back_at_once(self, masters, target):
        """A late claim of whoever had the slot in between is not believed."""
        home = masters.owner(SLOT)
        for _ in range(20):
            for end in (target, home):
                for _ in masters.moving_slots([SLOT], end):
                    pass
        masters.settle()
        assert masters.owner(SLOT) is home

    def test_have_an_owner_with_the_newest_configuration(self, masters, target):
        home = masters.owner(SLOT)
        assert target.command("CLUSTER", "BUMPEPOCH")
        await_owner(SLOT, home, masters.masters)
        for node in masters.nodes:
            newest = max(node.views(), key=lambda view: view.epoch)
            assert newest.id == home.id
            assert newest.owns(SLOT)

    def test_of_the_target_stay(self, masters, target):
        assert list(masters.moving_slots(masters.slots(target)[:3], target)) == []

    def test_move_atomically_where_the_server_has_that(self, masters, target):
        keys = fill(masters, 25)
        if masters.migrates_atomically:
            masters.migrate_slots([SLOT], target)
            assert masters.owner(SLOT) is target
            assert sorted(target.client.scan_iter()) == keys
        else:
            with pytest.raises(NotSupported, match="atomic"):
                masters.migrate_slots([SLOT], target)

    def test_are_joined_to_ranges(self):
        assert slot_ranges([5, 1, 2, 2, 3, 9]) == [range(1, 4), range(5, 6), range(9, 10)]
        assert slot_ranges([]) == []


class TestNodes:
    @pytest.mark.slow
    def test_come_back_with_their_data(self, masters):
        node = masters.owner("key")
        node.client.set("key", "value")
        pid, port = node.pid, node.port
        masters.kill(node)
        assert not alive(pid)
        assert node not in masters.running
        # The others still know whose it is.
        assert masters.owner("key") is node
        masters.start_node(node)
        masters.settle()
        assert node.port == port
        assert node.client.get("key") == b"value"
        delete_keys(masters)

    def test_are_suspended_and_go_on(self, masters):
        node = masters.nodes[1]
        node.suspend()
        assert node.pid is not None
        assert node not in masters.running
        node.resume()
        assert node in masters.running
        masters.settle()

    @pytest.mark.slow
    def test_are_added_and_removed(self, masters):
        fill(masters, 5)
        node = masters.add_node()
        assert node in masters.masters
        masters.move_slots([SLOT], node)
        assert masters.owner(SLOT) is node
        masters.remove_node(node)
        assert len(masters.nodes) == 3
        assert len(list(masters.owner(SLOT).client.scan_iter())) == 5
        delete_keys(masters)


class TestReplicas:
    pytestmark = pytest.mark.slow

    def test_have_the_data_of_their_masters(self, replicated):
        assert len(replicated.masters) == 3
        for master in replicated.masters:
            (replica,) = replicated.replicas(master)
            assert replica.client.info("replication")["master_port"] == master.port

    def test_become_masters_when_asked(self, replicated):
        master = replicated.owner("key")
        (replica,) = replicated.replicas(master)
        replicated.failover(replica)
        assert replicated.owner("key") is replica
        assert replicated.replicas(replica) == [master]

    def test_become_masters_when_theirs_dies(self, replicated):
        master = replicated.owner("key")
        (replica,) = replicated.replicas(master)
        replicated.kill(master)
        wait_until(lambda: replicated.owner("key") is replica, timeout=15)
        replicated.settle()
        replicated.start_node(master)
        replicated.settle()
        assert replicated.replicas(replica) == [master]

    def test_become_masters_when_theirs_is_suspended(self, replicated):
        master = replicated.owner("key")
        (replica,) = replicated.replicas(master)
        master.suspend()
        replicated.failover(replica, option="TAKEOVER")
        master.resume()
        replicated.settle()
        assert replicated.replicas(replica) == [master]

    def test_can_be_added(self, replicated):
        master = replicated.owner("key")
        node = replicated.add_node(master=master)
        assert node in replicated.replicas(master)
        replicated.remove_node(node)


def test_it_goes_without_a_trace():
    cluster = PrivateCluster(1, binary=BINARIES[0]).start()
    pids, folders = [node.pid for node in cluster.nodes], [node.server._folder for node in cluster.nodes]
    cluster.stop()
    cluster.stop()
    assert not any(alive(pid) for pid in pids)
    assert not any(folder.exists() for folder in folders)
    with pytest.raises(ConnectionLost):
        _ = cluster.url


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_with_its_process(end):
    code = (
        "import signal; from tests.cluster_rig.private_cluster import PrivateCluster\n"
        "cluster = PrivateCluster(2).start()\n"
        "print(*(str(x) for node in cluster.nodes for x in (node.pid, node.server._folder)), flush=True)\n"
        "signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as owner:
        words = owner.stdout.readline().split()
        pids, folders = [int(word) for word in words[::2]], [Path(word) for word in words[1::2]]
        assert all(alive(pid) for pid in pids)
        owner.send_signal(end)
    gone = "all nodes are gone"
    wait_until(lambda: not any(alive(pid) for pid in pids) and not any(f.exists() for f in folders), message=gone)


def test_it_says_who_does_not_agree(monkeypatch):
    monkeypatch.setattr("tests.cluster_rig.private_nodes.SETTLE_TIMEOUT", 0.0)
    monkeypatch.setattr(PrivateCluster.settle, "__kwdefaults__", {"timeout": 0.0})
    with pytest.raises(ConnectionLost, match=r"do not agree within 0 s: <PrivateNode \d+> fail, "):
        PrivateCluster(1, binary=BINARIES[0]).start()


def test_a_port_that_is_in_use_is_left_to_others(monkeypatch):
    # As if another process opened it just after it was found free.
    with PrivateCluster(1, binary=BINARIES[0]) as cluster:
        ports = iter([cluster.nodes[0].port, free_port()])
        monkeypatch.setattr(private_node, "free_port", lambda: next(ports))
        node = PrivateNode(binary=BINARIES[0], settings={})
        node.start()
        assert node.port != cluster.nodes[0].port
        node.stop()
        assert cluster.nodes[0].is_running


def test_the_shared_cluster_is_in_the_settings(cluster, settings):
    assert cluster.url == settings.MQ_DJANGO["CONNECTION"]
    assert len(cluster.masters) == 3
