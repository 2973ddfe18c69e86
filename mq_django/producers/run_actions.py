"""What an operator can do with runs of workflows."""

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mq_django.conf import get_config
from mq_django.core.exceptions import repr_of
from mq_django.core.jsontext import loads
from mq_django.core.numbers import whole
from mq_django.core.step_ids import is_run_id, message_id_of
from mq_django.errors import DecodeError, MQError, UnknownQueue, UnknownRun
from mq_django.producers.step_courier import StepCourier
from mq_django.producers.step_starts import advance, open_home
from mq_django.stores.dead_letter_queue import open_dead_letters
from mq_django.stores.workflow_home import BATCH, Advanced, Event, StepState, WorkflowHome
from mq_django.transport.connections import open_wire


class Retried(NamedTuple):
    """What a retry of a run has done."""

    #: Failed steps that run again.
    steps: int
    #: Failed steps that cannot run: their queue is not in the settings, or another program has changed them.
    refused: int
    #: Whether time was up before all failed steps were started.
    is_left: bool


def read_run(run_id: str) -> dict[str, bytes]:
    """Return the fields of a run.

    Raises:
        UnknownRun: there is no such run: it has ended a week ago, or waits for a commit.
        StoreError: Redis cannot be reached.
    """
    fields = open_home(run_id).read(run_id) if is_run_id(run_id) else {}
    if "state" not in fields:
        raise UnknownRun(f"There is no run {repr_of(run_id)}: it has ended a week ago, or waits for a commit")
    return fields


def cancel(run_id: str) -> bool:
    """End a run: no further step starts. Returns whether it was running.

    Raises:
        UnknownRun: see read_run().
        StoreError: Redis cannot be reached.
    """
    before = read_run(run_id)["state"]
    apply(run_id, Event("cancel"))
    return before == b"running"


def retry(run_id: str, *, seconds: float = float("inf")) -> Retried:
    """Let a run continue that has failed, expired or was cancelled. Its failed steps run again.

    The dead letters of failed steps are redriven. A step whose dead letter is gone gets a new message. What a second
    call does twice is done once.

    Args:
        run_id: the run.
        seconds: after this time no further batch of failed steps is started.

    Raises:
        UnknownRun: see read_run().
        StoreError: Redis cannot be reached.
    """
    fields = read_run(run_id)
    deadline, home = time.monotonic() + seconds, open_home(run_id)
    marked: list[dict[StepState, str]] = []
    try:
        retried = _retry_steps(home, run_id, marked, deadline)
    except MQError:
        # They have failed all the same. Of those that were redriven before the error, a later note says so.
        for queues in marked:
            apply(run_id, *[dead_letter_found(step.number, step.seq, step.round) for step in queues])
        raise
    if fields["state"] != b"running":
        apply(run_id, Event("continue", round=whole(fields.get("round"), 10**9) or 1))
    return retried


def _retry_steps(home: WorkflowHome, run_id: str, marked: list[dict[StepState, str]], deadline: float) -> Retried:
    """Start the failed steps of a run again; `marked` has those that count as started, and are not yet."""
    steps = refused = 0
    is_left = False
    failed = [step for step in home.each_record(run_id) if step.state == "F"]
    for at in range(0, len(failed), BATCH):
        is_left = time.monotonic() > deadline
        if is_left:
            break
        batch = failed[at : at + BATCH]
        queues = _queues(home, run_id, batch)
        steps, refused = steps + len(queues), refused + len(batch) - len(queues)
        if queues:
            marked.append(queues)
            apply(run_id, *_about("retried", queues))
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


def skip(run_id: str, step: int) -> bool:
    """Let a run continue as if a failed step had succeeded. Its value is missing. Returns whether it had failed.

    Raises:
        UnknownRun: see read_run().
        StoreError: Redis cannot be reached.
    """
    read_run(run_id)
    before = open_home(run_id).state_of(run_id, step)
    if before is None or before.state != "F":
        return False
    apply(run_id, *_about("passed", [before]))
    return True


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
    """Return the queues or partitions of steps, without those of steps that cannot be published."""
    found: dict[StepState, str] = {}
    for step, body in zip(steps, home.bodies(run_id, [step.number for step in steps]), strict=True):
        try:
            fields = loads(body)
            config, message_id = get_config().queue(fields["queue"]), message_id_of(run_id, step.number, step.round)
            found[step] = config.place_of(key=fields.get("key"), message_id=message_id).name
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
        wire = open_wire("produce", config.connection)
        letters, ids = open_dead_letters(config, wire), list(numbers)
        entries = {known: entry for known, entry in zip(ids, letters.find(ids), strict=True) if entry}
        words = letters.redrive(list(entries.values())) if entries else []
        redriven |= {numbers[known] for known, word in zip(entries, words, strict=True) if word == "REDRIVEN"}
        # Also of those without a dead letter: another one may have redriven it, and the run does not know that yet.
        StepCourier(config, wire).deliver(ids)
    return redriven
