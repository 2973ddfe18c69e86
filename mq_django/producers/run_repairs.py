"""Repair runs of workflows of which other programs or failovers have taken something."""

from collections.abc import Mapping

from mq_django.core.run_problems import RunProblem, RunProblemKind
from mq_django.core.step_ids import is_run_id
from mq_django.errors import UnknownRun
from mq_django.producers.run_actions import apply, dead_letter_found
from mq_django.producers.step_starts import open_home, publish_starts
from mq_django.stores.workflow_home import Event

#: How a problem is repaired, as a sentence. Others are not.
REPAIRS: Mapping[RunProblemKind, str] = {
    "message": "The step starts again with a new message.",
    "dead": "The step has failed.",
    "start": "It is published.",
    "unlisted": "The run is listed.",
    "stopped": "The run continues, or ends.",
    "run": "It is removed from the lists.",
}


def repair(problem: RunProblem) -> bool:
    """Repair a problem, and return whether it is gone. What a second call does twice is done once.

    Raises:
        StoreError: Redis cannot be reached.
    """
    try:
        match problem.kind:
            case "message" | "dead":
                return _settle(problem)
            case "start":
                return _publish(problem)
            case "unlisted":
                apply(problem.run, Event("relist"))
                return True
            case "stopped":
                apply(problem.run)
                return True
            case "run":
                open_home(problem.home).forget_runs([problem.run])
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
