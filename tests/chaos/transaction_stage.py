"""A stage with a database: processes that write orders, relays, trees of consumers, and what is there at the end."""

import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

import redis

from mq_django.conf import get_config
from mq_django.core.keys import QueueKeys
from tests.chaos import history, places
from tests.chaos.checker import Verdict
from tests.chaos.order_writer import PAUSE
from tests.chaos.orders import Orders
from tests.chaos.settings import KEYS, LEDGER, ORDERS, PLACED
from tests.chaos.stage import DRAIN, Stage
from tests.chaos.transaction_checker import TransactionEnding, check_transactions
from tests.chaos.trees import ROOT, Tree, environment
from tests.waiting import becomes_true

#: The alias of the database in the process that judges.
ALIAS = "chaos_orders"
WRITERS, RELAYS = 3, 2
#: Seconds between two orders of a writer.
PACE = 0.05
#: Orders that are committed and not entered, at most: the writers pause.
MOST_LEFT = 800
#: Seconds between two looks at that.
LOOKS = 1.0
KILLED = -signal.SIGKILL


@dataclass
class Actor:
    """A process that a run starts again when it was killed."""

    kind: str
    process: "subprocess.Popen[bytes]"

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self.process.pid


class TransactionStage(Stage):
    """Everything that the scenarios of the outbox act on."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.orders = Orders(ALIAS)
        self.actors: list[Actor] = []
        #: Sentences about processes that ended by themselves.
        self.given_up: list[str] = []
        self._numbers = count()
        self._looked = 0.0
        self._log = (self.folder / "actors.log").open("ab")

    @property
    def keys(self) -> QueueKeys:
        """Return the keys of the queue of orders."""
        return get_config().queue(ORDERS).keys

    def start_trees(self, number: int) -> None:
        """Create the tables, and start trees, relays and writers."""
        self.orders.create(KEYS)
        super().start_trees(number)
        for _ in range(RELAYS):
            self.actors.append(self._actor("relay"))
        for _ in range(WRITERS):
            self.actors.append(self._actor("writer"))

    def at_work(self, tree: Tree) -> list[int]:
        """Return the consumers of a tree that have begun to work."""
        return super().at_work(tree) if not tree.ended and tree.gave_up is None else []

    def of_kind(self, kind: str) -> list[Actor]:
        """Return the writers or relays that run."""
        return [actor for actor in self.actors if actor.kind == kind and actor.process.poll() is None]

    def renew_ended(self) -> None:
        """Start a process in the place of each that was killed."""
        for tree in list(self.trees):
            if (code := tree.gave_up) is not None:
                if code != KILLED:
                    self.given_up.append(f"a supervisor ended with {code}")
                tree.ended = True
                self.renew(tree)
        for place, actor in enumerate(self.actors):
            if (code := actor.process.poll()) is not None:
                if code != KILLED:
                    self.given_up.append(f"a {actor.kind} ended with {code}")
                self.actors[place] = self._actor(actor.kind)

    def pids(self) -> list[int]:
        """Return the process ids of all that talk to Redis."""
        return [*super().pids(), *(actor.pid for actor in self.actors)]

    def regulate(self) -> None:
        """Let writers pause while much is left to do: else it would take long to work that off."""
        if time.monotonic() - self._looked < LOOKS:
            return
        self._looked = time.monotonic()
        pause = self.folder / PAUSE
        if self.orders.count("proof_order") - self.orders.count("proof_entry") > MOST_LEFT:
            pause.touch()
        else:
            pause.unlink(missing_ok=True)

    def stop_writers(self) -> None:
        """Write no more orders. Each transaction ends first: to be killed in one is another matter."""
        for actor in self.of_kind("writer"):
            actor.process.terminate()
            actor.process.wait(60)
        self.actors = [actor for actor in self.actors if actor.kind != "writer"]

    def finish_orders(self) -> TransactionEnding:
        """Stop the writers, work everything off, stop everything, and return what is there."""
        self.stop_writers()
        with self.client as client:
            is_drained = becomes_true(lambda: self._is_done(client), within=DRAIN)
            for actor in self.actors:
                actor.process.terminate()
                actor.process.wait(30)
            self.given_up += ["a supervisor did not stop within 20 s" for tree in self.trees if not tree.stop()]
            rows, claims = self.orders.outbox()
            return TransactionEnding(
                orders=self.orders.committed(),
                log=_log(client),
                published={
                    name: places.published(client, get_config().queue(name).keys).total() for name in (ORDERS, LEDGER)
                },
                booked=self.orders.effects("proof_booking"),
                entered=self.orders.effects("proof_entry"),
                rows=rows,
                claims=claims,
                queued=self.left(client),
                dead=[name for name in (ORDERS, LEDGER) for _ in range(_dead(client, name))],
                is_drained=is_drained,
                given_up=self.given_up,
            )

    def judge_orders(self, ending: TransactionEnding) -> Verdict:
        """Return the verdict."""
        return check_transactions(history.read(self.folder), ending)

    def left(self, client: redis.Redis) -> int:
        """Return how many messages of both queues are ready, pending or wait."""
        return sum(places.left(client, get_config().queue(name).keys) for name in (ORDERS, LEDGER))

    def close(self) -> None:
        """End everything that the run started."""
        for actor in self.actors:
            with suppress(OSError):
                actor.process.kill()
            actor.process.wait(30)
        self._log.close()
        super().close()

    def _is_done(self, client: redis.Redis) -> bool:
        self.renew_ended()
        if any(self.orders.outbox()) or self.left(client):
            return False
        return self.orders.count("proof_entry") >= self.orders.count("proof_order")

    def _tree(self, *, processes: int = 2) -> Tree:
        # One with a relay, and others without: what is done at the points of relays is mostly done to those alone.
        options = [*next(self._starts), *(["--no-relay"] if self.trees else [])]
        return Tree(self.connection, self.folder, processes=processes, options=options)

    def _actor(self, kind: str) -> Actor:
        seed = f"{self.rng.random()}-{next(self._numbers)}"
        command = {
            "relay": [sys.executable, "-m", "django", "mq", "outbox", "--relay"],
            "writer": [sys.executable, "-m", "tests.chaos.order_writer", seed, str(PACE)],
        }[kind]
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment(self.connection, self.folder),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        return Actor(kind, process)


def _log(client: redis.Redis) -> list[str]:
    """Return the ids of all orders in the log of the topic, in its order."""
    topic: Any = get_config().topics[PLACED]
    entries: Any = client.xrange(topic.keys.log)
    return [places.label(places.attributes(fields)) or "" for _, fields in entries]


def _dead(client: redis.Redis, name: str) -> int:
    return int(client.hlen(get_config().queue(name).keys.dead_ids))
