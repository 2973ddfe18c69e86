"""A private cluster comes up complete, moves slots, and goes with its owner. Chaos uses its replicas and failovers."""

import pytest

from mq_django.errors import ConnectionLost, NotSupported, StoreError
from mq_django.transport.cluster import hash_slot
from tests.cluster_rig import private_node
from tests.cluster_rig.private_cluster import PrivateCluster
from tests.cluster_rig.private_node import PrivateNode, free_port
from tests.clusters import cluster_binary, delete_keys
from tests.processes import alive

BINARY = cluster_binary()
KEY = "{moved}"
SLOT = hash_slot(KEY)


@pytest.fixture(scope="module")
def masters():
    with PrivateCluster(binary=BINARY) as cluster:
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

    def test_move_atomically_where_the_server_has_that(self, masters, target):
        keys = fill(masters, 25)
        if masters.migrates_atomically:
            masters.migrate_slots([SLOT], target)
            assert masters.owner(SLOT) is target
            assert sorted(target.client.scan_iter()) == keys
        else:
            with pytest.raises(NotSupported, match="atomic"):
                masters.migrate_slots([SLOT], target)


def test_it_leaves_ports_that_are_in_use_to_others_and_goes_without_a_trace(monkeypatch):
    cluster = PrivateCluster(1, binary=BINARY).start()
    pids, folders = [node.pid for node in cluster.nodes], [node.server._folder for node in cluster.nodes]
    # As if another process opened it just after it was found free.
    ports = iter([cluster.nodes[0].port, free_port()])
    monkeypatch.setattr(private_node, "free_port", lambda: next(ports))
    node = PrivateNode(binary=BINARY, settings={})
    node.start()
    assert node.port != cluster.nodes[0].port
    node.stop()
    assert cluster.nodes[0].is_running
    cluster.stop()
    cluster.stop()
    assert not any(alive(pid) for pid in pids)
    assert not any(folder.exists() for folder in folders)
    with pytest.raises(ConnectionLost):
        _ = cluster.url
