"""19: handlers stream while consumers, Redis and the process of the readers are killed, and consumers stopped."""

import subprocess
import sys
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any, NamedTuple, cast

import redis

from mq_django import queues, topics
from tests.chaos.checker import Ending, Verdict
from tests.chaos.history import Event
from tests.chaos.places import Rest
from tests.chaos.settings import MAX_ATTEMPTS, QUEUE, STORE, TOPIC, VISIBILITY_SECONDS
from tests.chaos.stage import Stage
from tests.chaos.stream_checker import Entry, judged, judged_readers
from tests.chaos.trees import ROOT, Tree, environment, kill
from tests.waiting import wait_until

#: Messages at the beginning, and after each fault.
FIRST, MORE = 24, 6
#: Seconds until all readers have read all, after all messages have ended.
READ = 60.0


class Asked(NamedTuple):
    """A message whose handler streams."""

    id: str
    chunks: int


class StreamStage(Stage):
    """A stage with a process that reads streams."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        #: By the names that the run gave them.
        self.asked: dict[str, Asked] = {}
        self._numbers = count()
        self._streams: dict[str, list[Entry]] = {}
        self._readers: subprocess.Popen[str] | None = None
        self._log = (self.folder / "readers.log").open("ab")

    def ask(self, count: int) -> None:
        """Publish messages whose handlers stream, and let them be read."""
        names, ids = [f"tell-{next(self._numbers)}" for _ in range(count)], []
        told = [{"id": name, **self._told()} for name in names]
        with self.history.publishing(names):
            where = topics[TOPIC] if STORE == "topic" else queues[QUEUE]
            ids = where.publish_many([("tell", data) for data in told])
        self.asked |= {data["id"]: Asked(found, data["chunks"]) for data, found in zip(told, ids, strict=False)}
        self._tell_readers(ids)

    def _told(self) -> dict[str, int]:
        fails = self.rng.choice([0] * 8 + [1, MAX_ATTEMPTS])
        # Those that always fail take no longer than others.
        ms = self.rng.randint(10, 80) // max(1, fails)
        return {"chunks": self.rng.randint(10, 40), "ms": ms, "fails": fails}

    def start_trees(self, number: int) -> None:
        """Start readers, too."""
        self.start_readers()
        super().start_trees(number)

    def start_readers(self) -> None:
        """Start the process that reads all streams."""
        command = [sys.executable, "-m", "tests.chaos.reading"]
        env = environment(self.connection, self.folder)
        self._readers = subprocess.Popen(
            command, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=self._log, stderr=self._log, text=True
        )
        self._tell_readers(asked.id for asked in self.asked.values())

    def _tell_readers(self, ids: Iterable[str]) -> None:
        assert self._readers is not None
        assert self._readers.stdin is not None
        self._readers.stdin.writelines(f"{found}\n" for found in ids)
        self._readers.stdin.flush()

    def kill_readers(self) -> None:
        """Kill the process that reads, once it reads, and start another one in its place."""
        assert self._readers is not None
        pid = self._readers.pid
        wait_until((self.folder / f"{pid}.jsonl").exists, timeout=30, message="readers read")
        self.heal(self.strike("kill-readers", lambda: kill(pid), pids=[pid]))
        self._end_readers()
        self.start_readers()

    def _end_readers(self) -> None:
        """Let the readers read to the ends. Those that do not get there in time have not noted that they have."""
        with self._readers as readers:
            readers.stdin.close()
            try:
                readers.wait(READ)
            except subprocess.TimeoutExpired:
                readers.kill()

    def look(self, client: redis.Redis) -> Rest:
        """Return where everything is, when all streams have been read."""
        self._end_readers()
        self._streams = {name: kept(client, self.keys.message_stream(asked.id)) for name, asked in self.asked.items()}
        return super().look(client)

    def judge(self, events: Sequence[Event], ending: Ending) -> Verdict:
        """Return the verdict, also on the streams as they are after the last restart of Redis."""
        verdict = super().judge(events, ending)
        for name, asked in self.asked.items():
            chunks = None if name in ending.rest.dead else asked.chunks
            verdict.violations += judged(name, self._streams[name], chunks)
        verdict.violations += judged_readers(
            {asked.id: self._streams[name] for name, asked in self.asked.items()}, events
        )
        return verdict

    def close(self) -> None:
        """End everything that the run started."""
        if self._readers is not None:
            self._readers.kill()
            self._end_readers()
        self._log.close()
        super().close()


def play(stage: Stage, rounds: int) -> None:
    """Do all faults in turn while messages are handled and read."""
    own = cast(StreamStage, stage)
    faults = [_kill, _kill, _kill_readers, _kill_redis, _stop_tree]
    own.ask(FIRST)
    for _ in range(rounds):
        for fault in own.rng.sample(faults, len(faults)):
            own.ask(MORE)
            own.pause(0.2, 0.5)
            fault(own)


def _kill(stage: StreamStage) -> None:
    stage.kill(stage.rng.choice(stage.at_work(_tree(stage))))


def _kill_readers(stage: StreamStage) -> None:
    stage.kill_readers()


def _kill_redis(stage: StreamStage) -> None:
    stage.kill_redis(0.1, 0.8)


def _stop_tree(stage: StreamStage) -> None:
    """Stop a tree for so long that others get what it handles, and let it go on."""
    stage.suspend("stop-tree", _tree(stage).pids(), VISIBILITY_SECONDS * stage.rng.uniform(1.2, 1.4))


def _tree(stage: StreamStage) -> Tree:
    """Return a tree that works."""
    return stage.rng.choice(wait_until(lambda: [tree for tree in stage.trees if stage.at_work(tree)], timeout=60))


def kept(client: redis.Redis, key: str) -> list[Entry]:
    """Return the entries of a stream that has a time to live."""
    found: Any = client.xrange(key) if client.pttl(key) > 0 else []
    entries = []
    for entry, fields in found:
        (_, run), (_, attempt), (_, number), (_, total), (kind, value) = (
            (name.decode(), value.decode()) for name, value in fields.items()
        )
        entries.append(Entry(entry.decode(), run, int(attempt), int(number), int(total), kind, value))
    return entries
