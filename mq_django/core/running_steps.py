"""The step of a workflow that runs now, for code that adds steps to its run."""

from collections.abc import Callable, Sequence, Sized
from contextvars import ContextVar
from dataclasses import dataclass

from mq_django.core.flow_graph import StepRecord

#: Returns what is written for steps. The first has the number `first`.
Records = Callable[[int], Sequence[StepRecord]]


@dataclass(slots=True)
class RunningStep:
    """A step while its task runs."""

    run_id: str
    number: int
    #: The bytes of all values of the run when it began.
    value_bytes: int = 0
    #: The flow of the steps that it adds, and their records; None for none.
    flow: Sized | None = None
    records: Records | None = None


#: None outside a step.
running_step: ContextVar[RunningStep | None] = ContextVar("mq_django_running_step", default=None)
