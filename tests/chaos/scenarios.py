"""The faults that people meet, one scenario a kind."""

import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

from redis.exceptions import ResponseError

from mq_django.transport.private_server import ServerBinary
from tests.chaos import (
    cluster_faults,
    failovers,
    flow_faults,
    hostile,
    in_order,
    neighbours,
    partners,
    streams,
    transactions,
)
from tests.chaos.checker import Verdict
from tests.chaos.cluster_stage import ClusterStage, ReplicatedStage
from tests.chaos.points import OF_CONSUMERS, OF_SUPERVISORS, arm
from tests.chaos.settings import (
    CLUSTER,
    FLOWS,
    IN_ORDER,
    NEIGHBOURS,
    PARTNER,
    STORE,
    STORES,
    STREAMS,
    VISIBILITY_SECONDS,
)
from tests.chaos.shortages import clock_steps, disk_fills_up, memory_runs_out, temporary_folder_fills_up
from tests.chaos.stage import Stage
from tests.chaos.surroundings import (
    Surroundings,
    hidden_processes,
    plain,
    small_disk,
    small_temporary_folder,
    stepping_clock,
    turned_on,
)
from tests.chaos.transaction_stage import TransactionStage
from tests.chaos.trees import Tree, send
from tests.databases.database_servers import KINDS
from tests.waiting import becomes_true, wait_until


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One kind of faults, done to a run again and again."""

    name: str
    #: Does so many rounds of its faults, and may judge what came of them.
    play: Callable[[Stage, int], Verdict | None]
    #: Rounds in the CI tier.
    rounds: int
    #: Messages a second, and milliseconds of work of each on average.
    rate: float = 320.0
    ms: float = 20.0
    #: Messages are published meanwhile.
    publishes: bool = True
    #: Lines of redis.conf.
    settings: Mapping[str, str] = field(default_factory=dict)
    #: Producers and consumers reach Redis over a bad road.
    road: bool = False
    trees: int = 2
    #: The CI tier plays it.
    is_in_ci: bool = True
    #: What the messages lie in.
    stores: Sequence[str] = ("stream",)
    #: What happens before the first message.
    before: Callable[[Stage], None] | None = None
    #: Sets up what the server needs, and says in words why it cannot.
    around: Callable[[ServerBinary], AbstractContextManager[Surroundings]] = plain
    #: What it acts on.
    stage: type[Stage] = Stage


def _tree(stage: Stage) -> Tree:
    """Return a tree whose consumers all work."""

    def found() -> Tree | None:
        trees = stage.rng.sample(stage.trees, len(stage.trees))
        return next((tree for tree in trees if len(stage.at_work(tree)) > 1), None)

    tree = wait_until(found, timeout=60, message="a tree works")
    assert tree is not None
    return tree


def kills(stage: Stage, rounds: int) -> None:
    """1: kill -9 of consumers, and now and then of a whole tree, or of what consumers are forked from."""
    for number in range(rounds):
        stage.pause(0.1, 0.5)
        if number % 6 == 2:
            for template in [pid for tree in stage.trees for pid in tree.templates()]:
                stage.kill(template)
        if number % 6 == 5:
            stage.kill_tree(_tree(stage))
        else:
            stage.kill(stage.working())


def named_points(stage: Stage, rounds: int) -> None:
    """1: kill -9 at named points: a process ends itself there, the first that comes by."""
    for _ in range(rounds):
        every = [*OF_CONSUMERS, *(point for point in OF_SUPERVISORS if STORE != "rsmq" or point != "promoting")]
        for point in stage.rng.sample(every, len(every)):
            # Else it would show how long processes take to start, of which each point costs one or three.
            wait_until(lambda: all(len(stage.at_work(tree)) > 1 for tree in stage.trees), timeout=60)
            stage.pause(0.05, 0.2)
            armed = arm(stage.folder, point)
            wait_until(lambda: _provoked(stage, point, armed), timeout=60, message=f"a process gets to {point}")  # noqa: B023
            if point in OF_SUPERVISORS:
                stage.renew(_ended(stage))


def _provoked(stage: Stage, point: str, armed: Path) -> bool:
    """See to it that a process gets to a point, and tell whether one has."""
    if point in ("handing-back", "reclaiming"):
        # More than is begun at once, so that there is something to give back.
        stage.producer.publish("job", 400, ms=40)
    if point == "handing-back":
        send([stage.working()], signal.SIGTERM)
    if point == "reclaiming":
        stage.kill(stage.working())
    return becomes_true(lambda: not armed.exists(), within=3)


def _ended(stage: Stage) -> Tree:
    """Return the tree whose supervisor has ended, as it should this time."""
    tree = wait_until(lambda: next((tree for tree in stage.trees if tree.gave_up is not None), None), timeout=10)
    assert tree is not None
    tree.ended = True
    return tree


def stops(stage: Stage, rounds: int) -> None:
    """2: SIGSTOP of consumers, which must cost nothing, and of whole trees for longer than the visibility timeout."""
    for number in range(rounds):
        stage.pause(0.1, 0.4)
        if number % 4 == 3:
            stage.suspend("stop-tree", _tree(stage).pids(), VISIBILITY_SECONDS * stage.rng.uniform(1.3, 2))
        else:
            stage.suspend("stop", [stage.working()], stage.rng.uniform(0.2, 1.2), spares=True)


def server_kills(stage: Stage, rounds: int) -> None:
    """3: kill -9 of Redis, and a new start on the same data."""
    for _ in range(rounds):
        stage.pause(0.8, 1.5)
        stage.kill_redis(0.1, 0.8)


def server_stops(stage: Stage, rounds: int) -> None:
    """4: SIGSTOP of Redis."""
    for _ in range(rounds):
        stage.pause(0.5, 1.0)
        stage.stop_redis(stage.rng.uniform(0.5, VISIBILITY_SECONDS * 1.4))


def bad_roads(stage: Stage, rounds: int) -> None:
    """5: replies that are lost after the command ran, a half-open connection, latency, a trickle."""
    road = stage.road
    assert road is not None
    for number in range(rounds):
        stage.pause(0.05, 0.3)
        match number % 8:
            case 5:
                name = stage.strike("half-open", lambda: setattr(road, "dead", True), pids=stage.pids())
                stage.pause(0.5, 2.5)
            case 6:
                name = stage.strike("latency", lambda: setattr(road, "latency", 0.2), pids=stage.pids())
                stage.pause(0.5, 1.0)
            case 7:
                name = stage.strike("trickle", lambda: setattr(road, "trickles", True), pids=stage.pids())
                stage.pause(0.5, 1.0)
            case _:
                name = stage.strike("lost-reply", lambda: road.lose_replies(3), pids=stage.pids())
                wait_until(lambda: not road.losing, timeout=15)
        road.revive()
        stage.heal(name)


def hidden(stage: Stage, rounds: int) -> None:
    """Supervisors that cannot see each other's processes work side by side for many heartbeats, while consumers die."""
    for _ in range(rounds):
        stage.pause(VISIBILITY_SECONDS * 0.5, VISIBILITY_SECONDS * 0.7)
        stage.kill(stage.working())


def slow_scripts(stage: Stage, rounds: int) -> None:
    """12: a script that keeps Redis busy, so that it answers BUSY to everybody else, until it is killed."""
    for _ in range(rounds):
        stage.pause(0.3, 0.8)
        name = stage.strike("busy", lambda: Thread(target=_endless, args=(stage,)).start(), pids=stage.pids())
        stage.pause(0.7, 3.0)
        with stage.client as client:
            client.script_kill()
        stage.heal(name)


def _endless(stage: Stage) -> None:
    with stage.client as client, suppress(ResponseError):
        client.eval("while true do end", 0)


def poison(stage: Stage, rounds: int) -> None:
    """13: handlers that raise, exit, die, run out of memory, or never end."""
    for _ in range(rounds):
        for kind in ("raise", "memory", "exit", "die", "loop", "hold"):
            stage.producer.publish(kind, 1)
            stage.pause(0.1, 0.3)
        stage.pause(0.5, 1.0)


def unruly(stage: Stage, rounds: int) -> None:
    """15: handlers that leave transactions open, or end the event loop, beside others that rely on both."""
    for _ in range(rounds):
        for kind in ("open", "stop-loop", "autocommit", "exit-loop"):
            stage.producer.publish(kind, 2)
            stage.producer.publish("book", 40)
            stage.producer.publish("wait", 40, ms=30)
            stage.pause(0.1, 0.3)
    stage.pause(0.5, 1.0)


def mixed(stage: Stage, rounds: int) -> None:
    """1 to 3 and 13, some of each: what the CI tier has time for on the stores beside the default one."""
    for _ in range(rounds):
        poison(stage, 1)
        kills(stage, 6)
        stops(stage, 4)
        server_kills(stage, 1)


SCENARIOS = [
    Scenario(name="kills", play=kills, rounds=8, stores=STORES),
    Scenario(name="points", play=named_points, rounds=1, stores=STORES),
    Scenario(name="stops", play=stops, rounds=7, rate=250.0, ms=70.0, stores=STORES),
    Scenario(name="redis-kills", play=server_kills, rounds=3, stores=STORES),
    Scenario(name="redis-stops", play=server_stops, rounds=2, stores=STORES),
    Scenario(name="bad-roads", play=bad_roads, rounds=18, road=True, stores=STORES),
    Scenario(name="sentinel-failover", play=failovers.play, rounds=2, around=failovers.around, stores=STORES),
    Scenario(name="clock", play=clock_steps, rounds=4, around=stepping_clock),
    Scenario(name="memory", play=memory_runs_out, rounds=1),
    Scenario(name="disk", play=disk_fills_up, rounds=1, around=small_disk),
    Scenario(name="temporary", play=temporary_folder_fills_up, rounds=1, around=small_temporary_folder),
    Scenario(name="hidden", play=hidden, rounds=3, rate=160.0, around=hidden_processes),
    Scenario(name="busy", play=slow_scripts, rounds=2, settings={"lua-time-limit": "300"}),
    Scenario(name="poison", play=poison, rounds=1, rate=200.0, stores=STORES),
    Scenario(name="unruly", play=unruly, rounds=3, rate=100.0, stores=STORES),
    Scenario(name="mixed", play=mixed, rounds=1, rate=160.0, ms=30.0, stores=STORES[1:]),
    Scenario(name="hostile", play=hostile.play, rounds=4, before=hostile.prepare),
    Scenario(name="neighbours", play=neighbours.play, rounds=2, around=turned_on(NEIGHBOURS)),
    Scenario(name="workflows", play=flow_faults.play, rounds=1, road=True, publishes=False, around=turned_on(FLOWS)),
    *(
        Scenario(
            name=f"outbox-{kind}",
            play=transactions.play,
            rounds=1,
            publishes=False,
            around=transactions.around(kind),
            stage=TransactionStage,
            is_in_ci=kind == transactions.kind_of_ci(),
        )
        for kind in KINDS
    ),
    Scenario(name="ordered", play=in_order.play, rounds=1, publishes=False, around=turned_on(IN_ORDER)),
    Scenario(
        name="partner-away",
        play=partners.play,
        rounds=1,
        rate=60.0,
        around=turned_on(PARTNER),
        stage=partners.PartnerStage,
    ),
    Scenario(
        name="streams",
        play=streams.play,
        rounds=1,
        publishes=False,
        stores=STORES,
        around=turned_on(STREAMS),
        stage=streams.StreamStage,
    ),
    Scenario(
        name="cluster-kills",
        play=cluster_faults.kills,
        rounds=1,
        rate=240.0,
        around=turned_on(CLUSTER),
        stage=ReplicatedStage,
    ),
    Scenario(
        name="cluster-reshard",
        play=cluster_faults.reshard,
        rounds=1,
        rate=240.0,
        around=turned_on(CLUSTER),
        stage=ClusterStage,
    ),
]
