"""The handlers of tasks as steps of workflows."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from asgiref.sync import sync_to_async

from mq_django.core.flow_graph import values_taken
from mq_django.core.ids import STEP_NAME, StepId, read_step_id
from mq_django.core.jsontext import dumps, loads
from mq_django.core.messages import Message
from mq_django.core.outcomes import ACK, Ack, Bury, Outcome, StepEnd
from mq_django.core.running_handler import RunningStep, running_step
from mq_django.core.texts import summary_of, traceback_of
from mq_django.errors import DecodeError, MissingValue
from mq_django.producers.workflow_steps import open_home
from mq_django.registry import Handler
from mq_django.stores.workflow_home import StepView
from mq_django.task_backend.arguments import has_arguments
from mq_django.task_backend.compat import AnyTask, normalize_json
from mq_django.task_backend.running import MALFORMED, handler_of
from mq_django.task_backend.running import outcome_of as task_outcome_of
from mq_django.task_backend.task_api import TaskAPI

#: The most bytes of the value of a step that another one takes, and of all values of a run.
MAX_VALUE, MAX_VALUES = 64 * 1024, 16 * 1024 * 1024

DROPPED = StepEnd(event="dropped")


def step_handler_of(task: AnyTask, api: TaskAPI) -> Handler:
    """Return the handler of the messages of a task that is a step of a workflow."""
    made = handler_of(task, api, outcome_of)
    return replace(made, name=STEP_NAME + made.name, call=partial(_acall if made.is_async else _call, made.call))


def _call(call: Callable[[Message], Any], message: Message) -> Outcome:
    begun = _begin(message)
    if not isinstance(begun, tuple):
        return begun
    resolved, running = begun
    token = running_step.set(running)
    try:
        outcome: Outcome = call(resolved)
    finally:
        running_step.reset(token)
    return _ended(outcome, running)


async def _acall(call: Callable[[Message], Any], message: Message) -> Outcome:
    begun = await sync_to_async(_begin)(message)
    if not isinstance(begun, tuple):
        return begun
    resolved, running = begun
    token = running_step.set(running)
    try:
        outcome: Outcome = await call(resolved)
    finally:
        running_step.reset(token)
    return await sync_to_async(_ended)(outcome, running)


def _begin(message: Message) -> tuple[Message, RunningStep] | Outcome:
    """Return the message with the values of other steps as arguments, or the outcome of a step that must not run."""
    which, data = read_step_id(message.id), message.data
    if which is None or not has_arguments(data):
        return MALFORMED if which is not None else Bury("The message has no id of a step")
    references = data.get("references") or {}
    try:
        numbers = values_taken(references)
    except (AttributeError, TypeError, ValueError):
        return MALFORMED
    named = sorted({number for group in numbers.values() for number in group})
    view = open_home(which.run).begin_step(which.run, which.step, named)
    if refused := _refused(which, view):
        return refused
    args, kwargs = list(data["args"]), dict(data["kwargs"])
    try:
        for name, group in numbers.items():
            found = [_value(view.values[number], number) for number in group]
            _put(args, kwargs, name, found[0] if isinstance(references[name], int) else found)
    except MissingValue as error:  # it does not come back
        return Bury(summary_of(error))
    running = RunningStep(which.run, which.step, view.value_bytes)
    return message._replace(data={"args": args, "kwargs": kwargs, "keep": data.get("keep")}), running


def _refused(which: StepId, view: StepView) -> Outcome | None:
    """Return the outcome of a step that must not run, else None."""
    if not view.run_state or not view.record:
        return Bury(f"Run {which.run} of this step does not exist any more")
    state, *_, of_round, _, _ = view.record.split(" ")
    if state != "S" or of_round != str(which.round):
        # It is done already, or another message runs it.
        return ACK if state != "F" else None
    return DROPPED if view.run_state != "running" else None


def _put(args: list[Any], kwargs: dict[str, Any], name: str, value: Any) -> None:
    if name.isdigit():
        args[int(name)] = value
    else:
        kwargs[name] = value


def _value(text: bytes | None, number: int) -> Any:
    if text is None:
        raise MissingValue(f"The value of step {number} does not exist")
    try:
        return loads(text)
    except DecodeError as error:
        raise MissingValue(f"The value of step {number} is not JSON") from error


def outcome_of(message: Message, returned: Any) -> Outcome:
    """Return the outcome for the return value of a step, with the value if another step takes it."""
    outcome = task_outcome_of(message, returned)
    if not isinstance(outcome, Ack):
        return outcome
    if not message.data.get("keep"):
        return StepEnd(outcome.result)
    running = running_step.get()
    assert running is not None
    try:
        value = dumps(normalize_json(returned.result if isinstance(returned, Ack) else returned))
    except (TypeError, ValueError) as error:
        return Bury(summary_of(error), traceback_of(error))
    if len(value) > MAX_VALUE:
        return Bury(f"The step returned {len(value)} bytes of JSON for another step: more than {MAX_VALUE}")
    if len(value) + running.value_bytes > MAX_VALUES:
        return Bury(f"The values of the run have more than {MAX_VALUES} bytes")
    return StepEnd(outcome.result, value=value)


def _ended(outcome: Outcome, running: RunningStep) -> Outcome:
    """Return the outcome of a step, after the steps that it adds are written."""
    if not isinstance(outcome, StepEnd) or not running.flow or running.records is None:
        return outcome
    home = open_home(running.run_id)
    count = len(running.records(1))
    first = home.allocate(running.run_id, count)
    home.write_steps(running.run_id, running.records(first))
    return replace(outcome, added=f"{first}-{first + count - 1}")
