"""Start runs of workflows and wait for their ends: `benchmarks.workflow_runs` runs it."""

import json
import os
import sys
import time

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.ours.settings")
django.setup()

from benchmarks.ours import tasks  # noqa: E402 - needs the project to be set up
from mq_django.workflows import Flow, Run, workflow  # noqa: E402

#: Seconds for a run.
TIMEOUT = 300
#: Seconds between two looks at a run.
LOOK = 0.02


@workflow
def mapped(flow: Flow, count: int) -> None:
    """Run steps at the same time, then one after all of them."""
    flow.add(tasks.step).after(flow.map(tasks.step, range(count)))


@workflow
def crossed(flow: Flow, count: int) -> None:
    """Run steps at the same time, then as many of which each waits for all of them."""
    first = flow.map(tasks.step, range(count))
    flow.map(tasks.step, range(count)).after(first)


@workflow
def chained(flow: Flow, count: int) -> None:
    """Run steps one after another."""
    last = flow.add(tasks.step)
    for _ in range(count - 1):
        last = flow.add(tasks.step).after(last)


def ended(run: Run) -> bool:
    """Return whether a run has succeeded."""
    state = run.state
    if state not in {"running", "succeeded"}:
        raise RuntimeError(f"The run is {state}")
    return state == "succeeded"


def seconds(name: str, count: int) -> float:
    """Start a run, wait for its end, and return how long that took."""
    began = time.monotonic()
    run = globals()[name].start(count)
    while not ended(run):
        if time.monotonic() > began + TIMEOUT:
            raise RuntimeError(f"{name} has not ended: {run.progress}")
        time.sleep(LOOK)
    return time.monotonic() - began


if __name__ == "__main__":
    seconds("mapped", 100)
    pairs = [word.partition("=") for word in sys.argv[1:]]
    json.dump([seconds(name, int(count)) for name, _, count in pairs], sys.stdout)
