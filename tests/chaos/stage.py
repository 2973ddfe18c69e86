"""One run: a private Redis, trees of consumers, a producer, the faults that are done to them, and the verdict."""

import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count, cycle
from pathlib import Path
from threading import Thread
from unittest import mock

import redis
from django.test.utils import override_settings
from redis.backoff import NoBackoff
from redis.retry import Retry

from mq_django.conf import get_config
from mq_django.core.keys import QueueKeys
from mq_django.stores.members import read_membership
from mq_django.transport.private_server import PrivateServer, ServerBinary
from tests.chaos import history, places
from tests.chaos.checker import Ending, Terms, Verdict, check
from tests.chaos.places import Rest
from tests.chaos.points import arm
from tests.chaos.producer import Producer
from tests.chaos.settings import MAX_ATTEMPTS, QUEUE, VISIBILITY_SECONDS, mq_django
from tests.chaos.spread import Spread
from tests.chaos.surroundings import Surroundings
from tests.chaos.trees import Tree, kill, send
from tests.proxy import Proxy
from tests.sentinel_rig import Pair, RunningSentinel
from tests.waiting import becomes_true, wait_until

#: Seconds until the last of what a fault hit must have gone on. The promise is the visibility timeout and 2 s; the
#: rest is for the work that stands before it, on a machine that others use, too.
RECOVERY = VISIBILITY_SECONDS + 2 + 10
#: Seconds to work everything off after the last fault. What kills its process takes five deaths until it is buried, and
#: four new processes, which on a machine that others use take ten seconds each to start.
DRAIN = 20.0 if os.environ.get("CHAOS_HASTE") else 90.0
#: Seconds until what died has left nothing behind.
SETTLE_DOWN = VISIBILITY_SECONDS * 2 + (0.0 if os.environ.get("CHAOS_HASTE") else 10.0)


class Stage:
    """Everything that a scenario acts on."""

    def __init__(
        self,
        binary: ServerBinary,
        rng: random.Random,
        folder: Path,
        *,
        settings: Mapping[str, str],
        road: bool,
        surroundings: Surroundings,
    ) -> None:
        self.rng = rng
        self.folder = folder
        self.history = history.History(folder)
        self.surroundings = surroundings
        self.server = PrivateServer(
            binary=binary,
            directory=surroundings.directory,
            tcp=True,
            append_only=True,
            settings={**settings, **surroundings.settings},
        )
        self.road: Proxy | None = None
        self._with_road = road
        self.pair: Pair | None = None
        self.sentinel: RunningSentinel | None = None
        self.trees: list[Tree] = []
        self.producer: Producer | Spread
        #: How a fault waits: a scenario may do something meanwhile.
        self.rest: Callable[[float], object] = time.sleep
        self._leaving: list[Thread] = []
        self._stayed: list[Tree] = []
        #: Processes were asked to end at points.
        self._has_points = False
        self._faults = count(1)
        self._wraps = cycle(surroundings.wraps)
        #: How the trees start their consumers, in turn.
        self._starts = cycle([[], ["--no-fork"]])

    def open(self, *, rate: float, ms: float) -> None:
        """Start Redis."""
        self.start_server()
        if self._with_road:
            self.road = Proxy(self.server.url)
        if self.surroundings.sentinel:
            self.pair = Pair(self.server)
            # It makes the next failover twice that time after the last one.
            self.sentinel = RunningSentinel(self.server.port, binary=self.server.binary, again_ms=2000)
            self.sentinel.wait_for_replicas()
        self.producer = Producer(self.history, random.Random(self.rng.random()), rate=rate, ms=ms)

    def start_server(self) -> None:
        """Start Redis, or start it again on its data, in the environment that the scenario asks for."""
        with mock.patch.dict(os.environ, self.surroundings.environment):
            self.server.start()

    @property
    def connection(self) -> str:
        """Return the URL that producers and consumers use."""
        if self.sentinel:
            return self.sentinel.url
        return self.road.url if self.road else self.server.url

    @property
    def keys(self) -> QueueKeys:
        """Return the keys of the queue."""
        return get_config().queue(QUEUE).keys

    @property
    def client(self) -> redis.Redis:
        """Return a client that takes the straight road."""
        return redis.Redis.from_url(self.server.url, protocol=2, socket_timeout=30, retry=Retry(NoBackoff(), 0))

    def start_trees(self, number: int) -> None:
        """Start trees of two processes each, and wait until all consume."""
        for _ in range(number):
            self.trees.append(self._tree())
        wait_until(lambda: len(self.living()) >= number * 2, timeout=30, message="consumers start")

    def renew(self, tree: Tree) -> None:
        """Start a tree in the place of one that was killed."""
        self.trees[self.trees.index(tree)] = self._tree()

    def join(self) -> None:
        """Start another tree, of one process."""
        self.trees.append(self._tree(processes=1))

    def leave(self, tree: Tree) -> None:
        """Stop a tree, and do not wait until it has ended."""
        tree.ended = True

        def stop() -> None:
            if not tree.stop():
                self._stayed.append(tree)
            self.trees.remove(tree)

        self._leaving.append(Thread(target=stop))
        self._leaving[-1].start()

    def joined(self) -> int:
        """Wait until all trees that were to leave have left, and return how many did not stop by themselves."""
        for thread in self._leaving:
            thread.join()
        return len(self._stayed)

    def _tree(self, *, processes: int = 2) -> Tree:
        temporary = self.surroundings.temporary
        wrap = next(self._wraps)
        options = next(self._starts)
        return Tree(self.connection, self.folder, processes=processes, wrap=wrap, temporary=temporary, options=options)

    def pids(self) -> list[int]:
        """Return the process ids of all consumers."""
        return [pid for tree in self.trees for pid in tree.pids()]

    def living(self) -> dict[str, int]:
        """Return the registered consumers whose processes are alive, with their process ids."""
        pids = set(self.pids())
        with self.client as client:
            told = read_membership(client.hgetall(self.keys.consumers)).consumers
        return {name: words["pid"] for name, words in told.items() if words.get("pid") in pids}

    def at_work(self, tree: Tree) -> list[int]:
        """Return the consumers of a tree that have begun to work: those that have a history."""
        return sorted(pid for pid in tree.children() if (self.folder / f"{pid}.jsonl").exists())

    def working(self) -> int:
        """Return a consumer that works; there may be none for a moment after each has been killed."""

        def found() -> list[int]:
            return [pid for tree in self.trees for pid in self.at_work(tree)]

        return self.rng.choice(wait_until(found, timeout=60, message="a consumer works"))

    def strike(
        self,
        kind: str,
        hit: Callable[[], Sequence[int] | None],
        *,
        pids: Sequence[int] = (),
        spares: bool = False,
        **told: float,
    ) -> str:
        """Do something to processes, note it, and return the fault's name for heal()."""
        name = f"{kind}-{next(self._faults)}"
        began = time.monotonic()
        more = hit() or ()
        self.history.note("fault", fault=name, kind=kind, began=began, pids=[*pids, *more], spares=spares, **told)
        return name

    def heal(self, name: str) -> None:
        """Note that a fault is over."""
        self.history.note("healed", fault=name)

    def pause(self, low: float, high: float) -> None:
        """Let the run go on for a random time, in seconds: this is what a fault interrupts."""
        self.rest(self.rng.uniform(low, high))

    def kill(self, pid: int) -> None:
        """Kill a process."""
        self.heal(self.strike("kill", lambda: kill(pid), pids=[pid]))

    def kill_tree(self, tree: Tree) -> None:
        """Kill a tree, and start another one in its place."""
        self.heal(self.strike("kill-tree", tree.kill))
        self.renew(tree)

    def suspend(
        self, kind: str, pids: Sequence[int], seconds: float, *, hit: Sequence[int] = (), spares: bool = False
    ) -> None:
        """Stop processes for some seconds; `hit` are those that notice it, if it is not themselves."""
        name = self.strike(kind, lambda: send(pids, signal.SIGSTOP), pids=hit or pids, spares=spares)
        self.rest(seconds)
        send(pids, signal.SIGCONT)
        self.heal(name)

    def stop_redis(self, seconds: float) -> None:
        """Let Redis accept connections, and answer nothing."""
        pid = self.server.pid
        assert pid is not None
        self.suspend("stop-redis", [pid], seconds, hit=self.pids())

    def kill_redis(self, low: float, high: float) -> None:
        """Kill Redis, and start it on its data after a random time: replies are lost, and found again."""
        name = self.strike("kill-redis", self.server.kill, pids=self.pids())
        self.pause(low, high)
        self.start_server()
        self.heal(name)

    def end_at(self, point: str, *, within: float) -> None:
        """Let the first process end that gets to a point, if one does in time."""
        self._has_points = True
        armed = arm(self.folder, point)
        if not becomes_true(lambda: not armed.exists(), within=within):
            armed.unlink(missing_ok=True)

    def renew_killed(self) -> None:
        """Start a tree in the place of each whose supervisor has ended itself at a point."""
        for tree in list(self.trees):
            if tree.gave_up == -signal.SIGKILL:
                tree.ended = True
                self.renew(tree)

    def finish(self) -> tuple[Verdict, Rest]:
        """Work everything off, come to rest, restart Redis, and judge."""
        self.producer.stop()
        with self.client as client:
            drained = becomes_true(lambda: self.left(client) == 0, within=DRAIN)
        ending = replace(self.come_to_rest(), drained=drained)
        events = history.read(self.folder)
        verdict = self.judge(events, ending)
        if messages := {message for violation in verdict.violations for message in violation.messages}:
            verdict.stories = history.stories(events, messages)
        return verdict, ending.rest

    def judge(self, events: Sequence[history.Event], ending: Ending) -> Verdict:
        """Return the verdict on what happened."""
        return check(events, ending, Terms(max_attempts=MAX_ATTEMPTS, recovery=RECOVERY))

    def left(self, client: redis.Redis) -> int:
        """Return how many messages are ready, pending or wait."""
        return places.left(client, self.keys)

    def look(self, client: redis.Redis) -> Rest:
        """Return where everything is."""
        return places.look(client, self.keys)

    def known(self, client: redis.Redis) -> set[str]:
        """Return everybody who is known to Redis as a consumer."""
        return set(places.consumers(client, self.keys))

    def come_to_rest(self) -> Ending:
        """Stop all trees, restart Redis, and return what is left."""
        with self.client as client:
            # One that got to its point in the last round was not replaced any more.
            fine = {None, -signal.SIGKILL} if self._has_points else {None}
            given_up = [f"a supervisor ended with {code}" for tree in self.trees if (code := tree.gave_up) not in fine]
            # Not looked at again when there is none: a consumer that ends just then is known for a moment longer.
            settled = becomes_true(lambda: not self._strangers(client), within=SETTLE_DOWN)
            strangers = set() if settled else self._strangers(client)
            given_up += ["a supervisor did not stop within 20 s" for tree in self.trees if not tree.stop()]
            rest = self.look(client)
            restarted = self.restarted(client)
        # Who is left of the dead while others live, and who is left when all have gone.
        rest = replace(rest, consumers=sorted({*rest.consumers, *strangers}))
        return Ending(rest=rest, restarted=replace(restarted, consumers=rest.consumers), given_up=given_up)

    def _strangers(self, client: redis.Redis) -> set[str]:
        return self.known(client) - set(self.living())

    def restarted(self, client: redis.Redis) -> Rest:
        """Return what is where after Redis wrote its file anew and started on it."""
        client.bgrewriteaof()
        wait_until(lambda: not is_rewriting(client), timeout=30)
        self.server.kill()
        self.start_server()
        with self.client as fresh:
            return self.look(fresh)

    def close(self) -> None:
        """End everything that the run started."""
        for tree in self.trees:
            if not tree.ended:
                tree.kill()
        if self.road:
            self.road.close()
        if self.sentinel:
            self.sentinel.close()
        if self.pair:
            self.pair.close()
        self.server.stop()


@contextmanager
def staged(
    binary: ServerBinary,
    seed: str,
    *,
    rate: float = 320.0,
    ms: float = 20.0,
    settings: Mapping[str, str] | None = None,
    road: bool = False,
    surroundings: Surroundings | None = None,
    kind: type[Stage] = Stage,
) -> Iterator[Stage]:
    """Set a stage, with a folder for its history that goes at the end, unless CHAOS_KEEP is set."""
    folder = Path(tempfile.mkdtemp(prefix="mq-chaos-"))
    stage = kind(
        binary,
        random.Random(seed),
        folder,
        # What a publish returned for is on the disk.
        settings={"appendfsync": "always", **(settings or {})},
        road=road,
        surroundings=surroundings or Surroundings(),
    )
    try:
        stage.open(rate=rate, ms=ms)
        with override_settings(MQ_DJANGO=mq_django(stage.connection)):
            yield stage
    finally:
        stage.close()
        if not os.environ.get("CHAOS_KEEP"):
            shutil.rmtree(folder, ignore_errors=True)


def is_rewriting(client: redis.Redis) -> bool:
    return any(client.info("persistence")[f"aof_rewrite_{word}"] for word in ("in_progress", "scheduled"))
