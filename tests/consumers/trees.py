"""`runconsumer` as real processes, and what they did."""

import json
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis
from django.conf import settings

from mq_django.consumers.supervisor.template import TEMPLATE
from mq_django.stores.base import Store
from mq_django.transport.connections import get_client
from tests.consumers.project.history import read
from tests.consumers.template import NAME, ROOT, start
from tests.processes import Process, alive, children, is_stopped, processes
from tests.waiting import PATIENCE, wait_until


class Tree:
    """A supervisor and its children."""

    def __init__(
        self,
        config: Mapping[str, Any],
        history: Path,
        log: Path,
        *arguments: str,
        wrap: Sequence[str] = (),
        interpreter: bool = False,
        limits: Mapping[str, float] | None = None,
    ) -> None:
        """Start it: with `wrap`, which is put in front of the command, or `interpreter`, in new interpreters.

        `limits` replace values of modules of its processes: see `project/apps.py`.
        """
        env = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.consumers.project.settings",
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
            "MQ_TEST_CONFIG": json.dumps(config),
            "MQ_TEST_CACHES": json.dumps(settings.CACHES),
            "MQ_TEST_HISTORY": str(history),
            "MQ_TEST_LIMITS": json.dumps(limits or {}),
        }
        self.log = log
        command = [*wrap, sys.executable, "-m", "django", "runconsumer", *arguments]
        with log.open("ab") as output:
            forks = not (interpreter or wrap or "--autoreload" in arguments)
            self.process = start(command, env=env, output=output, forks=forks)

    @property
    def pid(self) -> int:
        return self.process.pid

    def children(self) -> list[int]:
        return [process.pid for process in self._children() if process.name not in (NAME, TEMPLATE)]

    def templates(self) -> list[int]:
        """Return what its consumers are forked from."""
        return [process.pid for process in self._children() if process.name == TEMPLATE]

    def _children(self) -> list[Process]:
        return children(self.pid)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill_all(self) -> None:
        """End the whole tree as a machine does that loses its power, and wait until Redis no longer serves it."""
        children = self.children()
        for pid in (self.pid, *children):
            kill(pid)
        self.wait(10)
        wait_until(lambda: not any(map(alive, children)))
        let_redis_look()

    def stop(self) -> int:
        """Ask it to stop, and return its exit code. It does not wait for the usual grace of 30 s."""
        # Before its first line it may not listen to signals, and another tree may have done all work by then.
        wait_until(lambda: self.logged() or self.process.poll() is not None)
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        return self.wait(within=28)

    def wait(self, timeout: float = 20.0, *, within: float | None = None) -> int:
        """Return its exit code when it has ended; see wait_until() for the times."""
        return self.process.wait(timeout * PATIENCE if within is None else within)

    def wait_until_ready(self, consumers: int = 1) -> None:
        """Wait until so many of its consumers, replaced ones too, have said that they handle queues."""
        wait_until(lambda: len(re.findall("Consumer .* handles", self.logged())) >= consumers, timeout=20)

    def logged(self) -> str:
        return self.log.read_text(errors="replace")


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def stop(pid: int) -> None:
    """Stop a process as a debugger does, and wait until none of its threads runs any more."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: is_stopped(pid))


class History:
    """What handlers noted, after the first `skip` lines."""

    def __init__(self, path: Path, skip: int = 0) -> None:
        self.path = path
        self._skip = skip

    def lines(self, kind: str | None = None) -> list[dict[str, Any]]:
        return [line for line in read(self.path)[self._skip :] if kind is None or line["kind"] == kind]

    def counts(self, kind: str = "effect") -> Counter[str]:
        return Counter(line["id"] for line in self.lines(kind))

    def wait_for(
        self, kind: str, count: int = 1, *, timeout: float = 20.0, within: float | None = None
    ) -> list[dict[str, Any]]:
        def enough() -> list[dict[str, Any]]:
            found = self.lines(kind)
            return found if len(found) >= count else []

        return wait_until(enough, timeout=timeout, within=within, message=f"{count} lines of {kind}")


def empty(store: Store) -> bool:
    """Return whether no message waits or runs."""
    depths = store.depths()
    return depths.ready + depths.pending + depths.delayed == 0


class SharedTree:
    """A tree for all tests of a process that need a running consumer, and neither end nor configure it."""

    def __init__(self, config: dict[str, Any], folder: Path) -> None:
        self.config = config
        self._folder = folder
        self._trees: list[Tree] = []

    def running(self) -> Tree:
        """Return the tree. It is started for the first test, and again when it has ended."""
        if not self._trees or self._trees[-1].process.poll() is not None:
            log = self._folder / f"log{len(self._trees)}"
            self._trees.append(Tree(self.config, self._folder / "history", log))
            self._trees[-1].wait_until_ready()
        return self._trees[-1]

    def history(self) -> History:
        """Return what handlers will note from now on."""
        path = self._folder / "history"
        return History(path, skip=len(read(path)))

    def end(self) -> None:
        end(self._trees)


def end(trees: Sequence[Tree]) -> None:
    """End every process of the trees, whatever state they are in."""
    for tree in trees:
        tree.kill_all() if tree.process.poll() is None else None
        for pid in group(tree.pid):
            kill(pid)
            wait_until(lambda pid=pid: not alive(pid))
    let_redis_look()


def let_redis_look() -> None:
    """Let Redis execute the last commands of processes that have ended, and see that their connections are closed.

    Until then it gives the next message to a blocked reader that has died. It looks at what was sent or closed before
    a command when it handles the command.
    """
    with suppress(redis.RedisError):
        get_client("inspect").ping()


def group(leader: int) -> Iterator[int]:
    """Yield the processes of a session that a tree began, orphans too."""
    for process in processes():
        try:
            if os.getsid(process.pid) == leader:
                yield process.pid
        except ProcessLookupError:
            continue
