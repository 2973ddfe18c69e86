"""A Sentinel makes a replica the master, again and again, while producers and consumers work."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mq_django.transport.private_server import ServerBinary
from tests.chaos.lost_tails import TAIL
from tests.chaos.stage import Stage
from tests.chaos.surroundings import Surroundings
from tests.chaos.trees import send
from tests.sentinel_rig import MASTER, client_of
from tests.waiting import wait_until

#: Seconds from the promotion after which nobody waits for an answer of the old master. Who connected to it just before
#: waits longest: a consumer, with the time of a blocking read. What the old master then does for it is lost.
ALL_GAVE_UP = 9.0
#: Seconds before its death in which a master that copies too little copies nothing.
CUT = 0.4


@contextmanager
def around(_: ServerBinary) -> Iterator[Surroundings]:
    """Give the server a replica and a Sentinel, by whose word producers and consumers find the master."""
    yield Surroundings(sentinel=True)


def play(stage: Stage, rounds: int) -> None:
    """Kill a master that has not copied its last moment, freeze the next one, and kill one that copies well."""
    for number in range(rounds):
        stage.pause(0.5, 1.0)
        match number % 3:
            case 0:
                _fail_over(stage, "failover-behind", _kill_behind, TAIL - CUT)
                _comes_back(stage)
            case 1:
                promoted = _fail_over(stage, "failover-freeze", _freeze, TAIL)
                _thaws(stage, promoted, is_last=number + 1 == rounds)
            case _:
                _fail_over(stage, "failover-kill", _kill, TAIL)
                _comes_back(stage)


def _fail_over(stage: Stage, kind: str, hit: Callable[[Stage], None], tail: float) -> float:
    """End a master, wait until publishes go on, and return when the Sentinel had another one."""
    pair, sentinel, before = stage.pair, stage.sentinel, stage.producer.published
    assert pair is not None
    assert sentinel is not None
    loses_from = time.monotonic() - tail
    name = stage.strike(kind, lambda: hit(stage), pids=stage.pids(), loses_from=loses_from)
    wait_until(lambda: sentinel.master_port() == pair.replica.port, timeout=60, message="the Sentinel has a new master")
    promoted = time.monotonic()
    stage.heal(name)
    pair.swap()
    stage.server = pair.master
    wait_until(lambda: stage.producer.published > before + 200, timeout=60, message="publishes go on")
    return promoted


def _kill(stage: Stage) -> None:
    stage.server.kill()


def _kill_behind(stage: Stage) -> None:
    """Let the replica have nothing of the last moment of its master."""
    assert stage.pair is not None
    replica = stage.pair.replica.pid
    assert replica is not None
    # It does not connect again while it is stopped.
    send([replica], signal.SIGSTOP)
    with stage.client as client:
        client.client_kill_filter(_type="replica")
    time.sleep(CUT)
    stage.server.kill()
    send([replica], signal.SIGCONT)


def _freeze(stage: Stage) -> None:
    master = stage.server.pid
    assert master is not None
    send([master], signal.SIGSTOP)


def _comes_back(stage: Stage) -> None:
    """Start the old master again, as a replica of the new one."""
    assert stage.pair is not None
    stage.pair.replica.start()
    with client_of(stage.pair.replica) as client:
        client.replicaof("127.0.0.1", stage.pair.master.port)
    _has_caught_up(stage)


def _thaws(stage: Stage, promoted: float, *, is_last: bool) -> None:
    """Let the old master go on, and wait until the Sentinel has made it a replica, which takes it ten seconds."""
    assert stage.pair is not None
    time.sleep(max(0.0, promoted + ALL_GAVE_UP - time.monotonic()))
    old = stage.pair.replica.pid
    assert old is not None
    send([old], signal.SIGCONT)
    if not is_last:
        _has_caught_up(stage)


def _has_caught_up(stage: Stage) -> None:
    pair, sentinel = stage.pair, stage.sentinel
    assert pair is not None
    assert sentinel is not None

    def is_linked() -> bool:
        with client_of(pair.replica) as client:
            found = client.info("replication")
        return bool(found["role"] == "slave" and found["master_link_status"] == "up")

    wait_until(is_linked, timeout=60, message="the old master is a replica")
    wait_until(lambda: not sentinel.client.sentinel_slaves(MASTER)[0]["is_sdown"], timeout=60)
