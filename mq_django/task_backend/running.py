"""One attempt of a task in a consumer, also as a step of a workflow: its arguments, context, signals and outcome."""

import logging
import os
import socket
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.conf import settings
from django.utils import timezone

from mq_django.conf import current_time_zone, get_config
from mq_django.core import clock
from mq_django.core.flow_graph import values_taken
from mq_django.core.handler_options import database_of
from mq_django.core.ids import STEP_NAME, StepId, read_step_id
from mq_django.core.jsontext import dumps, loads
from mq_django.core.logs import get_logger
from mq_django.core.messages import (
    ACK,
    Ack,
    Bury,
    Cancel,
    Expire,
    Message,
    Outcome,
    Retry,
    StepDrop,
    StepEnd,
    refuse_unfinished,
)
from mq_django.core.running_handler import RunningStep, running_step
from mq_django.core.texts import summary_of, traceback_of
from mq_django.errors import DecodeError, InvalidMessage, MessageTooLarge, MissingValue
from mq_django.producers.workflow_steps import open_home
from mq_django.registry import Handler
from mq_django.stores.results import CANCELLED, EXPIRED, error_path
from mq_django.stores.workflow_home import StepView
from mq_django.task_backend.compat import AnyResult, AnyTask, normalize_json
from mq_django.task_backend.task_api import TaskAPI, end_of
from mq_django.task_backend.task_options import check_call, has_arguments

logger = get_logger(__name__)

#: The most attempts whose consumers are listed in a result.
MAX_ATTEMPT = 10_000

#: The traceback of an attempt that has failed by an outcome without an error.
NO_ERROR = "ended by a Retry or Bury without an error"

#: The worker id while a task runs. The stored result has the name of the consumer instead.
WORKER = ""


def _name() -> None:
    global WORKER  # noqa: PLW0603 - a process has one, and a consumer may be a fork
    WORKER = f"{socket.gethostname()[:40]}-{os.getpid()}"


_name()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_name)


OutcomeOf = Callable[[Message, Any], Outcome]


def handler_of(task: AnyTask, api: TaskAPI, judge: OutcomeOf | None = None) -> Handler:
    """Return the handler of a task's messages in all queues. Contexts, results and signals are from `api`.

    `judge` returns the outcome for a return value of the function; None: outcome_of().
    """
    is_async, judge = iscoroutinefunction(task.func), judge or outcome_of
    return Handler(
        name=task.module_path,
        queue=None,
        call=_async_call(task, api, judge) if is_async else _call(task, api, judge),
        retry=getattr(task, "retry", None),
        breaker=getattr(task, "breaker", None),
        timeout=getattr(task, "timeout", None),
        is_async=is_async,
        keeps_result=True,
        where=task.module_path,
        function=task.func,
        ended=_ended(task, api),
        aended=_async_ended(task, api) if is_async else None,
        accepts=partial(check_call, task),
        once=database_of(task.func),
    )


def _call(task: AnyTask, api: TaskAPI, judge: OutcomeOf) -> Any:
    function, takes_context, is_announced = task.func, task.takes_context, api.started.is_needed

    def call(message: Message) -> Outcome:
        data = message.data
        if not has_arguments(data):
            return MALFORMED
        args = data["args"]
        if takes_context or is_announced(logging.INFO):
            args, running = _starting(task, api, message)
            if running is not None:
                api.started.send(_sender(task), running)
        return judge(message, function(*args, **data["kwargs"]))

    return call


def _async_call(task: AnyTask, api: TaskAPI, judge: OutcomeOf) -> Any:
    async def call(message: Message) -> Outcome:
        if not has_arguments(message.data):
            return MALFORMED
        args, running = _starting(task, api, message)
        if running is not None:
            await api.started.asend(_sender(task), running)
        return judge(message, await task.func(*args, **message.data["kwargs"]))

    return call


def _ended(task: AnyTask, api: TaskAPI) -> Any:
    is_announced = api.finished.is_needed

    def ended(message: Message, outcome: Outcome, seconds: float, error: BaseException | None) -> None:
        try:
            if is_announced(logging.INFO) and (finished := _finished(task, api, message, outcome, seconds)):
                with end_of(message):
                    api.finished.send(_sender(task), finished, error)
        except BaseException:
            logger.exception("A receiver of a signal failed")

    return ended


def _async_ended(task: AnyTask, api: TaskAPI) -> Any:
    is_announced = api.finished.is_needed

    async def ended(message: Message, outcome: Outcome, seconds: float, error: BaseException | None) -> None:
        try:
            if is_announced(logging.INFO) and (finished := _finished(task, api, message, outcome, seconds)):
                with end_of(message):
                    await api.finished.asend(_sender(task), finished, error)
        except BaseException:
            logger.exception("A receiver of a signal failed")

    return ended


MALFORMED = Bury('The data of a task\'s message is {"args": [...], "kwargs": {...}}')


def _sender(task: AnyTask) -> type:
    return type(task.get_backend())


def _starting(task: AnyTask, api: TaskAPI, message: Message) -> tuple[list[Any], AnyResult | None]:
    """Return the function's arguments, and the result for the signal if that is to be sent."""
    args, is_announced = message.data["args"], api.started.is_needed(logging.INFO)
    if not is_announced and not task.takes_context:
        return args, None
    running = _result(task, api, message, _now())
    return [api.context(task_result=running), *args] if task.takes_context else args, running if is_announced else None


def outcome_of(message: Message, returned: Any) -> Outcome:
    """Return the outcome for the function's return value.

    A value that cannot be stored buries the message at once, because a retry would repeat the task's effects.
    """
    if returned is None:
        return ACK
    if isinstance(returned, Retry | Bury):
        return returned
    refuse_unfinished(returned)
    value, config = returned.result if isinstance(returned, Ack) else returned, get_config().queue(message.queue)
    if value is None or not config.keeps_results:
        return ACK
    try:
        text = _json_of(value)
        if len(text) > config.max_size:
            raise MessageTooLarge(f"The task returned {len(text)} bytes of JSON: more than MAX_SIZE")
    except (TypeError, ValueError) as error:
        return Bury(summary_of(error), traceback_of(error))
    return Ack(text)


def _json_of(value: Any) -> bytes:
    """Return a return value as JSON.

    Raises:
        TypeError, InvalidMessage: it is not JSON. The texts say so, because the task itself has succeeded.
    """
    try:
        return dumps(normalize_json(value))
    except (TypeError, ValueError, RecursionError) as error:
        kind = TypeError if isinstance(error, TypeError) else InvalidMessage
        raise kind(f"The task has run, but its return value is not JSON: {error.__cause__ or error}") from error


def _finished(task: AnyTask, api: TaskAPI, message: Message, outcome: Outcome, seconds: float) -> AnyResult | None:
    """Return the result for the signal that a task has ended; None if it is retried."""
    if isinstance(outcome, Expire):
        outcome = Bury(EXPIRED)
    elif isinstance(outcome, Cancel | StepDrop):
        outcome = Bury(f"{CANCELLED}: {outcome.error}", outcome.error)
    if not isinstance(outcome, Ack | Bury) or not has_arguments(message.data):
        return None
    now = _now()
    result = _result(task, api, message, now - timedelta(seconds=seconds))
    object.__setattr__(result, "finished_at", now)
    if isinstance(outcome, Bury):
        object.__setattr__(result, "status", api.status.FAILED)
        trace = outcome.traceback or outcome.error or NO_ERROR
        result.errors.append(api.attempt_error(exception_class_path=error_path(outcome.error), traceback=trace))
    else:
        object.__setattr__(result, "status", api.status.SUCCESSFUL)
        object.__setattr__(result, "_return_value", None if outcome.result is None else loads(outcome.result))
    return result


def _result(task: AnyTask, api: TaskAPI, message: Message, started: datetime) -> AnyResult:
    """Return the result of a running task."""
    result: AnyResult = api.result(
        task=task,
        id=message.id,
        status=api.status.RUNNING,
        enqueued_at=moment(message.published_ms),
        started_at=started,
        last_attempted_at=started,
        finished_at=None,
        args=message.data["args"],
        kwargs=message.data["kwargs"],
        backend=task.backend,
        errors=[],
        # Only the stored result has the consumers of earlier attempts.
        worker_ids=[""] * min(message.attempt - 1, MAX_ATTEMPT) + [WORKER],
    )
    return result


def _now() -> datetime:
    """Return the time as Django's timezone.now() does: aware if USE_TZ is on, else in the time zone of the process."""
    return datetime.fromtimestamp(clock.now(), UTC if settings.USE_TZ else None)


def moment(milliseconds: int | None) -> datetime | None:
    """Return milliseconds since 1970 as a datetime, aware if USE_TZ is on."""
    if milliseconds is None:
        return None
    found = datetime.fromtimestamp(milliseconds / 1000, UTC)
    if settings.USE_TZ:
        return found
    try:
        return timezone.make_naive(found, current_time_zone())
    except OverflowError:
        # East of Greenwich the last day of 9999 would be in the year 10000.
        return found.replace(tzinfo=None)


# The handlers of tasks as steps of workflows.

#: The most bytes of the value of a step that another one takes, and of all values of a run.
MAX_VALUE, MAX_VALUES = 64 * 1024, 16 * 1024 * 1024

DROPPED = StepDrop()


def step_handler_of(task: AnyTask, api: TaskAPI) -> Handler:
    """Return the handler of the messages of a task that is a step of a workflow."""
    made = handler_of(task, api, step_outcome_of)
    return replace(
        made, name=STEP_NAME + made.name, call=partial(_step_acall if made.is_async else _step_call, made.call)
    )


def _step_call(call: Callable[[Message], Any], message: Message) -> Outcome:
    begun = _begin(message)
    if not isinstance(begun, tuple):
        return begun
    resolved, running = begun
    token = running_step.set(running)
    try:
        outcome: Outcome = call(resolved)
    finally:
        running_step.reset(token)
    return _step_ended(outcome, running)


async def _step_acall(call: Callable[[Message], Any], message: Message) -> Outcome:
    begun = await sync_to_async(_begin)(message)
    if not isinstance(begun, tuple):
        return begun
    resolved, running = begun
    token = running_step.set(running)
    try:
        outcome: Outcome = await call(resolved)
    finally:
        running_step.reset(token)
    return await sync_to_async(_step_ended)(outcome, running)


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
    if name.isdecimal():
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


def step_outcome_of(message: Message, returned: Any) -> Outcome:
    """Return the outcome for the return value of a step, with the value if another step takes it."""
    outcome = outcome_of(message, returned)
    if not isinstance(outcome, Ack):
        return outcome
    if not message.data.get("keep"):
        return StepEnd(outcome.result)
    running = running_step.get()
    assert running is not None
    try:
        value = _json_of(returned.result if isinstance(returned, Ack) else returned)
    except (TypeError, ValueError) as error:
        return Bury(summary_of(error), traceback_of(error))
    if len(value) > MAX_VALUE:
        return Bury(f"The step returned {len(value)} bytes of JSON for another step: more than {MAX_VALUE}")
    if len(value) + running.value_bytes > MAX_VALUES:
        return Bury(f"The values of the run have more than {MAX_VALUES} bytes")
    return StepEnd(outcome.result, value=value)


def _step_ended(outcome: Outcome, running: RunningStep) -> Outcome:
    """Return the outcome of a step, after the steps that it adds are written."""
    if not isinstance(outcome, StepEnd) or not running.flow or running.records is None:
        return outcome
    home = open_home(running.run_id)
    count = len(running.records(1))
    first = home.allocate(running.run_id, count)
    home.write_steps(running.run_id, running.records(first))
    return replace(outcome, added=f"{first}-{first + count - 1}")
