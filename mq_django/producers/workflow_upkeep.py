"""Continue what processes that have ended have left of workflows, and end runs that have expired.

Whatever this does a second time changes nothing.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mq_django.core import clock
from mq_django.producers.step_starts import advance, publish_starts
from mq_django.stores.workflow_home import KEPT_MS, Event, LeftWork, Start, WorkflowHome


class RunWork(NamedTuple):
    """What is left to do for one run: to publish starts, or to make changes."""

    run: str
    starts: Sequence[Start] = ()
    events: Sequence[Event] = ()


def by_run(left: LeftWork) -> Iterator[RunWork]:
    """Yield what is left, run by run."""
    for run_id, starts in left.starts.items():
        yield RunWork(run_id, starts)
    for run_id in left.changes:
        yield RunWork(run_id)
    for run_id in left.expired:
        yield RunWork(run_id, events=[Event("expire")])


def do(home: WorkflowHome, work: RunWork) -> None:
    """Do what is left of one run.

    Raises:
        MQError: a start cannot be published, or the server of the project refuses a command.
    """
    if work.starts:
        if error := publish_starts(home, work.run, work.starts):
            raise error
    elif not advance(home, work.run, work.events).state:
        # Another program has deleted the run.
        home.forget_runs([work.run])


def forget_old(home: WorkflowHome, *, skipped: int, now_ms: int | None = None) -> int:
    """Remove some of the runs from the list of all runs that were kept long enough.

    Args:
        home: the home.
        skipped: what the call before has returned; 0 at first.
        now_ms: ms since 1970; None: now.

    Returns:
        What the next call gets.
    """
    return home.forget_gone((clock.now_ms() if now_ms is None else now_ms) - KEPT_MS, skipped) or 0
