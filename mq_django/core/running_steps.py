"""The step of a workflow that runs now, for code that adds steps to its run."""

from collections.abc import Sequence, Sized
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from mq_django.core.flow_graph import StepRecord


class Addition(Sized, Protocol):
    """Steps that a running step adds to its run."""

    def records(self, *, first: int = 1) -> Sequence[StepRecord]:
        """Return what is written for the steps. The first has the number `first`."""


@dataclass(slots=True)
class RunningStep:
    """A step while its task runs."""

    run_id: str
    number: int
    #: The bytes of all values of the run when it began.
    value_bytes: int = 0
    #: The steps that it adds; None for none.
    addition: Addition | None = None


#: None outside a step.
running_step: ContextVar[RunningStep | None] = ContextVar("mq_django_running_step", default=None)
