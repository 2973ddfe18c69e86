"""How long `publish()`, `enqueue()` and `aenqueue()` take, beside a PING of redis-py, with networks of several delays.

python -m benchmarks.publish_latency
"""

import asyncio
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from queue import SimpleQueue
from typing import Any
from urllib.parse import urlsplit

import django
import redis

from benchmarks import messages
from benchmarks.contenders import HANDLERS
from benchmarks.trial import Trial, percentile

#: Milliseconds that a network takes for both ways.
NETWORKS = (0.0, 0.2, 2.0)
#: Rounds of each, in turns, and calls in a round.
ROUNDS, CALLS = 5, 400


def measured(call: Callable[[int], Any]) -> list[float]:
    """Return the milliseconds that each call takes."""
    found = []
    for number in range(CALLS):
        began = time.perf_counter()
        call(number)
        found.append((time.perf_counter() - began) * 1000)
    return found


async def awaited(call: Callable[[int], Any]) -> list[float]:
    """Return the milliseconds that each awaited call takes."""
    found = []
    for number in range(CALLS):
        began = time.perf_counter()
        await call(number)
        found.append((time.perf_counter() - began) * 1000)
    return found


def calls(url: str) -> dict[str, Callable[[], list[float]]]:
    """Return what is measured. The project is set up already."""
    from benchmarks.ours import tasks  # noqa: PLC0415 - needs the project to be set up
    from mq_django import queues  # noqa: PLC0415

    queue, client = queues[messages.queue_name(0)], redis.Redis.from_url(url)
    return {
        "PING": lambda: measured(lambda _: client.ping()),
        "publish()": lambda: measured(lambda number: queue.publish("noop", messages.make(number))),
        "enqueue()": lambda: measured(lambda number: tasks.noop.enqueue(messages.make(number))),
        "aenqueue()": lambda: asyncio.run(awaited(lambda number: tasks.noop.aenqueue(messages.make(number)))),
    }


def run(url: str) -> None:
    """Measure with the Redis at a URL, and print a line for each call."""
    os.environ["BENCH_REDIS_URL"] = url
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.ours.settings")
    django.setup()
    found: dict[str, list[float]] = {}
    measures = calls(url)
    for measure in measures.values():
        measure()
    for _ in range(ROUNDS):
        for name, measure in measures.items():
            found.setdefault(name, []).extend(measure())
    for name, values in found.items():
        print(f"  {name}: p50 {percentile(values, 50):.2f} ms, p99 {percentile(values, 99):.2f} ms", flush=True)


@contextmanager
def delayed(url: str, seconds: float) -> Iterator[str]:
    """Run a proxy whose network takes so many seconds one way, in a process of its own, and yield its URL."""
    target = urlsplit(url)
    with socket.create_server(("127.0.0.1", 0)) as server:
        process = get_context("fork").Process(target=_serve, args=(server, (target.hostname, target.port), seconds))
        process.start()
        try:
            yield f"redis://127.0.0.1:{server.getsockname()[1]}"
        finally:
            process.kill()
            process.join()


def _serve(server: socket.socket, target: tuple[str, int], seconds: float) -> None:
    while True:
        client, _ = server.accept()
        upstream = socket.create_connection(target)
        for source, sink in ((client, upstream), (upstream, client)):
            sink.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            late: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
            threading.Thread(target=_read, args=(source, late, seconds), daemon=True).start()
            threading.Thread(target=_write, args=(sink, late), daemon=True).start()


def _read(source: socket.socket, late: "SimpleQueue[tuple[float, bytes]]", seconds: float) -> None:
    while data := source.recv(65536):
        late.put((time.perf_counter() + seconds, data))
    late.put((0.0, b""))


def _write(sink: socket.socket, late: "SimpleQueue[tuple[float, bytes]]") -> None:
    while True:
        due, data = late.get()
        if not data:
            sink.close()
            return
        # The last part without sleeping, which is too coarse.
        while (left := due - time.perf_counter()) > 0:
            if left > 0.0002:
                time.sleep(left - 0.0002)
        sink.sendall(data)


def main() -> None:
    """Measure with each network, each in a process of its own, because a project has one Redis."""
    for milliseconds in NETWORKS:
        print(f"{milliseconds:g} ms of network:", flush=True)
        with ExitStack() as stack:
            url = stack.enter_context(Trial(HANDLERS)).url
            if milliseconds:
                url = stack.enter_context(delayed(url, milliseconds / 2000))
            measuring = get_context("spawn").Process(target=run, args=(url,))
            measuring.start()
            measuring.join()
            if measuring.exitcode:
                sys.exit(measuring.exitcode)


if __name__ == "__main__":
    main()
