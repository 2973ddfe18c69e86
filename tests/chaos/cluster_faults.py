"""18: a Redis Cluster whose nodes die, freeze, stay away, come and go, and hand their slots on."""

from collections.abc import Callable

from tests.chaos.cluster_stage import ClusterStage
from tests.chaos.settings import SPREAD
from tests.chaos.stage import Stage
from tests.cluster_rig.private_node import PrivateNode
from tests.waiting import wait_until

#: Seconds that a node without a replica is away.
AWAY = 3.0, 5.0
#: Seconds of a slot that is half moved, in steps.
STEP = 0.05, 0.25
#: Seconds for which a move stands still, as if who moves the slot had died, and goes on by hand.
INTERRUPTED = 5.0, 7.0
#: Keys that are moved in one step.
KEYS_AT_ONCE = 4


def kills(stage: Stage, rounds: int) -> None:
    """Kill a master, stop another for too long, and let one without a replica be away, again and again."""
    assert isinstance(stage, ClusterStage)
    _await_work(stage)
    for number in range(rounds):
        one, other = stage.rng.sample(_with_replica(stage), 2)
        stage.pause(0.4, 0.8)
        _kill(stage, one)
        stage.pause(0.4, 0.8)
        _suspend(stage, other)
        stage.pause(0.4, 0.8)
        _be_away(stage, _alone(stage), joins=number % 2 == 1)
    stage.pause(0.5, 1.0)
    stage.joined()


def _await_work(stage: Stage) -> None:
    """Wait until all consumers work: new processes take seconds, in which nobody handles what waits."""
    wait_until(lambda: all(len(stage.at_work(tree)) > 1 for tree in stage.trees), timeout=60, message="all work")


def _with_replica(stage: ClusterStage) -> list[PrivateNode]:
    return [node for node in stage.cluster.masters if stage.cluster.replicas(node)]


def _alone(stage: ClusterStage) -> PrivateNode:
    (found,) = (node for node in stage.cluster.masters if not stage.cluster.replicas(node))
    return found


def _kill(stage: ClusterStage, node: PrivateNode) -> None:
    _fail_over(stage, "kill-master", node, node.kill)
    node.start()
    stage.cluster.settle()


def _suspend(stage: ClusterStage, node: PrivateNode) -> None:
    _fail_over(stage, "stop-master", node, node.suspend)
    node.resume()
    stage.cluster.settle()


def _fail_over(stage: ClusterStage, kind: str, node: PrivateNode, hit: Callable[[], None]) -> None:
    queues = stage.queues_on(node)
    name = stage.strike_node(kind, queues, hit, loses=True)
    slot = stage.slot(queues[0])
    wait_until(lambda: stage.has_new_master(slot, node), timeout=20, message="a replica becomes the master")
    stage.heal(name)
    stage.pause(0.3, 0.8)


def _be_away(stage: ClusterStage, node: PrivateNode, *, joins: bool) -> None:
    """Let a node be away for a while; `joins`: meanwhile a tree starts, which must handle the queues on other nodes."""
    name = stage.strike_node("away", stage.queues_on(node), node.kill)
    if joins:
        stage.join()
        guest = stage.trees[-1]
        wait_until(lambda: stage.at_work(guest), timeout=60, message="a new consumer works while a node is away")
    else:
        stage.pause(*AWAY)
    node.start()
    stage.cluster.settle()
    stage.heal(name)
    if joins:
        stage.leave(guest)


def reshard(stage: Stage, rounds: int) -> None:
    """Move the slots of all queues to other masters and back, also to a node that is added and removed again."""
    assert isinstance(stage, ClusterStage)
    _await_work(stage)
    for number in range(rounds):
        interrupted = stage.rng.choice(SPREAD) if number else None
        for queue in stage.rng.sample(SPREAD, len(SPREAD)):
            home = stage.cluster.owner(stage.slot(queue))
            target = stage.rng.choice([node for node in stage.cluster.masters if node is not home])
            _move_slowly(stage, queue, target, is_interrupted=queue == interrupted)
            _move_at_once(stage, queue, home)
        _add_and_remove(stage)
    stage.pause(0.5, 1.0)


def _move_slowly(stage: ClusterStage, queue: str, target: PrivateNode, *, is_interrupted: bool = False) -> None:
    """Move the slot of a queue in steps, between which it is half moved."""

    def move() -> None:
        steps = stage.cluster.moving_slots([stage.slot(queue)], target, keys_at_once=KEYS_AT_ONCE)
        for number, _step in enumerate(steps):
            # After the third some keys are here, and some there.
            stage.pause(*(INTERRUPTED if is_interrupted and number == 2 else STEP))
        stage.cluster.settle()

    stage.heal(stage.strike_node("move", [queue], move, spares=True))


def _move_at_once(stage: ClusterStage, queue: str, target: PrivateNode) -> None:
    slots, cluster = [stage.slot(queue)], stage.cluster
    if cluster.migrates_atomically:
        name = stage.strike_node("migrate", [queue], lambda: cluster.migrate_slots(slots, target), spares=True)
    else:
        name = stage.strike_node("move", [queue], lambda: cluster.move_slots(slots, target), spares=True)
    stage.heal(name)


def _add_and_remove(stage: ClusterStage) -> None:
    """Add a node, move the slots of some queues to it, and remove it, which moves them to other nodes."""
    node = stage.cluster.add_node()
    queues = stage.rng.sample(SPREAD, 3)
    for queue in queues:
        _move_slowly(stage, queue, node)
    stage.pause(0.2, 0.5)
    stage.heal(stage.strike_node("remove", queues, lambda: stage.cluster.remove_node(node), spares=True))
