"""Continue what processes that have ended have left of workflows, and end runs that have expired.

Whatever this does a second time changes nothing.
"""

from collections.abc import Callable

from mq_django.producers.step_starts import advance, publish_starts
from mq_django.stores.workflow_home import KEPT_MS, Event, WorkflowHome


def keep_up(home: WorkflowHome, *, before_ms: int, now_ms: int, progressed: Callable[[], object] = lambda: None) -> int:
    """Publish the starts of a home and make the changes that were left before a time, and end expired runs.

    Args:
        home: the home.
        before_ms: what is later may still be done by others; ms since 1970.
        now_ms: runs that expire until then end; ms since 1970.
        progressed: called after each step.

    Returns:
        How many runs were looked at.
    """
    starts, left, expired = home.old_starts(before_ms), home.left(before_ms), home.expired(now_ms)
    for run_id, group in starts.items():
        publish_starts(home, run_id, group)
        progressed()
    for run_id, events in [*((run_id, []) for run_id in left), *((run_id, [Event("expire")]) for run_id in expired)]:
        if not advance(home, run_id, events).state:
            # Another program has deleted the run.
            home.forget_runs([run_id])
        progressed()
    return len(starts) + len(left) + len(expired)


def forget_old(home: WorkflowHome, *, now_ms: int, skipped: int) -> int:
    """Remove some of the runs from the list of all runs that were kept long enough.

    Args:
        home: the home.
        now_ms: ms since 1970.
        skipped: what the call before has returned; 0 at first.

    Returns:
        What the next call gets.
    """
    return home.forget_gone(now_ms - KEPT_MS, skipped) or 0
