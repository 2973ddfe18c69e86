"""One measurement of one contender, on a Redis of its own."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import redis

from benchmarks import environments, messages
from benchmarks.contenders import Contender
from benchmarks.trees import ROOT, Tree, cpu_seconds
from mq_django.transport.private_server import PrivateServer

#: Seconds that a consumer gets from its start to its first handled message.
START = 30.0
#: Seconds between two looks at how much is left.
LOOK = 0.01


class Note(NamedTuple):
    """That a message was handled: the moments in seconds on the clock of all processes."""

    number: int
    sent: float
    due: float
    handled: float
    pid: int

    @property
    def late(self) -> float:
        """Return the seconds between due and handled."""
        return self.handled - self.due


class Failed(Exception):
    """A contender did not do what was asked; the message says what."""


class Trial:
    """A fresh Redis, and a contender to work on it."""

    def __init__(self, contender: Contender, *, queues: int = 1) -> None:
        self.contender = contender
        # Over TCP, as nearly everybody's is.
        self._server = PrivateServer(tcp=True, settings={"save": "", "maxmemory-policy": "noeviction"})
        self._queues = queues
        handle, log = tempfile.mkstemp(prefix="mq-bench-", suffix=".log")
        os.close(handle)
        self._log = Path(log)

    def __enter__(self) -> Self:
        self._server.start()
        self.client = redis.Redis.from_url(self._server.url, protocol=2)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()
        self._server.stop()
        if kind is not None and issubclass(kind, Failed):
            sys.stderr.write("".join(self._log.read_text(errors="replace")[-1500:]))
        self._log.unlink()

    @property
    def url(self) -> str:
        """Return where the Redis is."""
        return self._server.url

    @property
    def log(self) -> Path:
        """Return where processes write what they say."""
        return self._log

    @property
    def server_pid(self) -> int:
        """Return the process id of the Redis."""
        assert self._server.pid
        return self._server.pid

    def environment(self) -> Mapping[str, str]:
        """Return what tells a process where to work."""
        return {
            "BENCH_REDIS_URL": self._server.url,
            "BENCH_QUEUES": str(self._queues),
            "DJANGO_SETTINGS_MODULE": "benchmarks.ours.settings",
            "PYTHONUNBUFFERED": "1",
            **environments.variables(self.contender),
            **self.contender.variables,
        }

    def _command(self, verb: str, **options: object) -> list[str]:
        words = [*environments.command(self.contender), verb]
        for name, value in options.items():
            if value is True:
                words.append(f"--{name.replace('_', '-')}")
            elif value:
                words += (f"--{name.replace('_', '-')}", str(value))
        return words

    def do(self, verb: str, **options: object) -> float:
        """Publish something, wait until it is done, and return the seconds that the publishing took."""
        done = self.begin(verb, **options)
        text, _ = done.communicate(timeout=600)
        if done.returncode:
            raise Failed(f"{self.contender.name}: {verb} ended with {done.returncode}")
        return float(json.loads(text.splitlines()[-1])["seconds"])

    def begin(self, verb: str, **options: object) -> "subprocess.Popen[str]":
        """Begin to publish something."""
        with self._log.open("ab") as errors:
            return subprocess.Popen(
                self._command(verb, **options),
                cwd=ROOT,
                env={**os.environ, **self.environment()},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def consumer(self, *, processes: int = 1, threads: int = 8) -> Tree:
        """Return the contender's consumer, to be started."""
        return Tree(self._command("consume", processes=processes, threads=threads), self.environment(), self._log)

    def remaining(self) -> int:
        """Return how many messages are still to be handled."""
        return self.contender.remaining(self.client)

    def notes(self) -> list[Note]:
        """Return what was handled, in order."""
        found = []
        for line in self.client.lrange(messages.NOTES, 0, -1):
            number, sent, due, handled, pid = map(int, line.split())
            found.append(Note(number, sent / 1e9, due / 1e9, handled / 1e9, pid))
        return found

    def wait_for_notes(self, count: int, *, timeout: float) -> list[Note]:
        """Return what was handled as soon as that is `count`, or at the end of the timeout."""
        give_up = time.monotonic() + timeout
        while self.client.llen(messages.NOTES) < count and time.monotonic() < give_up:
            time.sleep(0.05)
        return self.notes()

    def drain(self, tree: Tree, *, seconds: float = 120.0) -> "Drained":
        """Watch the consumer empty the queue, or try for some seconds; return how fast it was after the first fifth."""
        count = self.remaining()
        looks = [Look(time.monotonic(), count, 0.0, 0.0)]
        give_up = 0.0
        while looks[-1].left:
            time.sleep(LOOK)
            left, server = self.remaining(), cpu_seconds(self.server_pid)
            looks.append(Look(time.monotonic(), left, server, tree.cpu_seconds()))
            if not give_up and looks[-1].left < count:
                give_up = looks[-1].at + seconds
            elif looks[-1].at > (give_up or looks[0].at + START):
                break
        handled = count - looks[-1].left
        if handled < 20:
            raise Failed(f"{self.contender.name}: {handled} of {count} messages were handled in time")
        first = next(look for look in looks if look.left <= count - handled // 5)
        last = next(look for look in looks if look.left <= looks[-1].left)
        took, count = last.at - first.at, first.left - last.left
        server_cpu, cpu = last.server_cpu - first.server_cpu, last.cpu - first.cpu
        return Drained(count / took, cpu / count * 1e6, server_cpu / count * 1e6, server_cpu / took)


class Look(NamedTuple):
    """What was seen of a queue at a moment."""

    at: float
    left: int
    server_cpu: float
    cpu: float


class Drained(NamedTuple):
    """How a full queue was emptied."""

    #: Messages a second.
    rate: float
    #: Microseconds of processor a message: of the consumer's tree, and of Redis.
    micros: float
    server_micros: float
    #: How much of a core Redis used.
    server_share: float


def redis_version() -> str:
    """Return the version of the server that trials run on."""
    with PrivateServer() as server, redis.Redis.from_url(server.url) as client:
        return str(client.info("server")["redis_version"])


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value that so many percent do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] if ordered else float("nan")
