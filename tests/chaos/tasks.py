"""What the steps and callbacks of played workflows do: note what they get, and return a value that depends on it."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mq_django import RetryPolicy, task
from mq_django.task_backend.compat import AnyTask
from mq_django.workflows import Flow, Step, current_flow
from tests.chaos import points
from tests.chaos.flows import PlannedStep, value_of
from tests.chaos.observing import note
from tests.chaos.settings import FLOW_QUEUE, FLOW_QUEUE_BESIDE


class NotMended(Exception):
    """The step fails until somebody mends its run."""


class Flaky(Exception):
    """The step fails this time."""


@task(queue_name=FLOW_QUEUE, takes_context=True)
def work(context: Any, run: str, told: dict[str, Any], *inputs: Any) -> int:
    """Run a planned step: `told` is the step, with what it adds as `adds`."""
    began, attempt, message = time.monotonic(), context.attempt, context.task_result.id
    values = list(inputs[0]) if told["gets_list"] else list(inputs)
    words = {"id": message, "run": run, "label": told["label"], "began": began}
    note("step", values=values, **words)
    try:
        time.sleep(told["ms"] / 1000)
        _may_fail(run, told, attempt)
        points.reached("effect")
        _grow(run, told["adds"])
        value = value_of(told["label"], values)
    except BaseException as error:
        note("step-ended", how=type(error).__name__, **words)
        raise
    note("step-ended", how="returned", **words)
    return value


def _may_fail(run: str, told: Mapping[str, Any], attempt: int) -> None:
    if attempt <= told["flaky"]:
        raise Flaky(told["label"])
    if told["fails"] and not is_mended(run):
        raise NotMended(told["label"])


#: The same without a second attempt: it becomes a dead letter at once.
@task(queue_name=FLOW_QUEUE, takes_context=True, retry=RetryPolicy(max_attempts=1))
def work_once(context: Any, run: str, told: dict[str, Any], *inputs: Any) -> int:
    value: int = work.func(context, run, told, *inputs)
    return value


def _called(kind: str, context: Any, run_id: str) -> None:
    note("callback", id=context.task_result.id, kind=kind, run_id=run_id)


@task(queue_name=FLOW_QUEUE, takes_context=True)
def tell_success(context: Any, run_id: str) -> None:
    _called("success", context, run_id)


@task(queue_name=FLOW_QUEUE_BESIDE, takes_context=True)
def tell_failure(context: Any, run_id: str) -> None:
    _called("failure", context, run_id)


@task(queue_name=FLOW_QUEUE, takes_context=True)
def tell_finish(context: Any, run_id: str) -> None:
    _called("finish", context, run_id)


def add_steps(flow: Flow, run: str, steps: Sequence[PlannedStep]) -> None:
    """Add planned steps, without those that a running step adds."""
    made: dict[str, Step] = {}
    for step in steps:
        if not step.added_by:
            adds = [_told(added) for added in steps if added.added_by == step.label]
            made[step.label] = _add(flow, run, {**_told(step), "adds": adds}, made)


def _grow(run: str, adds: Sequence[Mapping[str, Any]]) -> None:
    made: dict[str, Step] = {}
    for told in adds:
        made[told["label"]] = _add(current_flow(), run, {**told, "adds": []}, made)


def _told(step: PlannedStep) -> dict[str, Any]:
    words = ("label", "inputs", "gets_list", "after", "fails", "flaky", "is_beside", "ms")
    return {word: getattr(step, word) for word in words}


def _add(flow: Flow, run: str, told: dict[str, Any], made: Mapping[str, Step]) -> Step:
    which: AnyTask = work_once if told["fails"] else work
    inputs: list[Any] = [made[label] for label in told["inputs"]]
    what = which.using(queue_name=FLOW_QUEUE_BESIDE if told["is_beside"] else FLOW_QUEUE)
    step: Step = flow.add(what, run, told, *([inputs] if told["gets_list"] else inputs))
    return step.after(*(made[label] for label in told["after"]))


def is_mended(run: str) -> bool:
    """Return whether the failing steps of a run work by now."""
    return mending(Path(os.environ["CHAOS_HISTORY"]), run).exists()


def mending(folder: Path, run: str) -> Path:
    """Return the file that mends a run."""
    return folder / f"mended-{run}"
