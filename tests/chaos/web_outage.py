"""Requests while Redis is killed, emptied and unreachable: `python -m tests.chaos.web`.

Half of the requests only write to a database, and half also publish through the outbox. The last line is JSON: how many
requests failed, and the ratio of the 99th percentiles of both.
"""

import argparse
import http.client
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from mq_django.transport.private_server import PrivateServer, find_server
from tests.chaos.orders import Orders
from tests.chaos.settings import KEYS
from tests.chaos.surroundings import Unavailable
from tests.chaos.transaction_stage import ALIAS
from tests.chaos.transactions import around
from tests.chaos.trees import ROOT, environment
from tests.databases.database_servers import KINDS
from tests.waiting import wait_until

#: Threads with requests, and seconds from one request of a thread to its next.
THREADS, PACE = 4, 0.04
PAGES = ("insert", "publish")


class Request(NamedTuple):
    """A request that has ended."""

    page: str
    phase: str
    seconds: float
    #: What was wrong; "" if nothing.
    error: str


class Load:
    """Threads that send requests to both pages in turn."""

    def __init__(self, port: int) -> None:
        self._port = port
        #: What Redis does now.
        self.phase = "warm-up"
        self.requests: list[Request] = []
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,), daemon=True) for number in range(THREADS)]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Send no more requests."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(60)

    def _run(self, seed: int) -> None:
        rng = random.Random(seed)
        while not self._stopping.is_set():
            began = time.monotonic()
            for page in rng.sample(PAGES, len(PAGES)):
                self._request(page)
            self._stopping.wait(max(0.0, began + len(PAGES) * PACE - time.monotonic()))

    def _request(self, page: str) -> None:
        phase, began, error = self.phase, time.monotonic(), ""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            connection.request("GET", f"/{page}")
            response = connection.getresponse()
            response.read()
            error = "" if response.status == 200 else f"status {response.status}"
        except (OSError, http.client.HTTPException) as caught:
            error = repr(caught)
        finally:
            connection.close()
        self.requests.append(Request(page, phase, time.monotonic() - began, error))


def play(kind: str, seconds: float, *, say: Callable[[str], object] = sys.stdout.write) -> dict[str, object]:
    """Do everything to Redis under load, and return the figures.

    Args:
        kind: the kind of the database.
        seconds: for how long Redis is unreachable, and each of the other phases lasts a third of that.

    Raises:
        Unavailable: there is no such database here.
    """
    short, server = seconds / 3, PrivateServer(tcp=True, append_only=True)
    with around(kind)(find_server()), server:
        orders = Orders(ALIAS)
        orders.create(KEYS)
        with tempfile.TemporaryDirectory(prefix="mq-web-") as folder, _processes(server.url, Path(folder)) as port:
            load = Load(port)
            load.start()
            time.sleep(2.0)
            for phase, do in _phases(server, short, seconds):
                load.phase = phase
                do()
            load.phase = "after"
            time.sleep(short)
            load.stop()
            wait_until(lambda: not any(orders.outbox()), timeout=30, message="all rows are published")
            return figures(kind, load.requests, say)


def _phases(server: PrivateServer, short: float, seconds: float) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield what Redis does, in turn."""

    def killed() -> None:
        server.kill()
        time.sleep(short)
        server.start()

    def emptied() -> None:
        # Another server on its port, without data.
        server.stop()
        server.start()
        time.sleep(short)

    def unreachable() -> None:
        pid = server.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)

    yield "before", lambda: time.sleep(short)
    yield "killed", killed
    yield "emptied", emptied
    yield "unreachable", unreachable


@contextmanager
def _processes(connection: str, folder: Path) -> Iterator[int]:
    """Start a web server and a relay, and yield the port."""
    own = {**environment(connection, folder), "CHAOS_HISTORY": ""}
    with (folder / "log").open("ab") as log:
        relay = [sys.executable, "-m", "django", "mq", "outbox", "--relay"]
        web = [sys.executable, "-m", "tests.chaos.web_server"]
        relaying = subprocess.Popen(relay, cwd=ROOT, env=own, stdout=log, stderr=log)
        serving = subprocess.Popen(web, cwd=ROOT, env=own, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert serving.stdout is not None
        yield int(serving.stdout.readline())
    finally:
        for process in (serving, relaying):
            process.kill()
            process.wait(30)
        if serving.stdout is not None:
            serving.stdout.close()


def figures(kind: str, requests: Sequence[Request], say: Callable[[str], object]) -> dict[str, object]:
    """Write a line for each phase, and return the figures of all."""
    measured = [one for one in requests if one.phase != "warm-up"]
    for phase in dict.fromkeys(one.phase for one in measured):
        say(f"{kind:<12} {phase:<12} {_line([one for one in measured if one.phase == phase])}\n")
    failed = [one for one in requests if one.error]
    for error in sorted({one.error for one in failed}):
        say(f"    {error}\n")
    p99 = {page: _percentile([one for one in measured if one.page == page], 99) for page in PAGES}
    return {
        "database": kind,
        "requests": len(requests),
        "failed": len(failed),
        **{f"{page}_p99_ms": round(p99[page] * 1000, 2) for page in PAGES},
        "p99_ratio": round(p99["publish"] / p99["insert"], 2),
    }


def _line(requests: Sequence[Request]) -> str:
    parts = []
    for page in PAGES:
        own = [one for one in requests if one.page == page]
        p50, p99 = (_percentile(own, number) * 1000 for number in (50, 99))
        failed = sum(bool(one.error) for one in own)
        parts.append(f"{page}: {len(own)} requests, {failed} failed, p50 {p50:.1f} ms, p99 {p99:.1f} ms")
    return "; ".join(parts)


def _percentile(requests: Sequence[Request], number: int) -> float:
    seconds = [one.seconds for one in requests]
    return statistics.quantiles(seconds, n=100)[number - 1] if len(seconds) > 1 else 0.0


def main(arguments: Sequence[str]) -> int:
    """Play, write the figures, and return 1 if a request has failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.web")
    parser.add_argument("kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--seconds", type=float, default=30.0, help="For how long Redis is unreachable.")
    options = parser.parse_args(arguments)
    failed, every = 0, []
    for kind in options.kinds:
        try:
            found = play(kind, options.seconds)
        except Unavailable as why:
            sys.stdout.write(f"{kind:<12} left out: {why}\n")
        else:
            every.append(found)
            failed += bool(found["failed"])
    sys.stdout.write(json.dumps(every) + "\n")
    return 1 if failed else 0
