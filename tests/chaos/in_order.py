"""17: a queue with order per key, while consumers come and go, die and freeze, and messages are deleted."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import redis

from mq_django import queues
from mq_django.conf import get_config
from mq_django.core.messages import CancelResult
from mq_django.errors import ConnectionLost
from mq_django.inspector import actions
from mq_django.stores.message_scans import DeletableState
from tests.chaos import places
from tests.chaos.checker import Verdict, Violation
from tests.chaos.sequences import Sequences
from tests.chaos.settings import QUEUE, VISIBILITY_SECONDS
from tests.chaos.stage import Stage
from tests.chaos.trees import Tree
from tests.purging import purge
from tests.waiting import wait_until

#: Messages, keys, and messages a second at most, in the CI tier and in each round of the nightly one.
SHORT, LONG = (4_000, 200, 120.0), (34_000, 5_100, 1000.0)
#: Messages that end their process: each does so twice.
DEATHS, MORE_DEATHS = 2, 6
#: The most messages that are left in the queue at a time.
MOST_LEFT = 1500
#: Seconds between two trees that join, or leave.
CHANGE = 2.0
#: Trees that join and leave beside those that stay.
GUESTS = 1
#: Points at which consumers and supervisors end themselves.
POINTS = ("taken", "started", "effect", "ended", "unsent", "sent", "settled", "promoting", "beating")
#: Points of one round of faults: processes are started more slowly than they can be ended.
POINTS_OF_ROUND = 4
#: Seconds in which a process gets to a point.
REACHED = 4.0
#: Messages that one purge deletes at most from each place.
PURGED = 4
STATES: tuple[tuple[DeletableState, ...], ...] = ((), ("ready",), ("delayed",), ("parked",))


def play(stage: Stage, rounds: int) -> Verdict:
    """Publish, do all faults in turn until everything is published, and judge."""
    messages, keys, rate = SHORT if rounds == 1 else LONG
    sequences = Sequences(
        stage.history,
        random.Random(stage.rng.random()),
        messages=messages * rounds,
        keys=keys,
        rate=rate,
        deaths=DEATHS if rounds == 1 else MORE_DEATHS * rounds,
        may_publish=lambda: _may_publish(stage),
    )
    troubles = Troubles(stage, sequences)
    sequences.start()
    deck = troubles.deck()
    while sequences.is_publishing():
        stage.pause(0.05, 0.3)
        next(deck)()
    late = stage.joined()
    verdict = stage.finish()[0]
    if late:
        verdict.violations.append(Violation("I11", f"{late} trees that were to leave did not stop within 20 s"))
    return verdict


def _may_publish(stage: Stage) -> bool:
    with suppress(redis.RedisError), stage.client as client:
        return places.left(client, stage.keys) < MOST_LEFT
    return False


def _cancel(message: str, *, running: bool = False) -> CancelResult:
    """Cancel a message, with the second try that a connection needs after Redis was started again."""
    try:
        return queues[QUEUE].cancel(message, running=running)
    except ConnectionLost:
        return queues[QUEUE].cancel(message, running=running)


class Troubles:
    """What is done to a queue with order."""

    def __init__(self, stage: Stage, sequences: Sequences) -> None:
        self._stage = stage
        self._sequences = sequences
        self._changed = time.monotonic()
        stage.rest = self._wait

    def deck(self) -> Iterator[Callable[[], None]]:
        """Yield faults: each kind, and some points, in an order of its own each time."""
        others = [self._kill, self._kill, self._kill_tree, self._stop, self._stop_long, self._stop_tree, self._halt]
        others += [self._purge, self._purge, self._cancel, self._cancel, self._cancel_running]
        others += [self._delete_heads, self._delete_heads, self._kill_redis]
        while True:
            points = [self._at(point) for point in self._stage.rng.sample(POINTS, POINTS_OF_ROUND)]
            # First, so that it is in the shortest run, too.
            yield self._stop_tree
            yield from self._stage.rng.sample([*points, *others], len(points) + len(others))

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._change()
            time.sleep(min(0.1, left))

    def _change(self) -> None:
        """Let a tree join or leave, when it is time for that, and replace those that have ended at points."""
        self._stage.renew_killed()
        if time.monotonic() - self._changed < CHANGE:
            return
        self._changed = time.monotonic()
        guests = [tree for tree in self._stage.trees[2:] if not tree.ended]
        if len(guests) < GUESTS:
            self._stage.join()
        else:
            self._stage.leave(guests[0])

    def _trees(self) -> list[Tree]:
        """Return the trees that stay."""
        return [tree for tree in self._stage.trees[:2] if tree.gave_up is None and not tree.ended]

    def _at_work(self, tree: Tree) -> list[int]:
        """Return the consumers of a tree that work; when everything is published, perhaps none has work."""
        return self._stage.at_work(tree) if self._sequences.is_publishing() else tree.children()

    def _child(self) -> int:
        pids = wait_until(lambda: self._at_work(self._working_tree()), message="a consumer works")
        return self._stage.rng.choice(pids)

    def _working_tree(self) -> Tree:
        """Return a tree that works, when the others do so, too: else everything would wait for new processes.

        On a busy machine these take ten seconds to start.
        """

        def found() -> list[Tree]:
            self._change()
            trees = self._trees()
            return trees if len(trees) > 1 and all(self._at_work(tree) for tree in trees) else []

        return self._stage.rng.choice(wait_until(found, timeout=60, message="all trees work"))

    def _kill(self) -> None:
        self._stage.kill(self._child())

    def _kill_tree(self) -> None:
        self._stage.kill_tree(self._working_tree())

    def _stop(self) -> None:
        self._stage.suspend("stop", [self._child()], self._stage.rng.uniform(0.2, 1.2))

    def _stop_long(self) -> None:
        """Stop a consumer for longer than the visibility timeout: its supervisor knows that it lives."""
        self._stage.suspend("stop-long", [self._child()], VISIBILITY_SECONDS * self._stage.rng.uniform(1.3, 2))

    def _stop_tree(self) -> None:
        tree = self._working_tree()
        self._stage.suspend("stop-tree", tree.pids(), VISIBILITY_SECONDS * self._stage.rng.uniform(1.3, 2))

    def _at(self, point: str) -> Callable[[], None]:
        def strike() -> None:
            self._working_tree()
            self._stage.end_at(point, within=REACHED)
            self._wait(0.2)

        return strike

    def _halt(self) -> None:
        """Pause the queue for a moment."""
        name = self._stage.strike("pause", self._pause)
        self._wait(self._stage.rng.uniform(0.2, 0.8))
        actions.resume(QUEUE)
        self._stage.heal(name)

    def _pause(self) -> None:
        with suppress(ConnectionLost):
            actions.pause(QUEUE)
            return
        actions.pause(QUEUE)

    def _kill_redis(self) -> None:
        self._stage.kill_redis(0.1, 0.5)

    def _purge(self) -> None:
        ids = purge(get_config().queue(QUEUE), *self._stage.rng.choice(STATES), limit=PURGED)
        self._stage.history.note("removed", ids=ids)

    def _cancel(self) -> None:
        """Cancel some messages that wait in lines, or for another attempt."""
        recent = self._sequences.recent()
        for message in self._stage.rng.sample(recent, min(len(recent), 12)):
            if _cancel(message) is CancelResult.CANCELLED:
                self._stage.history.note("removed", ids=[message])

    def _cancel_running(self) -> None:
        """Cancel the first messages of the queue, which are mostly those that run."""
        with self._stage.client as client:
            entries: Any = client.xrange(self._stage.keys.ready, count=2)
        ids = [fields[b"id"].decode() for _, fields in entries]
        # Noted before: whether it ends first is not known.
        self._stage.history.note("removed", ids=ids)
        for message in ids:
            _cancel(message, running=True)

    def _delete_heads(self) -> None:
        """Delete the entries of messages that others of their key wait for, as another program would."""
        keys = self._stage.keys
        with self._stage.client as client:
            heads = [(token, score) for token, score in client.zrange(keys.permits, 0, 200, withscores=True)]
            blocking = [token for token, score in heads if client.zcount(keys.parked, score, score)]
            for token in self._stage.rng.sample(blocking, min(len(blocking), 3)):
                self._delete_head(client, token.decode())

    def _delete_head(self, client: redis.Redis, token: str) -> None:
        kind, _, entry = token.partition("-")
        stream = {"0": self._stage.keys.ready, "1": self._stage.keys.front}.get(kind)
        entries: Any = client.xrange(stream, entry, entry) if stream else ()
        for _, fields in entries:
            self._stage.history.note("removed", ids=[fields[b"id"].decode()])
            client.xdel(str(stream), entry)
