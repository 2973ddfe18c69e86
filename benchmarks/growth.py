"""How the figures change with the number of messages, threads and queues."""

import time
from dataclasses import replace
from functools import partial

from benchmarks import workloads
from benchmarks.contenders import Contender, total
from benchmarks.messages import NOTE
from benchmarks.trial import Failed, Trial
from benchmarks.workloads import Figures, Workload

THREADS = (1, 8, 64)
QUEUES = 50
#: Seconds that a queue is drained for, when it is too long to be emptied.
WINDOW = 10.0


def delays_among(waiting: int) -> Workload:
    """Return the workload of delays while others wait."""
    return partial(workloads.delays, waiting=waiting)


def messages(contender: Contender) -> Figures:
    """Fill and drain queues of several sizes."""
    figures = {}
    for size in contender.sizes:
        with Trial(contender) as trial:
            figures[f"publish {size:,} /s"] = size / workloads.fill(trial, size)
            with trial.consumer() as tree:
                figures[f"handle {size:,} /s"] = trial.drain(tree, seconds=WINDOW).rate
    return figures


def threads(contender: Contender) -> Figures:
    """Handle with few and many threads."""
    return {f"{count} threads /s": workloads.handle(contender, threads=count).rate for count in THREADS}


def queues(contender: Contender) -> Figures:
    """Handle, and be idle, with many queues at once."""
    every = total(*(f"XLEN mq:{{bench{number}}}:ready" for number in range(QUEUES)))
    with Trial(replace(contender, remaining=every), queues=QUEUES) as trial:
        workloads.fill(trial, contender.handled)
        with trial.consumer() as tree:
            rate = trial.drain(tree, seconds=30.0).rate
    rested = workloads.idle(contender, queues=QUEUES)
    return {f"{QUEUES} queues /s": rate, **{f"{QUEUES} queues {name}": value for name, value in rested.items()}}


def consumer_memory(contender: Contender) -> Figures:
    """Watch the largest process of a consumer while it handles a million messages."""
    with Trial(contender) as trial, trial.consumer() as tree:
        trial.do("pace", kind=NOTE, count=20, rate=50)
        trial.wait_for_notes(20, timeout=30)
        largest = before = max(tree.memory().values())
        publishing, give_up = trial.begin("publish", count=1_000_000, bulk=True), time.monotonic() + 300
        while publishing.poll() is None or trial.remaining():
            if time.monotonic() > give_up:
                raise Failed(f"{contender.name}: {trial.remaining():,} of 1,000,000 were not handled in 300 s")
            largest = max(largest, *tree.memory().values())
            time.sleep(0.2)
        publishing.communicate()
        after = max(tree.memory().values())
    return {"MB before": before, "MB at most": largest, "MB after 1,000,000": after, "grown MB": after - before}
