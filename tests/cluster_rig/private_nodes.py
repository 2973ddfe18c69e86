"""The nodes of a Redis Cluster for tests, and what they agree on."""

import time
from collections.abc import Callable, Iterable, Iterator

from mq_django.errors import ConnectionLost, StoreError
from mq_django.transport.cluster_topology import hash_slot
from tests.cluster_rig.private_node import NodeView, PrivateNode

#: The number of hash slots of each Redis Cluster.
SLOTS = 16_384

#: Seconds until all nodes must agree. It takes two: a master accepts nothing for that long after its start.
SETTLE_TIMEOUT = 30.0


class PrivateNodes:
    """Nodes that know each other."""

    def __init__(self) -> None:
        #: All nodes: first the masters in the order of their slots, then the replicas, then those that were added.
        self.nodes: list[PrivateNode] = []

    @property
    def running(self) -> list[PrivateNode]:
        """The nodes whose processes run, and are not suspended."""
        return [node for node in self.nodes if node.is_running]

    @property
    def masters(self) -> list[PrivateNode]:
        """The running nodes that are masters by their own account, also those without slots."""
        return [node for node in self.running if myself(node).is_master]

    def owner(self, key: str | bytes | int) -> PrivateNode:
        """Return the master of a key, or of a slot.

        Raises ConnectionLost when no running node knows it.
        """
        slot = key if isinstance(key, int) else hash_slot(key)
        claims = [view for views in self._views() for view in views if view.is_master and view.owns(slot)]
        newest = max(claims, key=lambda view: view.epoch, default=None)
        node = next((node for node in self.nodes if newest and node.id == newest.id), None)
        if node is None:
            raise ConnectionLost(f"No node of the private cluster has slot {slot}.")
        return node

    def slots(self, node: PrivateNode) -> list[int]:
        """Return the slots of a running node by its own account.

        Raises ConnectionLost when it does not reply.
        """
        return [slot for span in myself(node).slots for slot in span]

    def replicas(self, node: PrivateNode) -> list[PrivateNode]:
        """Return the running replicas of a node, by their own account."""
        return [one for one in self.running if myself(one).master_id == node.id]

    def settle(self, *, timeout: float = SETTLE_TIMEOUT) -> None:
        """Wait until all slots have an owner, all running nodes agree on that, and replicas have their master's data.

        Args:
            timeout: in seconds.

        Raises:
            ConnectionLost: they do not agree in time.
        """
        await_agreement(self._is_settled, timeout, self.description)

    def introduce(self) -> None:
        """Wait until all running nodes know each other.

        Raises ConnectionLost when they do not in time.
        """
        ids = {node.id for node in self.nodes}

        def known() -> bool:
            return all({view.id for view in node.views() if view.is_settled} >= ids for node in self.running)

        await_agreement(known, SETTLE_TIMEOUT, self.description)

    def _views(self) -> Iterator[list[NodeView]]:
        """Yield what each running node says; one that does not reply is left out."""
        for node in self.running:
            try:
                yield node.views()
            except StoreError:
                continue

    def _is_settled(self) -> bool:
        running = {node.id for node in self.running}
        maps = set()
        for node in self.running:
            facts, views = node.facts(), node.views()
            known = {view.id for view in views if view.is_settled}
            if facts["cluster_state"] != "ok" or facts["cluster_slots_ok"] != str(SLOTS) or not known >= running:
                return False
            if "slave" in _role(views).flags and node.client.info("replication")["master_link_status"] != "up":
                return False
            about = [(view.id, view.slots, view.master_id, view.epoch) for view in views if view.id in running]
            maps.add(frozenset(about))
        return len(maps) == 1

    def description(self) -> str:
        """Return what each node says about the cluster, for error messages."""
        return description(self.nodes)


def myself(node: PrivateNode) -> NodeView:
    """Return what a node says about itself.

    Raises ConnectionLost when it does not reply.
    """
    return _role(node.views())


def _role(views: list[NodeView]) -> NodeView:
    return next(view for view in views if "myself" in view.flags)


def description(nodes: Iterable[PrivateNode]) -> str:
    """Return what each of some nodes says about the cluster, for error messages."""
    return " | ".join(f"{node!r} {_description(node)}" for node in nodes)


def _description(node: PrivateNode) -> str:
    if not node.is_running:
        return "does not run"
    try:
        facts, views = node.facts(), node.views()
    except StoreError as error:
        return str(error)
    about = ", ".join(f"{view.port} {'/'.join(sorted(view.flags))} @{view.epoch} {_bounds(view)}" for view in views)
    return f"{facts['cluster_state']}, {facts['cluster_slots_ok']} slots; knows {about}"


def _bounds(view: NodeView) -> str:
    return " ".join(f"{span.start}-{span.stop - 1}" for span in view.slots)


def await_agreement(condition: Callable[[], bool], timeout: float, description: Callable[[], str]) -> None:
    """Wait until a condition is true.

    Args:
        condition: looked at a hundred times a second.
        timeout: in seconds.
        description: what to say when it is over.

    Raises:
        ConnectionLost: the condition is not true in time.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise ConnectionLost(f"The nodes of the private cluster do not agree within {timeout:g} s: {description()}")
        time.sleep(0.01)
