"""Runs of workflows: their state, and what an operator can do with them."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mq_django.conf import get_config
from mq_django.core.jsontext import loads
from mq_django.core.numbers import whole
from mq_django.core.step_ids import is_run_id, message_id_of
from mq_django.errors import UnknownRun
from mq_django.producers.asynchronous import asynchronous
from mq_django.producers.step_courier import StepCourier
from mq_django.producers.step_starts import advance, open_home
from mq_django.stores.dead_letter_queue import open_dead_letters
from mq_django.stores.workflow_home import BATCH, Event, StepState, WorkflowHome
from mq_django.transport.connections import open_wire

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
    """A run of a workflow."""

    def __init__(self, run_id: str) -> None:
        self.id = run_id

    def __repr__(self) -> str:
        return f"<Run {self.id}>"

    @property
    def state(self) -> str:
        """Return building, running, succeeded, failed, cancelled or expired.

        Raises:
            UnknownRun: there is no such run: it has ended a week ago, or waits for a commit.
            StoreError: Redis cannot be reached.
        """
        return self._fields()["state"].decode()

    @property
    def progress(self) -> RunProgress:
        """Return the numbers of its steps.

        Raises:
            UnknownRun: see state.
            StoreError: Redis cannot be reached.
        """
        fields = self._fields()
        return RunProgress(
            *(whole(fields.get(name), 10**9) or 0 for name in ("total", "done", "failed", "skipped", "flying"))
        )

    def cancel(self) -> bool:
        """End the run: no further step starts. Returns whether it was running.

        Raises:
            UnknownRun: see state.
            StoreError: Redis cannot be reached.
        """
        before = self.state
        self._apply(Event("cancel"))
        return before == "running"

    acancel = asynchronous(cancel)

    def retry(self) -> int:
        """Let the run continue that has failed, expired or was cancelled, and return how many failed steps run again.

        The dead letters of failed steps are redriven. A step whose dead letter is gone gets a new message.

        Raises:
            UnknownRun: see state.
            StoreError: Redis cannot be reached.
        """
        home = open_home(self.id)
        failed = [step for step in self._steps(home) if step.state == "F"]
        redriven = self._redrive(home, failed)
        again = [Event("again", step.number) for step in failed if step.number not in redriven]
        for at in range(0, len(again), BATCH):
            self._apply(*again[at : at + BATCH])
        self._apply(Event("continue"))
        return len(failed)

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
        before = next((each for each in self._steps(open_home(self.id)) if each.number == step), None)
        self._apply(Event("passed", step))
        return before is not None and before.state == "F"

    askip = asynchronous(skip)

    def _steps(self, home: WorkflowHome) -> Iterator[StepState]:
        cursor = -1
        while cursor:
            cursor, found = home.records(self.id, max(cursor, 0))
            yield from found

    def _redrive(self, home: WorkflowHome, steps: Sequence[StepState]) -> set[int]:
        """Redrive the dead letters of steps, and return the steps that had one."""
        by_queue: dict[str, dict[str, int]] = defaultdict(dict)
        for at in range(0, len(steps), BATCH):
            batch = steps[at : at + BATCH]
            for step, body in zip(batch, home.bodies(self.id, [step.number for step in batch]), strict=True):
                queue = loads(body)["queue"]
                by_queue[queue][message_id_of(self.id, step.number, step.round)] = step.number
        redriven: set[int] = set()
        for queue, numbers in by_queue.items():
            config = get_config().queue(queue)
            wire = open_wire("produce", config.connection)
            letters, ids = open_dead_letters(config, wire), list(numbers)
            for at in range(0, len(ids), BATCH):
                part = ids[at : at + BATCH]
                entries = {known: entry for known, entry in zip(part, letters.find(part), strict=True) if entry}
                words = letters.redrive(list(entries.values())) if entries else []
                done = [known for known, word in zip(entries, words, strict=True) if word == "REDRIVEN"]
                redriven |= {numbers[known] for known in done}
                StepCourier(config, wire).deliver(done)
        return redriven

    def _apply(self, *events: Event) -> None:
        if not advance(open_home(self.id), self.id, events).state:
            raise UnknownRun(f"There is no run {self.id}")

    def _fields(self) -> dict[str, bytes]:
        fields = open_home(self.id).read(self.id)
        if "state" not in fields:
            raise UnknownRun(f"There is no run {self.id}")
        return fields


def get_run(run_id: str) -> Run:
    """Return a run by its id.

    Args:
        run_id: `Run.id`.

    Raises:
        UnknownRun: this is not the id of a run.
    """
    if not is_run_id(run_id):
        raise UnknownRun(f"{run_id!r:.100} is not the id of a run")
    return Run(run_id)
