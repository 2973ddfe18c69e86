"""16: workflows, while processes are killed, also at named points, stopped and misled, and queues are purged."""

import random
import time
from collections.abc import Callable, Iterator

import redis

from mq_django.conf import get_config
from mq_django.inspector.run_check import check_runs
from tests.chaos import flow_places, history
from tests.chaos.checker import Verdict
from tests.chaos.flow_checker import FlowEnding, check_flows
from tests.chaos.flow_operator import Operator
from tests.chaos.flows import plans
from tests.chaos.points import OF_FLOWS
from tests.chaos.settings import FLOW_QUEUE, FLOW_QUEUE_BESIDE, VISIBILITY_SECONDS
from tests.chaos.stage import DRAIN, Stage
from tests.chaos.trees import Tree
from tests.purging import purge
from tests.waiting import becomes_true, wait_until

#: Runs in the CI tier, and in each round of the nightly one.
RUNS, MORE_RUNS = 300, 800
#: Runs that are started a second.
RATE = 18.0
#: Points of all consumers that matter to steps, too.
OF_STEPS = ("started", "effect", "ended", "unsent", "sent", "settled")
#: Messages that one purge deletes at most.
PURGED = 8
#: Seconds in which a process gets to a point.
REACHED = 6.0


def play(stage: Stage, rounds: int) -> Verdict:
    """Start runs, do all faults in turn until the last one is started, and judge when all have ended."""
    count = RUNS if rounds == 1 else MORE_RUNS * rounds
    made = list(plans(random.Random(stage.rng.random()), count))
    operator = Operator(
        stage.history, stage.folder, random.Random(stage.rng.random()), made, RATE, client=lambda: stage.client
    )
    operator.start()
    faults = _deck(stage)
    while operator.is_starting:
        stage.pause(0.05, 0.25)
        next(faults)()
        stage.renew_killed()
    return _finish(stage, operator)


def _deck(stage: Stage) -> Iterator[Callable[[], None]]:
    """Yield faults: each kind once, in an order of its own each time."""
    points = [_at(stage, point) for point in (*OF_FLOWS, *OF_STEPS)]
    while True:
        others = [_kill, _kill, _kill_tree, _stop, _stop_tree, _lose_replies, _lose_replies, _go_dead]
        others += [_purge, _purge, _delete, _delete, _kill_redis]
        every = [*points, *(_with(stage, fault) for fault in others)]
        yield from stage.rng.sample(every, len(every))


def _with(stage: Stage, fault: Callable[[Stage], None]) -> Callable[[], None]:
    return lambda: fault(stage)


def _at(stage: Stage, point: str) -> Callable[[], None]:
    def strike() -> None:
        stage.end_at(point, within=REACHED)
        # Its supervisor may be who ended.
        becomes_true(lambda: any(tree.gave_up is not None for tree in stage.trees), within=0.2)

    return strike


def _trees(stage: Stage) -> list[Tree]:
    return [tree for tree in stage.trees if tree.gave_up is None]


def _child(stage: Stage) -> int:
    def found() -> list[int]:
        return sorted({pid for tree in _trees(stage) for pid in tree.children()} & set(stage.living().values()))

    return stage.rng.choice(wait_until(found, timeout=60, message="a consumer works"))


def _kill(stage: Stage) -> None:
    stage.kill(_child(stage))


def _kill_tree(stage: Stage) -> None:
    stage.kill_tree(stage.rng.choice(_trees(stage)))


def _stop(stage: Stage) -> None:
    stage.suspend("stop", [_child(stage)], stage.rng.uniform(0.2, 1.2), spares=True)


def _stop_tree(stage: Stage) -> None:
    stage.suspend("stop-tree", stage.rng.choice(_trees(stage)).pids(), VISIBILITY_SECONDS * 1.4)


def _lose_replies(stage: Stage) -> None:
    road = stage.road
    assert road is not None
    name = stage.strike("lost-reply", lambda: road.lose_replies(4), pids=stage.pids())
    wait_until(lambda: not road.losing, timeout=15)
    stage.heal(name)


def _go_dead(stage: Stage) -> None:
    road = stage.road
    assert road is not None
    name = stage.strike("half-open", lambda: setattr(road, "dead", True), pids=stage.pids())
    stage.pause(0.5, 1.5)
    road.revive()
    stage.heal(name)


def _kill_redis(stage: Stage) -> None:
    stage.kill_redis(0.1, 0.5)


def _purge(stage: Stage) -> None:
    """Delete some messages of a queue, and note their ids."""
    config = get_config().queue(stage.rng.choice((FLOW_QUEUE, FLOW_QUEUE_BESIDE)))
    stage.history.note("purged", ids=purge(config, limit=PURGED))


def _delete(stage: Stage) -> None:
    """Acknowledge and delete a message as another program would: nothing tells its run."""
    keys = get_config().queue(stage.rng.choice((FLOW_QUEUE, FLOW_QUEUE_BESIDE))).keys
    with stage.client as client:
        for entry, fields in client.xrange(keys.ready, count=1):
            # Noted before, because the operator may be faster.
            stage.history.note("deleted", ids=[fields[b"id"].decode()])
            client.xack(keys.ready, keys.group, entry)
            client.xdel(keys.ready, entry)


def _finish(stage: Stage, operator: Operator) -> Verdict:
    """Wait until all runs have ended and nothing is left of them, stop everything, and judge."""
    within = DRAIN + len(operator.plans) / 50
    began = time.monotonic()
    is_ended = becomes_true(lambda: _is_done(stage, operator), within=within)
    with stage.client as client:
        becomes_true(lambda: _is_idle(client), within=DRAIN / 3)
    operator.stop()
    check = check_runs(seconds=20.0, old_ms=0)
    problems = [f"{problem.kind} {problem.message_id or problem.run}" for problem in check.problems]
    ending = stage.come_to_rest()
    with stage.client as client:
        rest = flow_places.look(client, problems)
    ended = FlowEnding(rest=rest, is_ended=is_ended, seconds=time.monotonic() - began, given_up=ending.given_up)
    return check_flows(history.read(stage.folder), ended)


def _is_done(stage: Stage, operator: Operator) -> bool:
    stage.renew_killed()
    return operator.is_done()


def _is_idle(client: redis.Redis) -> bool:
    rest = flow_places.look(client)
    return not (rest.starts or rest.busy or rest.notes or rest.queued)
