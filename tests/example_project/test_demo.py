"""The whole demo as a person runs it: processes, ports, signals."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from mq_django.transport.private_server import BUNDLE, PrivateServer
from tests.example_project.conftest import ROOT
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def processes() -> dict[int, int]:
    """Return the living processes of this machine, each with its parent."""
    table = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in table.splitlines()]
    return {int(pid): int(parent) for pid, parent, state, *_ in rows if not state.startswith("Z")}


class Demo:
    """A running demo and what it said so far."""

    def __init__(self, folder: Path, *options: str, redis_url: str = "") -> None:
        self.folder = folder
        self.output = folder / "output"
        # Without a Redis server of the test the demo finds one by itself, as it does for a new user.
        env = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
        if redis_url:
            env["MQ_REDIS_URL"] = redis_url
        with self.output.open("w") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "example_project.demo", "--folder", str(folder / "demo"), *options],
                cwd=ROOT,
                env=env,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def text(self) -> str:
        return self.output.read_text()

    def explain(self) -> str:
        logs = sorted((self.folder / "demo" / "logs").glob("*.log"))
        return "\n".join([self.text(), *(f"--- {log.name}\n{log.read_text()[-3000:]}" for log in logs)])

    def children(self) -> set[int]:
        parents = processes()
        found: set[int] = set()
        level = {self.process.pid}
        while level := {pid for pid, parent in parents.items() if parent in level}:
            found |= level
        return found

    def supervisor(self) -> int:
        found = re.search(r"^Consumers +process (\d+)", self.text(), re.MULTILINE)
        assert found, self.explain()
        return int(found[1])

    def consumers(self) -> list[int]:
        return [pid for pid, parent in processes().items() if parent == self.supervisor()]

    def finish(self) -> int:
        return self.process.wait(120)

    def end(self) -> None:
        if self.process.poll() is None:
            children = self.children()
            self.process.kill()
            self.process.wait()
            for child in children:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)

    def line(self, name: str) -> int:
        found = re.search(rf"^{name} +(\d+)", self.text(), re.MULTILINE)
        assert found, self.explain()
        return int(found[1])

    def outage(self) -> tuple[int, int, int]:
        """Return how many orders were placed without Redis, how many of them were billed once, and failed visits."""
        line = r"^Outage +Redis was away for [\d.]+ s; orders placed meanwhile: (\d+), of which billed once: (\d+); "
        found = re.search(rf"{line}failed visits: (\d+)$", self.text(), re.MULTILINE)
        assert found, self.explain()
        return int(found[1]), int(found[2]), int(found[3])


StartDemo = Callable[..., Demo]


@pytest.fixture
def start_demo(tmp_path: Path) -> Iterator[StartDemo]:
    """Start a demo with these options; it goes with the test, however that ends."""
    with ExitStack() as stack:

        def start(*options: str, redis_url: str = "") -> Demo:
            demo = Demo(tmp_path, *options, redis_url=redis_url)
            stack.callback(demo.end)
            return demo

        yield start


def handled(demo: Demo) -> int:
    counts = re.findall(r"^published \d+ +handled (\d+)", demo.text(), re.MULTILINE)
    return int(counts[-1]) if counts else 0


def test_the_demo_stops_by_itself_and_nothing_was_lost(start_demo: StartDemo) -> None:
    demo = start_demo("--seconds", "8", "--reminder-seconds", "2")

    assert demo.finish() == 0, demo.explain()

    assert demo.line("Handled") > 0, demo.explain()
    assert demo.line("Lost") == 0
    assert demo.line("Reminders") > 0, demo.explain()
    assert demo.line("Reports") > 0, demo.explain()
    assert re.search(r"^Imports +\w+ after \d+ of 23 steps; prices: \d+$", demo.text(), re.MULTILINE), demo.explain()
    assert re.search(
        r"^Import +http://127\.0\.0\.1:\d+/admin/mq_django/queue/workflows/run/\w+/$", demo.text(), re.MULTILINE
    )
    assert re.search(r"^Mails +\d+ codes, \d+ passwords, \d+ newsletters$", demo.text(), re.MULTILINE), demo.explain()
    assert re.search(r"^Admin +http://127\.0\.0\.1:\d+/admin/ +user admin, password \S+$", demo.text(), re.MULTILINE)
    assert list((demo.folder / "demo" / "mails").iterdir())


def test_orders_that_are_placed_while_redis_is_away_arrive_and_are_billed_once(start_demo: StartDemo) -> None:
    demo = start_demo("--seconds", "15")

    assert demo.finish() == 0, demo.explain()

    placed, billed, failed = demo.outage()
    assert placed > 0, demo.explain()
    assert (billed, failed) == (placed, 0), demo.explain()
    assert demo.line("Doubled") == demo.line("Lost") == 0, demo.explain()
    assert re.search(r"^outbox \d+ +Cannot reach Redis ", demo.text(), re.MULTILINE), demo.explain()


def test_on_a_server_that_is_there_the_demo_leaves_nothing(start_demo: StartDemo) -> None:
    with PrivateServer(tcp=True) as server:
        demo = start_demo("--seconds", "6", redis_url=server.url)

        assert demo.finish() == 0, demo.explain()

        assert demo.line("Handled") > 0, demo.explain()
        assert demo.line("Lost") == 0, demo.explain()
        assert re.search("^Outage +none: Redis was not stopped$", demo.text(), re.MULTILINE), demo.explain()
        with redis.Redis.from_url(server.url, protocol=2, socket_timeout=5) as client:
            assert client.info("keyspace") == {}


def test_a_consumer_and_a_supervisor_that_are_killed_are_replaced_and_lose_nothing(start_demo: StartDemo) -> None:
    demo = start_demo()
    before = wait_until(lambda: handled(demo), timeout=60, message="something was handled")
    victim = wait_until(demo.consumers, timeout=30)[0]
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: handled(demo) > before, timeout=60, message="more was handled")
    os.kill(demo.supervisor(), signal.SIGKILL)
    log = demo.folder / "demo" / "logs" / "consumers.log"
    wait_until(lambda: log.read_text().count("Stop with Ctrl-C") == 2, timeout=60, message="it is started again")
    os.killpg(demo.process.pid, signal.SIGINT)

    assert demo.finish() == 0, demo.explain()

    assert demo.line("Handled") > 0
    assert demo.line("Lost") == 0, demo.explain()


def test_ctrl_c_stops_all_of_it_and_a_second_demo_keeps_out_of_its_folder(start_demo: StartDemo) -> None:
    demo = start_demo()
    wait_until(lambda: handled(demo) > 0, timeout=60, message="something was handled")
    children = demo.children()
    assert len(children) >= 6, demo.explain()
    answer = without_a_demo("--folder", str(demo.folder / "demo"))
    assert (answer.returncode, answer.stderr[:22]) == (1, "Another demo runs in /")

    os.killpg(demo.process.pid, signal.SIGINT)

    assert demo.finish() == 0, demo.explain()
    assert children.isdisjoint(processes())
    assert demo.line("Lost") == 0, demo.explain()


def test_a_demo_that_is_killed_leaves_nothing_running(start_demo: StartDemo) -> None:
    demo = start_demo()
    wait_until(lambda: handled(demo) > 0, timeout=60, message="something was handled")
    children = demo.children()

    demo.process.kill()
    demo.process.wait()

    wait_until(lambda: children.isdisjoint(processes()), timeout=60, message="all of it ended")


def without_a_demo(*options: str, **more: Any) -> "subprocess.CompletedProcess[str]":
    """Start a demo that ends at once, and return what it said."""
    command = [sys.executable, "-m", "example_project.demo", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False, **more)


def test_without_any_redis_the_demo_says_how_to_get_one(tmp_path: Path) -> None:
    (tmp_path / BUNDLE).mkdir()
    (tmp_path / BUNDLE / "__init__.py").touch()
    environment = {"PATH": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    answer = without_a_demo("--folder", str(tmp_path / "demo"), env=environment)
    assert answer.returncode == 1
    assert answer.stderr.startswith("No Redis server found. ")
    assert answer.stderr.count("\n") == 1
