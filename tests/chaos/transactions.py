"""18: orders in a database with outbox, inbox and a handler of batches, while each part is killed and stopped."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from importlib.util import find_spec
from typing import cast
from unittest import mock

import pytest

from mq_django.transport.private_server import ServerBinary
from tests.chaos.checker import Verdict
from tests.chaos.points import arm, stopped_at
from tests.chaos.settings import TRANSACTIONS, VISIBILITY_SECONDS
from tests.chaos.stage import Stage
from tests.chaos.surroundings import Surroundings, Unavailable
from tests.chaos.transaction_points import OF_HANDLERS, OF_RELAYS, OF_WRITERS
from tests.chaos.transaction_stage import ALIAS, TransactionStage
from tests.chaos.trees import Tree, send
from tests.databases.database_servers import program
from tests.databases.fixtures import Databases
from tests.waiting import wait_until

#: Orders and faults, in the CI tier and in each round of the nightly one. An order is three rows of the outbox.
SHORT, LONG = (300, 10), (1_900, 25)
#: Points of all consumers: a handler is about to run or has ended, acks are sent, or their reply has come.
OF_CONSUMERS = ("started", "ended", "unsent", "sent", "settled")
POINTS = (*OF_WRITERS, *OF_RELAYS, *OF_HANDLERS, *OF_CONSUMERS)
#: Points at which processes stop, of one round of faults.
STOPS = 4
#: Seconds in which a process gets to a point.
REACHED = 4.0
#: Seconds for which a process is stopped: longer than any timeout after which others go on with what it does.
STOPPED = VISIBILITY_SECONDS * 1.4
#: Of SQLite: what the documentation recommends, and time for processes that are stopped while they write.
SQLITE = {
    "timeout": 60,
    "transaction_mode": "IMMEDIATE",
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;",
}


def kind_of_ci() -> str:
    """Return the kind of database that the CI tier has time for: PostgreSQL, if it is here."""
    return "postgresql" if program("postgres") and find_spec("psycopg") else "sqlite"


def around(kind: str) -> Callable[[ServerBinary], AbstractContextManager[Surroundings]]:
    """Return what gives a run a database of a kind."""

    @contextmanager
    def found(_: ServerBinary) -> Iterator[Surroundings]:
        with ExitStack() as stack:
            databases = Databases(stack)
            try:
                options = databases.options(kind)
            except pytest.skip.Exception as reason:
                raise Unavailable(str(reason)) from None
            if kind == "sqlite":
                options["OPTIONS"] = SQLITE
                databases.use(kind, options)
            stack.enter_context(databases.added(ALIAS, kind))
            stack.enter_context(mock.patch.dict(os.environ, {TRANSACTIONS: json.dumps(options)}))
            yield Surroundings()

    return found


def play(stage: Stage, rounds: int) -> Verdict:
    """Do faults until there are enough of them and enough orders, and judge when everything is worked off."""
    own = cast(TransactionStage, stage)
    orders, faults = SHORT if rounds == 1 else (number * rounds for number in LONG)
    troubles = Troubles(own)
    deck = troubles.deck()
    with own.orders.idle_session():
        while troubles.done < faults or own.orders.count("proof_order") < orders:
            stage.pause(0.05, 0.2)
            # So many orders lie between two faults: else a slow machine would only start processes.
            if own.orders.count("proof_order") * faults >= troubles.done * orders and next(deck)():
                troubles.done += 1
        troubles.end()
        return own.judge_orders(own.finish_orders())


class Troubles:
    """What is done to processes with transactions."""

    def __init__(self, stage: TransactionStage) -> None:
        self._stage = stage
        #: Faults that hit something.
        self.done = 0
        #: Stopped processes: the name of the fault, their ids, and when they go on.
        self._stopped: list[tuple[str, Sequence[int], float]] = []
        stage.rest = self._wait

    def deck(self) -> Iterator[Callable[[], bool]]:
        """Yield faults: each kind and each point, in an order of its own each time; some points also to stop at."""
        while True:
            stops = [self._at(point, stops=True) for point in self._stage.rng.sample(POINTS, STOPS)]
            others = [self._kill_actor, self._kill_child, self._kill_tree, self._stop_tree, self._kill_redis]
            every = [*(self._at(point) for point in POINTS), *stops, *others, self._stop_redis]
            yield from self._stage.rng.sample(every, len(every))

    def end(self) -> None:
        """Let all go on that are stopped."""
        while self._stopped:
            self._wait(0.1)
        self._stage.renew_ended()

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            self._go_on()
            self._stage.renew_ended()
            self._stage.regulate()
            if time.monotonic() >= until:
                return
            time.sleep(0.05)

    def _go_on(self) -> None:
        """Let those go on whose time is over."""
        now = time.monotonic()
        for name, pids, _ in [one for one in self._stopped if one[2] <= now]:
            send(pids, signal.SIGCONT)
            self._stage.heal(name)
        self._stopped = [one for one in self._stopped if one[2] > now]

    def _stop(self, kind: str, pids: Sequence[int]) -> bool:
        name = self._stage.strike(kind, lambda: send(pids, signal.SIGSTOP), pids=pids)
        self._stopped.append((name, pids, time.monotonic() + STOPPED))
        return True

    def _at(self, point: str, *, stops: bool = False) -> Callable[[], bool]:
        def strike() -> bool:
            armed = arm(self._stage.folder, point, stops=stops)
            until = time.monotonic() + REACHED
            while armed.exists() and time.monotonic() < until:
                self._wait(0.05)
            with suppress(FileNotFoundError):
                armed.unlink()
                return False
            if not stops:
                # The process itself has noted it.
                return True
            pid = stopped_at(self._stage.folder, point)
            return bool(pid) and self._stop(f"stop-at-{point}", self._with(pid))

        return strike

    def _with(self, pid: int) -> list[int]:
        """Return a process with all of its tree: a supervisor knows that its consumers live."""
        for tree in self._stage.trees:
            if pid in (pids := tree.pids()):
                return pids
        return [pid]

    def _tree(self) -> Tree:
        def found() -> list[Tree]:
            self._wait(0.05)
            stopped = {pid for _, pids, _ in self._stopped for pid in pids}
            return [tree for tree in self._stage.trees if self._stage.at_work(tree) and tree.pid not in stopped]

        return self._stage.rng.choice(wait_until(found, timeout=60, message="a tree works"))

    def _kill_actor(self) -> bool:
        """Kill a writer or a relay, wherever it is."""
        actors = [actor for kind in ("writer", "relay") for actor in self._stage.of_kind(kind)]
        self._stage.kill(self._stage.rng.choice(actors).pid)
        return True

    def _kill_child(self) -> bool:
        self._stage.kill(self._stage.rng.choice(self._tree().children()))
        return True

    def _kill_tree(self) -> bool:
        self._stage.kill_tree(self._tree())
        return True

    def _stop_tree(self) -> bool:
        return self._stop("stop-tree", self._tree().pids())

    def _kill_redis(self) -> bool:
        self._stage.kill_redis(0.5, 2.0)
        return True

    def _stop_redis(self) -> bool:
        self._stage.stop_redis(self._stage.rng.uniform(1.0, STOPPED))
        return True
