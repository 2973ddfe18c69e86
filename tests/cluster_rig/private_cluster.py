"""A Redis Cluster for tests."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from types import TracebackType
from typing import Self

from mq_django.errors import ConnectionLost
from mq_django.transport.private_server import ServerBinary
from tests.cluster_rig import slot_moves
from tests.cluster_rig.private_node import PrivateNode
from tests.cluster_rig.private_nodes import SETTLE_TIMEOUT, SLOTS, PrivateNodes, await_agreement, myself

#: Arguments of one CLUSTER ADDSLOTS.
_SLOTS_AT_ONCE = 1000


class PrivateCluster(PrivateNodes):
    """A Redis Cluster for this process. It ends with the process, even if that is killed.

    Its nodes listen on free loopback ports, and append what they write to files in temporary folders, which `stop()`
    deletes.

    Args:
        masters: the number of masters. Each gets an equal range of slots.
        replicas: the number of replicas of each master.
        binary: the server program; without it the first on PATH.
        settings: settings of redis.conf, for all nodes.
        node_timeout: seconds of silence until a node is taken for dead.
    """

    def __init__(
        self,
        masters: int = 3,
        replicas: int = 0,
        *,
        binary: ServerBinary | None = None,
        settings: Mapping[str, str] | None = None,
        node_timeout: float = 2.0,
    ) -> None:
        super().__init__()
        self.binary = binary
        self.settings = {
            "cluster-node-timeout": str(round(node_timeout * 1000)),
            # A replica need not wait for others that might ask for the same data.
            "repl-diskless-sync-delay": "0",
            **(settings or {}),
        }
        self._numbers = (masters, replicas)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The URL of the cluster, with the nodes that were its masters when it was started."""
        if not self.nodes:
            raise ConnectionLost("The private cluster has not been started.")
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes[: self._numbers[0]])

    def start(self) -> Self:
        """Start the cluster if it does not run, and wait until all nodes agree that it is complete.

        Raises NoServer when there is no program to start, ConnectionLost when the cluster is not complete in time.
        """
        if self.nodes:
            return self
        masters, replicas = self._numbers
        try:
            for _ in range(masters * (1 + replicas)):
                self._new_node()
            self._form(self.nodes[:masters], self.nodes[masters:])
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop all nodes, and delete their data. May be called twice."""
        for node in self.nodes:
            # Nobody needs the data, and a replica's stop would wait for its master.
            node.kill()
            node.stop()
        self.nodes = []

    def add_node(self, *, master: PrivateNode | None = None) -> PrivateNode:
        """Start another node, a master without slots or the replica of a master, and wait until all know it.

        Args:
            master: the node of which it becomes a replica.

        Raises:
            ConnectionLost: it does not start, or they do not know it in time.
        """
        others = self.running
        node = self._new_node()
        for one in others:
            one.command("CLUSTER", "MEET", "127.0.0.1", node.port)
        self.introduce()
        if master is not None:
            node.command("CLUSTER", "REPLICATE", master.id)
        self.settle()
        return node

    def remove_node(self, node: PrivateNode) -> None:
        """Move a node's slots to the other masters in turn, stop it, and let the others forget it.

        Raises StoreError when a node refuses.
        """
        targets = [one for one in self.masters if one is not node]
        if node.is_running:
            slots = self.slots(node)
            for number, target in enumerate(targets):
                self.move_slots(slots[number :: len(targets)], target)
        self.nodes.remove(node)
        node.kill()
        node.stop()
        for one in self.running:
            one.command("CLUSTER", "FORGET", node.id)
        self.settle()

    def failover(self, replica: PrivateNode, *, option: str = "") -> None:
        """Make a replica the master, and wait until all agree.

        Args:
            replica: a running replica.
            option: "FORCE" if the master does not run, "TAKEOVER" if most masters do not run. Without one the replica
                first gets all that the master has written.

        Raises:
            ConnectionLost: it did not become the master in time.
            StoreError: the replica refuses.
        """
        replica.command("CLUSTER", "FAILOVER", *([option] if option else []))
        await_agreement(lambda: myself(replica).is_master, SETTLE_TIMEOUT, self.description)
        self.settle()

    def moving_slots(
        self, slots: Iterable[int], target: PrivateNode, *, keys_at_once: int = slot_moves.KEYS_AT_ONCE
    ) -> Iterator[slot_moves.MoveStep]:
        """Move slots key by key, and yield after each step, so that a test can act, or stop, in between.

        A slot that an earlier move has left half moved first goes to where that move would have taken it.

        Args:
            slots: slots of any other masters.
            target: the master that gets them.
            keys_at_once: keys in one MIGRATE, between two steps.

        Raises:
            ConnectionLost: a node does not reply, or the masters do not agree in time.
            StoreError: a node refuses.
        """
        masters = self.masters
        for slot in slots:
            # Keys that have moved are lost to all if the slot stays where it was.
            begun = [node for node in masters if slot in myself(node).importing and node is not target]
            for end in (*begun, target):
                source = self.owner(slot)
                if source is not end:
                    yield from slot_moves.moving(slot, source, end, masters, keys_at_once=keys_at_once)

    def move_slots(self, slots: Iterable[int], target: PrivateNode) -> None:
        """Move slots key by key, and wait until all agree.

        Args:
            slots: slots of any other masters.
            target: the master that gets them.

        Raises:
            ConnectionLost: a node does not reply.
            StoreError: a node refuses.
        """
        for _ in self.moving_slots(slots, target):
            pass
        self.settle()

    @property
    def migrates_atomically(self) -> bool:
        """Whether the servers can move slots atomically."""
        return slot_moves.migrates_atomically(self.running[0])

    def migrate_slots(self, slots: Iterable[int], target: PrivateNode) -> None:
        """Move slots atomically, and wait until all agree.

        Args:
            slots: slots of one or more other masters.
            target: the master that gets them.

        Raises:
            NotSupported: the server has no atomic moves.
            ConnectionLost: a move failed, or took too long.
        """
        asked = set(slots)
        for source in self.masters:
            found = asked.intersection(self.slots(source))
            if found and source is not target:
                slot_moves.migrate(found, source, target)
        self.settle()

    def _new_node(self) -> PrivateNode:
        node = PrivateNode(binary=self.binary, settings=self.settings)
        self.nodes.append(node)
        node.start()
        return node

    def _form(self, masters: list[PrivateNode], replicas: list[PrivateNode]) -> None:
        for number, node in enumerate(masters):
            # Else the nodes would have to agree first on whose configuration is newer.
            node.command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            slots = range(number * SLOTS // len(masters), (number + 1) * SLOTS // len(masters))
            for start in range(slots.start, slots.stop, _SLOTS_AT_ONCE):
                node.command("CLUSTER", "ADDSLOTS", *slots[start - slots.start :][:_SLOTS_AT_ONCE])
        for one, other in combinations(self.nodes, 2):
            one.command("CLUSTER", "MEET", "127.0.0.1", other.port)
        self.introduce()
        for number, node in enumerate(replicas):
            node.command("CLUSTER", "REPLICATE", masters[number % len(masters)].id)
        self.settle()
