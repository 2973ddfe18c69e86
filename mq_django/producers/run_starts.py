"""Start runs of workflows: now, or when a transaction commits."""

from collections.abc import Mapping, Sequence

from django.dispatch import Signal

from mq_django.core.flow_graph import StepRecord
from mq_django.producers.step_starts import advance, open_home
from mq_django.producers.workflow_run import Run
from mq_django.stores.workflow_home import Event
from mq_django.transport.scripts import Argument

#: A run was started. Internal: `mq_django.testing` records it. Arguments: run (Run).
run_started = Signal()


class PendingRun:
    """A function without arguments that starts a run. As an on-commit hook it can be recognised."""

    def __init__(self, run: Run, fields: Mapping[str, Argument], steps: Sequence[StepRecord]) -> None:
        self.run = run
        self._fields = fields
        self._steps = steps
        #: Whether it was called.
        self.called = False

    def __call__(self) -> Run:
        """Start the run. If another run has its unique key, it becomes that one."""
        self.called = True
        home = open_home(self.run.id)
        home.create(self.run.id, self._fields, self._steps)
        holder = advance(home, self.run.id, [Event("begin", added=f"1-{len(self._steps)}")]).holder
        if holder:
            self.run.id = holder
        else:
            run_started.send_robust(Run, run=self.run)
        return self.run
