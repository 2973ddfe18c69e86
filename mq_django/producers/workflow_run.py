"""Runs of workflows: their state, and what an operator can do with them."""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from django.dispatch import Signal

from mq_django.conf import get_config
from mq_django.core import clock
from mq_django.core.flow_graph import RunProblem, RunProblemKind, StepRecord
from mq_django.core.ids import is_run_id, message_id_of
from mq_django.core.jsontext import LARGEST, loads, whole
from mq_django.core.texts import repr_of
from mq_django.errors import DecodeError, InvalidArguments, MQError, UnknownQueue, UnknownRun
from mq_django.producers.asynchronous import asynchronous
from mq_django.producers.workflow_steps import RunFailure, StepDelivery, advance, failure_of, open_home, publish_starts
from mq_django.signals import send_signal
from mq_django.stores.activity import Effect, Given, recorded
from mq_django.stores.dead_letters import open_dead_letters
from mq_django.stores.workflow_home import BATCH, KEPT_MS, Advanced, Event, LeftWork, Start, StepState, WorkflowHome
from mq_django.transport.connections import open_transport
from mq_django.transport.scripts import Argument

# What an operator can do with runs of workflows.


class Retried(NamedTuple):
    """What a retry of a run has done."""

    #: Failed steps that run again.
    steps: int
    #: Failed steps that cannot run: their queue is not in the settings, or another program has changed them.
    refused: int
    #: Whether time was up before all failed steps were started.
    is_left: bool


NO_RUN = "There is no run {}: it has ended a week ago, waits for a commit, or was rolled back"


def read_run(run_id: str) -> dict[str, bytes]:
    """Return the fields of a run.

    Raises:
        UnknownRun: there is no such run: it has ended a week ago, waits for a commit, or was rolled back.
        StoreError: Redis cannot be reached.
    """
    fields = open_home(run_id).read(run_id) if is_run_id(run_id) else {}
    if "state" not in fields:
        raise UnknownRun(NO_RUN.format(repr_of(run_id)))
    return fields


@recorded("cancel run", queue="", about="run_id")
def cancel(run_id: str) -> bool:
    """End a run: no further step starts. Returns whether this call has ended it.

    Raises:
        UnknownRun: see read_run().
        StoreError: Redis cannot be reached.
    """
    read_run(run_id)
    return bool(apply(run_id, Event("cancel")).changed)


def _retried(_: Given, found: Retried) -> Effect:
    left = {"refused": found.refused, "left": int(found.is_left)}
    return Effect(found.steps or 1, ", ".join(f"{count} {word}" for word, count in left.items() if count))


@recorded("retry run", queue="", about="run_id", effect=_retried)
def retry(run_id: str, *, seconds: float = float("inf"), step: int | None = None) -> Retried:
    """Let a run continue that has failed, expired or was cancelled. Its failed steps run again.

    The dead letters of failed steps are redriven. A step whose dead letter is gone gets a new message. What a second
    call does twice is done once.

    Args:
        run_id: the run.
        seconds: after this time no further batch of failed steps is started.
        step: the number of the only one that runs again; the others stay failed. None: all.

    Raises:
        UnknownRun: see read_run().
        StoreError: Redis cannot be reached.
    """
    fields = read_run(run_id)
    deadline, home = time.monotonic() + seconds, open_home(run_id)
    marked: list[dict[StepState, str]] = []
    try:
        retried = _retry_steps(home, run_id, marked, deadline, step)
    except MQError:
        # They have failed all the same. Of those that were redriven before the error, a later note says so.
        for queues in marked:
            apply(run_id, *[dead_letter_found(step.number, step.seq, step.round) for step in queues])
        raise
    if fields["state"] != b"running" and step is None:
        apply(run_id, Event("continue", round=whole(fields.get("round"), 10**9) or 1))
    return retried


def _retry_steps(
    home: WorkflowHome, run_id: str, marked: list[dict[StepState, str]], deadline: float, only: int | None
) -> Retried:
    """Start the failed steps of a run again; `marked` has those that count as started, and are not yet."""
    steps = refused = 0
    is_left = False
    states = home.each_record(run_id) if only is None else [home.state_of(run_id, only)]
    failed = [step for step in states if step is not None and step.state == "F"]
    for at in range(0, len(failed), BATCH):
        is_left = time.monotonic() > deadline
        if is_left:
            break
        batch = failed[at : at + BATCH]
        queues = _queues(home, run_id, batch)
        refused += len(batch) - len(queues)
        if queues:
            marked.append(queues)
            changed = apply(run_id, *_about("retried", queues)).changed
            # Others may have retried or skipped a step since it was read.
            marked[-1] = {step: queue for step, queue in queues.items() if step.number in changed}
            steps += len(changed)
        # One batch ahead: while a step counts as started, the run does not end.
        if len(marked) > 1:
            _start_again(run_id, marked[0])
            del marked[0]
    for queues in [*marked]:
        _start_again(run_id, queues)
        del marked[0]
    return Retried(steps, refused, is_left)


def _start_again(run_id: str, queues: dict[StepState, str]) -> None:
    """Redrive the dead letters of steps, and start the others with new messages."""
    redriven = _redrive(run_id, queues)
    if gone := [step for step in queues if step.number not in redriven]:
        apply(run_id, *_about("lost", gone))


def _about(name: str, steps: Iterable[StepState]) -> list[Event]:
    """Return an event for each step, which does nothing if anything was heard of the step since it was read."""
    return [Event(name, step.number, step.seq, round=step.round) for step in steps]


def dead_letter_found(number: int, seq: int, of_round: int) -> Event:
    """Return that a step has failed whose message is a dead letter, if nothing was heard of it since it was read."""
    return Event("failed", number, seq + 1, "its message is a dead letter", round=of_round)


@recorded("skip step", queue="", about=lambda given: [given["run_id"], given["step"]])
def skip(run_id: str, step: int) -> bool:
    """Let a run continue as if a failed step had succeeded. Its value is missing. Returns whether this call did so.

    Raises:
        InvalidArguments: `step` is not a number.
        UnknownRun: see read_run().
        StoreError: Redis cannot be reached.
    """
    if type(step) is not int:
        raise InvalidArguments(f"skip() takes the number of a step, not {repr_of(step)}")
    read_run(run_id)
    before = open_home(run_id).state_of(run_id, step) if 0 < step <= LARGEST else None
    if before is None or before.state != "F":
        return False
    return bool(apply(run_id, *_about("passed", [before])).changed)


def apply(run_id: str, *events: Event) -> Advanced:
    """Apply up to BATCH events to a run, and publish what may start.

    Raises:
        UnknownRun: there is no such run.
        StoreError: Redis cannot be reached.
    """
    advanced = advance(open_home(run_id), run_id, events)
    if not advanced.state:
        raise UnknownRun(f"There is no run {repr_of(run_id)}")
    return advanced


def _queues(home: WorkflowHome, run_id: str, steps: Sequence[StepState]) -> dict[StepState, str]:
    """Return the queues or partitions of steps that can be published."""
    found: dict[StepState, str] = {}
    for step, body in zip(steps, home.bodies(run_id, [step.number for step in steps]), strict=True):
        try:
            fields = loads(body)
            config, message_id = get_config().queue(fields["queue"]), message_id_of(run_id, step.number, step.round)
            found[step] = config.partition_for(key=fields.get("key"), message_id=message_id).name
        except (DecodeError, LookupError, TypeError, UnknownQueue):
            continue
    return found


def _redrive(run_id: str, queues: dict[StepState, str]) -> set[int]:
    """Redrive the dead letters of steps, and return the steps that had one."""
    by_queue: dict[str, dict[str, int]] = defaultdict(dict)
    for step, queue in queues.items():
        by_queue[queue][message_id_of(run_id, step.number, step.round)] = step.number
    redriven: set[int] = set()
    for queue, numbers in by_queue.items():
        config = get_config().queue(queue)
        transport = open_transport("produce", config.connection)
        letters, ids = open_dead_letters(config, transport), list(numbers)
        entries = {known: entry for known, entry in zip(ids, letters.find(ids), strict=True) if entry}
        words = letters.redrive(list(entries.values())) if entries else []
        redriven |= {numbers[known] for known, word in zip(entries, words, strict=True) if word == "REDRIVEN"}
        # Also of those without a dead letter: another one may have redriven it, and the run does not know that yet.
        StepDelivery(config, transport).deliver(ids)
    return redriven


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
    """A run of a workflow. Two of them are equal if they have the same id.

    Methods that ask Redis also raise ConfigurationError or NoServer, if CONNECTION cannot be used.
    """

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
            UnknownRun: there is no such run: it has ended a week ago, waits for a commit, or was rolled back.
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
        """End the run: no further step starts. Returns whether this call has ended it.

        Raises:
            UnknownRun: see state.
            StoreError: Redis cannot be reached.
        """
        return cancel(self.id)

    acancel = asynchronous(cancel)

    def retry(self) -> int:
        """Let the run continue that has failed, expired or was cancelled, and return how many failed steps run again.

        The dead letters of failed steps are redriven. A step whose dead letter is gone gets a new message.

        Raises:
            UnknownRun: see state.
            StoreError: Redis cannot be reached.
        """
        return retry(self.id).steps

    aretry = asynchronous(retry)

    def skip(self, step: int) -> bool:
        """Let the run continue as if a failed step had succeeded. Its value is missing.

        Args:
            step: its number.

        Returns:
            Whether the step had failed, and this call did so.

        Raises:
            InvalidArguments: `step` is not a number.
            UnknownRun: see state.
            StoreError: Redis cannot be reached.
        """
        return skip(self.id, step)

    askip = asynchronous(skip)

    def _read(self) -> dict[str, bytes]:
        return read_run(self.id)


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


# Start runs of workflows: now, or when a transaction commits.

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
        """Start the run. If another run has its unique key, it becomes the other run."""
        self.called = True
        home = open_home(self.run.id)
        home.create(self.run.id, self._fields, self._steps)
        holder = advance(home, self.run.id, [Event("begin", added=f"1-{len(self._steps)}")]).holder
        if holder:
            self.run.id = holder
        else:
            send_signal(run_started, Run, run=self.run)
        return self.run


# Repair runs of workflows of which other programs or failovers have taken something.

#: How a problem is repaired, as a sentence. Others are not.
REPAIRS: Mapping[RunProblemKind, str] = {
    "message": "The step starts again with a new message.",
    "dead": "The step has failed.",
    "start": "It is published.",
    "stopped": "The run continues, or ends.",
}


def repair(problem: RunProblem) -> bool:
    """Repair a problem, and return whether it is gone. A second call changes nothing more.

    Raises:
        StoreError: Redis cannot be reached.
    """
    try:
        match problem.kind:
            case "message" | "dead":
                return _settle(problem)
            case "start":
                return _publish(problem)
            case "stopped":
                apply(problem.run)
                return True
    except UnknownRun:
        return False
    return False


def _settle(problem: RunProblem) -> bool:
    number = int(problem.step)
    lost = Event("lost", number, problem.seq, round=problem.round)
    is_dead = problem.kind == "dead"
    apply(problem.run, dead_letter_found(number, problem.seq, problem.round) if is_dead else lost)
    state = open_home(problem.run).state_of(problem.run, number)
    return state is None or (state.state, state.seq, state.round) != ("S", problem.seq, problem.round)


def _publish(problem: RunProblem) -> bool:
    if not is_run_id(problem.run):
        return False
    home = open_home(problem.run)
    publish_starts(home, problem.run, home.start_of(problem.entry).get(problem.run, []))
    return not home.start_of(problem.entry)


# Continue what processes that have ended have left of workflows, and end runs that have expired.
#
# Whatever this does a second time changes nothing.


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
