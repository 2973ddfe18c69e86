"""The same work as tasks."""

import time
from typing import Any

from benchmarks import messages
from mq_django import task

QUEUE = messages.queue_name(0)


@task(queue_name=QUEUE)
def noop(data: dict[str, Any]) -> None:
    """Do nothing."""


@task(queue_name=QUEUE)
def note(data: dict[str, Any]) -> None:
    """Leave a note."""
    messages.note(data)


@task(queue_name=QUEUE)
def work(data: dict[str, Any]) -> None:
    """Leave a note after a while."""
    time.sleep(messages.SLEEPS[messages.WORK])
    messages.note(data)


@task(queue_name=QUEUE)
def step(*_: Any) -> None:
    """Do nothing as a step of a workflow."""


@task(queue_name=QUEUE)
def moment() -> int:
    """Return when it runs, in nanoseconds on the clock of all processes."""
    return time.monotonic_ns()
