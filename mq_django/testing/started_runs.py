"""The runs of workflows that a test has started, and what supervisors do for them."""

from collections.abc import Iterable
from typing import Any, SupportsIndex, overload

from mq_django.conf import get_config
from mq_django.core.texts import repr_of
from mq_django.errors import TestKitError, UnknownRun
from mq_django.inspector import workflow_runs
from mq_django.producers.workflow_run import Run, by_run, do
from mq_django.producers.workflow_steps import StepDelivery, open_homes
from mq_django.testing.transactions import pending_runs
from mq_django.transport.connections import open_transport

#: The most runs that a text shows, and the most characters of an error in it.
MAX_RUNS, MAX_ERROR = 20, 300
#: How old what is left has to be: nobody else works on it. The clock of a test can go back by a moment.
AGE_MS = -1000


class StartedRuns(list[Run]):
    """Runs of workflows, in the order in which they were started. The text of the list has the state of each."""

    def __init__(self, found: Iterable[Run] = ()) -> None:
        super().__init__(found)
        self._waiting = pending_runs()

    @overload
    def __getitem__(self, at: SupportsIndex, /) -> Run: ...

    @overload
    def __getitem__(self, at: slice, /) -> list[Run]: ...

    def __getitem__(self, at: SupportsIndex | slice, /) -> Run | list[Run]:
        """Return a run, or several. The error for one that is not there tells which runs there are."""
        __tracebackhide__ = True
        try:
            return super().__getitem__(at)
        except IndexError:
            raise IndexError(f"there is no run {at}: {self!r}") from None

    def get(self, workflow: Any = None, /, *, name: str | None = None, state: str | None = None) -> Run:
        """Return the one run that matches.

        Args:
            workflow: a workflow; None: any.
            name: the name of a workflow; None: any.
            state: building, running, succeeded, failed, cancelled or expired; None: any.

        Raises:
            AssertionError: there is none, or more than one. It tells which runs there are.
            TestKitError: `workflow` is no workflow, or there is no such state.
            StoreError: Redis cannot be reached.
        """
        __tracebackhide__ = True
        asked = {"name": name, "state": state} | ({} if workflow is None else {"name": _name_of(workflow)})
        if state is not None and state not in workflow_runs.RUN_STATES:
            raise TestKitError(f"state= is one of {', '.join(workflow_runs.RUN_STATES)}, not {repr_of(state)}")
        found = [run for run in self if asked["name"] in (None, run.name) and state in (None, _state(run))]
        if len(found) == 1:
            return found[0]
        text = " and ".join(f"{what} {repr_of(value)}" for what, value in asked.items() if value is not None)
        raise AssertionError(f"expected 1 run with {text or 'any name and state'}, found {len(found)}: {self!r}")

    def __repr__(self) -> str:
        """Return one run a line, with its state; for an empty list why it is empty."""
        more = [f"  and {len(self) - MAX_RUNS} more"] if len(self) > MAX_RUNS else []
        lines = [f"  {_line(run)}" for run in self[:MAX_RUNS]] + more
        if lines:
            return "\n".join(["[", *lines, "]", *filter(None, [self.waiting()])])
        return f"[]: {self.waiting() or 'no run was started'}"

    def waiting(self) -> str:
        """Return the runs that wait for a commit as text; empty if there are none."""
        count = len(self._waiting)
        if not count:
            return ""
        waits = "1 run of a workflow waits" if count == 1 else f"{count} runs of workflows wait"
        names = "\n".join(f"  {run.name}" for run in self._waiting[:MAX_RUNS])
        return f"{waits} for the commit: call mq.commit()\n{names}"


def run_supervised() -> int:
    """Do what a supervisor does for workflows, and return how much there was to do.

    Passes on how steps have ended whose messages were deleted or redriven, publishes steps that a full queue has
    refused, and ends runs that have expired.
    """
    found = [(home, left) for home in open_homes() if (left := home.left(age_ms=AGE_MS)) is not None]
    if not found:
        return 0
    done = 0
    for queue in get_config().each_part():
        if "step" not in queue.unsupported:
            done += StepDelivery(queue, open_transport("consume", queue.connection)).deliver_left(age_ms=AGE_MS)
    for home, left in found:
        for work in by_run(left):
            do(home, work)
            done += 1
    return done


def _name_of(workflow: Any) -> str:
    name = getattr(workflow, "name", None)
    if not hasattr(workflow, "start") or not isinstance(name, str):
        raise TestKitError(f"get() takes a workflow, or name=, not {repr_of(workflow)}")
    return name


def _state(run: Run) -> str:
    try:
        return run.state
    except UnknownRun:
        return ""


def _line(run: Run) -> str:
    view = workflow_runs.run(run.id)
    if view is None:
        return f"{run.name}: deleted, or ended more than a week ago"
    counts = {"failed": view.failed, "skipped": view.skipped, "started": view.started, "waiting": view.waiting}
    parts = [f"{view.done} of {view.total} steps done", *(f"{count} {word}" for word, count in counts.items() if count)]
    failed = workflow_runs.failure(run.id) if view.failed else None
    error = f"; step {failed[0]}: {failed[1][:MAX_ERROR]}" if failed else ""
    return f"{run.name}: {view.state}, {', '.join(parts)}{error}"
