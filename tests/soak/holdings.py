"""What the processes of the example project hold, looked at again and again while it works."""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from django.core.management import call_command

from example_project.demo import account, watch
from example_project.demo.closing import Closing
from example_project.demo.live import LiveLine
from example_project.demo.show import drain
from example_project.demo.stage import Stage, running
from example_project.demo.surroundings import Surroundings
from example_project.demo.visitors import Visitors
from mq_django import inspect
from mq_django.transport.connections import get_client

#: Looks at what is held, at most a minute apart: each quarter of a short run is to have some.
LOOKS, LONGEST = 40, 60.0


class Holdings(NamedTuple):
    """What is held at a time."""

    supervisor_mb: float
    #: How much the consumer that is never killed has more than the youngest: what handlers need grows with the shop's
    #: data, for all consumers alike.
    older_mb: float
    descriptors: int
    threads: int
    connections: int


#: By how much the least of the last quarter may be above the least of the second: connections to databases come and go.
#: A heap stays as large as its largest moment was.
ALLOWED = Holdings(supervisor_mb=6, older_mb=10, descriptors=3, threads=2, connections=4)


def soak(found: Surroundings, closing: Closing, *, seconds: float, rate: float, kill: float) -> int:
    """Let visitors in, kill the youngest consumer again and again, and return 1 if something has grown.

    Also if a message was lost, or an order billed twice.
    """
    call_command("openshop", verbosity=0)
    looks: list[Holdings] = []
    with running(found, closing) as stage:
        stage.consumers.wait_until(watch.is_consumed, closing=closing)
        visitors = Visitors(stage.site, per_second=rate)
        visitors.start()
        try:
            for look in _looks(stage, closing, seconds=seconds, kill=kill):
                print(f"{len(looks) + 1:4}  {_line(look)}", flush=True)
                looks.append(look)
        finally:
            visitors.stop()
        drain(stage, LiveLine(), closing)
    print(account.report(result := account.settle()))
    grown = list(_grown(looks))
    print("\n".join(grown) or f"After {visitors.orders} orders nothing holds more than before.")
    return 1 if grown or result.lost or result.doubled else 0


def _looks(stage: Stage, closing: Closing, *, seconds: float, kill: float) -> Iterator[Holdings]:
    """Kill a consumer each `kill` seconds, and yield what is held when the next one has worked for half of them."""
    now = time.monotonic()
    until, every, kill_at, look_at = now + seconds, min(LONGEST, seconds / LOOKS), now + kill, now
    while not closing.asked and now < until:
        stage.tend()
        if now >= kill_at:
            kill_at = now + kill
            if len(consumers := _consumers()) > 1:
                with suppress(ProcessLookupError):
                    os.kill(consumers[-1], signal.SIGKILL)
        if now >= look_at and kill_at - now < kill / 2:
            look_at = now + every
            yield _held(stage.consumers.pid)
        time.sleep(0.2)
        now = time.monotonic()


def _consumers() -> list[int]:
    """Return the processes of the consumers, the oldest first."""
    found = [each for supervisor in inspect.consumers().supervisors for each in supervisor.processes]
    known = sorted((each.since_ms or 0, each.pid) for each in found if each.pid)
    return [pid for _, pid in known if Path(f"/proc/{pid}").exists()]


def _held(supervisor: int) -> Holdings:
    tree, consumers = [supervisor, *_children(supervisor)], _consumers()
    return Holdings(
        _megabytes(supervisor),
        _megabytes(consumers[0]) - _megabytes(consumers[-1]),
        sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in tree),
        sum(len(list(Path(f"/proc/{pid}/task").iterdir())) for pid in tree),
        int(get_client("chores").info("clients")["connected_clients"]),
    )


def _children(pid: int) -> list[int]:
    """Return the processes that a process has started, or adopted."""
    texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(text) for text in " ".join(texts).split()]


def _megabytes(pid: int) -> float:
    """Return the memory of a process that is no file's, also what it still shares with the one that has forked it."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) / 1024


def _line(look: Holdings) -> str:
    return "  ".join(f"{name} {value:.1f}" for name, value in look._asdict().items())


def _grown(looks: Sequence[Holdings]) -> Iterator[str]:
    """Yield what holds more in the last quarter of the time than in the second."""
    quarter = len(looks) // 4
    if quarter < 3:
        yield f"There were only {len(looks)} looks."
        return
    for name, allowed in ALLOWED._asdict().items():
        before, after = (
            min(getattr(look, name) for look in part) for part in (looks[quarter : 2 * quarter], looks[-quarter:])
        )
        if after > before + allowed:
            yield f"GROWN {name}: {before:.1f} in the second quarter, {after:.1f} in the last"
