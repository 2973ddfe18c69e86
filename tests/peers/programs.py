"""Programs that tests run as processes of their own: consumers of ours, and peers in other languages."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import redis

from mq_django.consumers.supervisor.template import TEMPLATE
from tests.consumers.template import NAME, start
from tests.processes import children
from tests.shell import ran
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
NODE_PROGRAMS = ROOT / "example_project" / "node"


class Program:
    """A process that ends with its test, and whose output is told when that fails."""

    def __init__(self, command: Sequence[str | Path], environment: Mapping[str, str]) -> None:
        words = [str(part) for part in command]
        self._output = TemporaryFile()  # noqa: SIM115 - it is read at the end
        env = {**os.environ, **environment}
        self.process = start(words, env=env, output=self._output, forks=words[0] == sys.executable)
        self.told = False
        self._lines = 0

    def line(self) -> Any:
        """Return the next line that it prints, which is JSON."""
        self._lines += 1
        found = wait_until(lambda: len(lines := self._printed().splitlines(keepends=True)) >= self._lines and lines)
        return json.loads(found[self._lines - 1])

    def _printed(self) -> str:
        # The program writes at the position of the same open file, which reading must not move.
        text = os.pread(self._output.fileno(), 1 << 20, 0).decode()
        return text[: text.rfind("\n") + 1]

    def children(self) -> list[int]:
        """Return the process ids of its consumers."""
        return [each.pid for each in children(self.process.pid) if each.name not in (NAME, TEMPLATE)]

    def stop(self, *, kill: bool = False) -> int:
        """End the process and return its exit code."""
        self.stop_and_tell(kill=kill)
        return self.process.returncode

    def stop_and_tell(self, *, kill: bool = False) -> str:
        """End the process and return what it has printed."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.told = True
        with self._output:
            self._output.seek(0)
            output = self._output.read().decode()
        print(output)  # noqa: T201 - pytest shows it when the test fails
        return output


def run(command: Sequence[str | Path], environment: Mapping[str, str]) -> str:
    """Run a program to its end and return what it printed."""
    done = ran(command, env={**os.environ, **environment})
    return done.stdout.strip()


class Project:
    """A Django project with consumers of its own, in a namespace of a test."""

    def __init__(self, settings: Mapping[str, Any], client: redis.Redis) -> None:
        self.namespace = settings["NAMESPACE"]
        self.url = settings["CONNECTION"]
        self._client = client
        self._settings = settings
        self.programs: list[Program] = []

    def runconsumer(self, *arguments: str) -> Program:
        """Start `runconsumer`."""
        environment = {
            "DJANGO_SETTINGS_MODULE": "tests.peers.settings",
            "PYTHONPATH": str(ROOT),
            "MQ_DJANGO_TEST": json.dumps(self._settings),
        }
        return self.start([sys.executable, "-m", "django", "runconsumer", *arguments], environment)

    def node_consumer(self, queue: str, *partition: str, **environment: str) -> Program:
        """Start the example consumer in JavaScript."""
        command = ["node", NODE_PROGRAMS / "consumer.js", queue, *partition]
        return self.start(command, {**self.node_environment, **environment})

    def node_publish(self, *arguments: str, **environment: str) -> str:
        """Publish with the example producer in JavaScript, and return the id."""
        return run(["node", NODE_PROGRAMS / "producer.js", *arguments], {**self.node_environment, **environment})

    @property
    def node_environment(self) -> dict[str, str]:
        """Where the programs in JavaScript find their packages and this project's Redis."""
        return {
            "MQ_REDIS_URL": self.url,
            "MQ_NAMESPACE": self.namespace,
            "NODE_PATH": str(HERE / "node_modules"),
        }

    def start(self, command: Sequence[str | Path], environment: Mapping[str, str]) -> Program:
        program = Program(command, environment)
        self.programs.append(program)
        return program

    def stop(self) -> None:
        """End everything that was started."""
        for program in self.programs:
            if not program.told:
                program.stop()

    def handled(self) -> list[dict[str, Any]]:
        """Return what the handlers have written down."""
        return [json.loads(line) for line in self._client.lrange(f"{self.namespace}:handled", 0, -1)]

    def wait_handled(self, count: int, *, timeout: float = 20.0, within: float | None = None) -> list[dict[str, Any]]:
        """Wait until so many messages were handled, and return them."""
        wait_until(
            lambda: self._client.llen(f"{self.namespace}:handled") >= count,
            timeout=timeout,
            within=within,
            message=f"{count} messages handled",
        )
        return self.handled()
