"""One attempt of a task in a consumer: its arguments, context, signals and outcome."""

import logging
import os
import socket
import traceback
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.utils import timezone

from mq_django.conf import get_config
from mq_django.core.jsontext import dumps, invalid_at, loads
from mq_django.core.logs import get_logger
from mq_django.core.messages import Message
from mq_django.core.outcomes import ACK, Ack, Bury, Expire, Outcome, Retry
from mq_django.errors import DecodeError, InvalidMessage, MessageTooLarge
from mq_django.registry import Handler
from mq_django.stores.results import EXPIRED, error_path
from mq_django.task_backend.announcing import FINISHED, STARTED
from mq_django.task_backend.compat import (
    AnyResult,
    AnyTask,
    TaskContext,
    TaskResult,
    TaskResultStatus,
    normalize_json,
)
from mq_django.task_backend.task_errors import AttemptError

logger = get_logger(__name__)

#: The most attempts whose consumers are listed in a result.
MAX_ATTEMPT = 10_000

#: The worker id while a task runs. The stored result has the name of the consumer instead.
WORKER = f"{socket.gethostname()[:40]}-{os.getpid()}"


def handler_of(task: AnyTask) -> Handler:
    """Return the handler of a task's messages in all queues."""
    is_async = iscoroutinefunction(task.func)
    return Handler(
        name=task.module_path,
        queue=None,
        call=_async_call(task) if is_async else _call(task),
        retry=getattr(task, "retry", None),
        timeout=getattr(task, "timeout", None),
        is_async=is_async,
        keeps_result=True,
        where=task.module_path,
        ended=_ended(task),
        aended=_async_ended(task) if is_async else None,
    )


def _call(task: AnyTask) -> Any:
    def call(message: Message) -> Outcome:
        if not has_arguments(message.data):
            return MALFORMED
        args, running = _starting(task, message)
        if running is not None:
            STARTED.send(_sender(task), running)
        return _outcome(message, task.func(*args, **message.data["kwargs"]))

    return call


def _async_call(task: AnyTask) -> Any:
    async def call(message: Message) -> Outcome:
        if not has_arguments(message.data):
            return MALFORMED
        args, running = _starting(task, message)
        if running is not None:
            await STARTED.asend(_sender(task), running)
        return _outcome(message, await task.func(*args, **message.data["kwargs"]))

    return call


def _ended(task: AnyTask) -> Any:
    def ended(message: Message, outcome: Outcome, seconds: float, error: BaseException | None) -> None:
        try:
            finished = _finished(task, message, outcome, seconds)
            if finished is not None:
                FINISHED.send(_sender(task), finished, error)
        except BaseException:
            logger.exception(RECEIVER_FAILED)

    return ended


def _async_ended(task: AnyTask) -> Any:
    async def ended(message: Message, outcome: Outcome, seconds: float, error: BaseException | None) -> None:
        try:
            finished = _finished(task, message, outcome, seconds)
            if finished is not None:
                await FINISHED.asend(_sender(task), finished, error)
        except BaseException:
            logger.exception(RECEIVER_FAILED)

    return ended


RECEIVER_FAILED = "A receiver of task_finished failed"
MALFORMED = Bury('The data of a task\'s message is {"args": [...], "kwargs": {...}}')


def arguments_of(path: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a task's arguments as its function will receive them; `path` is the task's.

    Raises:
        TypeError, ValueError: an argument cannot be encoded as JSON.
    """
    try:
        found: dict[str, Any] = loads(dumps({"args": args, "kwargs": kwargs}))
    except (InvalidMessage, DecodeError):
        found = {name: _normalized(path, name, value) for name, value in (("args", args), ("kwargs", kwargs))}
    return found


def _normalized(path: str, name: str, value: Any) -> Any:
    """Return arguments in the form that Django gives them, which also accepts bytes."""
    try:
        return normalize_json(value)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        where = name + invalid_at(value).removeprefix(" at ")
        raise kind(f"Task {path} cannot be enqueued with {where}: {error}") from error


def has_arguments(data: Any) -> bool:
    """Return whether a message's data are a task's arguments. Other programs may have published it."""
    return isinstance(data, dict) and isinstance(data.get("args"), list) and isinstance(data.get("kwargs"), dict)


def _sender(task: AnyTask) -> type:
    return type(task.get_backend())


def _starting(task: AnyTask, message: Message) -> tuple[list[Any], AnyResult | None]:
    """Return the function's arguments, and the result for the signal if that is to be sent."""
    args, is_announced = message.data["args"], STARTED.is_needed(logging.INFO)
    if not is_announced and not task.takes_context:
        return args, None
    running = _result(task, message, timezone.now())
    return [TaskContext(task_result=running), *args] if task.takes_context else args, running if is_announced else None


def _outcome(message: Message, returned: Any) -> Outcome:
    """Return the outcome for the function's return value.

    A value that cannot be stored buries the message at once, because a retry would repeat the task's effects.
    """
    if returned is None:
        return ACK
    if isinstance(returned, Retry | Bury):
        return returned
    value, config = returned.result if isinstance(returned, Ack) else returned, get_config().queue(message.queue)
    if value is None or not config.keeps_results:
        return ACK
    try:
        text = dumps(normalize_json(value))
        if len(text) > config.max_size:
            raise MessageTooLarge(f"The task returned {len(text)} bytes of JSON: more than MAX_SIZE")
    except (TypeError, ValueError) as error:
        reason = f"{type(error).__module__}.{type(error).__qualname__}: {error}"
        return Bury(reason, "".join(traceback.format_exception(error)))
    return Ack(text)


def _finished(task: AnyTask, message: Message, outcome: Outcome, seconds: float) -> AnyResult | None:
    """Return the result for the signal that a task has ended; None if it is retried, or there is no receiver."""
    if isinstance(outcome, Expire):
        outcome = Bury(EXPIRED)
    if not isinstance(outcome, Ack | Bury) or not has_arguments(message.data):
        return None
    if not FINISHED.is_needed(logging.ERROR if isinstance(outcome, Bury) else logging.INFO):
        return None
    now = timezone.now()
    result = _result(task, message, now - timedelta(seconds=seconds))
    object.__setattr__(result, "finished_at", now)
    if isinstance(outcome, Bury):
        object.__setattr__(result, "status", TaskResultStatus.FAILED)
        trace = outcome.traceback or outcome.error
        result.errors.append(AttemptError(exception_class_path=error_path(outcome.error), traceback=trace))
    else:
        object.__setattr__(result, "status", TaskResultStatus.SUCCESSFUL)
        object.__setattr__(result, "_return_value", None if outcome.result is None else loads(outcome.result))
    return result


def _result(task: AnyTask, message: Message, started: datetime) -> AnyResult:
    """Return the result of a running task."""
    return TaskResult(
        task=task,
        id=message.id,
        status=TaskResultStatus.RUNNING,
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


def moment(milliseconds: int | None) -> datetime | None:
    """Return milliseconds since 1970 as a datetime, aware if USE_TZ is on."""
    if milliseconds is None:
        return None
    found = datetime.fromtimestamp(milliseconds / 1000, UTC)
    if settings.USE_TZ:
        return found
    try:
        return timezone.make_naive(found)
    except OverflowError:
        # East of Greenwich the last day of 9999 would be in the year 10000.
        return found.replace(tzinfo=None)
