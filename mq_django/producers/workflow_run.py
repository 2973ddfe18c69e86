"""Runs of workflows: their state, and what an operator can do with them."""

from typing import NamedTuple

from mq_django.core.exceptions import repr_of
from mq_django.core.numbers import whole
from mq_django.core.step_ids import is_run_id
from mq_django.errors import UnknownRun
from mq_django.producers import run_actions
from mq_django.producers.asynchronous import asynchronous
from mq_django.producers.run_failures import RunFailure, failure_of
from mq_django.producers.step_starts import open_home

#: The states in which nothing starts.
ENDED = frozenset({"succeeded", "failed", "cancelled", "expired"})


class RunProgress(NamedTuple):
    """How many steps of a run there are, and how they have ended."""

    total: int
    done: int
    failed: int
    skipped: int
    #: They are published, and have not ended.
    started: int


class Run:
    """A run of a workflow. Two of them are equal if they have the same id."""

    def __init__(self, run_id: str, *, name: str = "") -> None:
        self.id = run_id
        self._name = name

    def __repr__(self) -> str:
        return f"<Run {self.id} of {self._name}>" if self._name else f"<Run {self.id}>"

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, Run) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def name(self) -> str:
        """Return the name of the workflow.

        Raises:
            UnknownRun: see state.
            StoreError: Redis cannot be reached.
        """
        if not self._name:
            self._name = self._read().get("name", b"").decode(errors="replace")
        return self._name

    @property
    def state(self) -> str:
        """Return building, running, succeeded, failed, cancelled or expired.

        Raises:
            UnknownRun: there is no such run: it has ended a week ago, or waits for a commit.
            StoreError: Redis cannot be reached.
        """
        return self._read()["state"].decode()

    @property
    def progress(self) -> RunProgress:
        """Return the numbers of its steps.

        Raises:
            UnknownRun: see state.
            StoreError: Redis cannot be reached.
        """
        fields = self._read()
        return RunProgress(
            *(whole(fields.get(name), 10**9) or 0 for name in ("total", "done", "failed", "skipped", "flying"))
        )

    @property
    def failure(self) -> RunFailure | None:
        """Return the step that has failed last, with its arguments and its error; None if none has failed.

        Raises:
            UnknownRun: see state.
            StoreError: Redis cannot be reached.
        """
        self._read()
        return failure_of(open_home(self.id), self.id)

    def cancel(self) -> bool:
        """End the run: no further step starts. Returns whether it was running.

        Raises:
            UnknownRun: see state.
            StoreError: Redis cannot be reached.
        """
        return run_actions.cancel(self.id)

    acancel = asynchronous(cancel)

    def retry(self) -> int:
        """Let the run continue that has failed, expired or was cancelled, and return how many failed steps run again.

        The dead letters of failed steps are redriven. A step whose dead letter is gone gets a new message.

        Raises:
            UnknownRun: see state.
            StoreError: Redis cannot be reached.
        """
        return run_actions.retry(self.id).steps

    aretry = asynchronous(retry)

    def skip(self, step: int) -> bool:
        """Let the run continue as if a failed step had succeeded. Its value is missing.

        Args:
            step: its number.

        Returns:
            Whether it had failed.

        Raises:
            UnknownRun: see state.
            StoreError: Redis cannot be reached.
        """
        return run_actions.skip(self.id, step)

    askip = asynchronous(skip)

    def _read(self) -> dict[str, bytes]:
        return run_actions.read_run(self.id)


def get_run(run_id: str) -> Run:
    """Return a run by its id.

    Args:
        run_id: `Run.id`.

    Raises:
        UnknownRun: this is not the id of a run.
    """
    if not is_run_id(run_id):
        raise UnknownRun(f"{repr_of(run_id)} is not the id of a run")
    return Run(run_id)
