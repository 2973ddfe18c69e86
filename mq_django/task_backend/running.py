"""One attempt of a task in a consumer: its arguments, its context, its signals and what it returns."""

import logging
import os
import socket
import traceback
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.utils import timezone

from mq_django.conf import QueueConfig, get_config
from mq_django.core.jsontext import dumps, loads
from mq_django.core.messages import Message
from mq_django.core.outcomes import ACK, Ack, Bury, Outcome, Retry
from mq_django.core.retries import RetryPolicy
from mq_django.errors import DecodeError, InvalidMessage, MessageTooLarge
from mq_django.registry import Handler
from mq_django.stores.results import MAX_ATTEMPT, error_path
from mq_django.task_backend.announcing import FINISHED, STARTED
from mq_django.task_backend.compat import (
    AnyResult,
    AnyTask,
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultStatus,
    normalize_json,
)
from mq_django.task_backend.task_errors import KeptError

#: What worker_ids say while a task runs. The kept result names the consumer instead.
WORKER = f"{socket.gethostname()[:40]}-{os.getpid()}"


def handler_of(task: AnyTask) -> Handler:
    """Return what runs a task's messages, in any queue."""
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
    )


def _call(task: AnyTask) -> Any:
    def call(message: Message) -> Outcome:
        if not has_arguments(message.data):
            return MALFORMED
        attempt = TaskRun(task, message)
        started = attempt.starting()
        if started is not None:
            STARTED.send(attempt.sender, started)
        try:
            outcome = attempt.outcome(task.func(*attempt.args, **attempt.kwargs))
        except BaseException as error:
            failed = attempt.failing(error)
            if failed is not None:
                FINISHED.send(attempt.sender, failed)
            raise
        finished = attempt.finishing(outcome)
        if finished is not None:
            FINISHED.send(attempt.sender, finished)
        return outcome

    return call


def _async_call(task: AnyTask) -> Any:
    async def call(message: Message) -> Outcome:
        if not has_arguments(message.data):
            return MALFORMED
        attempt = TaskRun(task, message)
        started = attempt.starting()
        if started is not None:
            await STARTED.asend(attempt.sender, started)
        try:
            outcome = attempt.outcome(await task.func(*attempt.args, **attempt.kwargs))
        except BaseException as error:
            failed = attempt.failing(error)
            if failed is not None:
                await FINISHED.asend(attempt.sender, failed)
            raise
        finished = attempt.finishing(outcome)
        if finished is not None:
            await FINISHED.asend(attempt.sender, finished)
        return outcome

    return call


MALFORMED = Bury('The data of a task\'s message is {"args": [...], "kwargs": {...}}')


def arguments_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task's arguments as its function will get them, copied.

    Raises:
        TypeError, ValueError: one has no form in JSON.
    """
    try:
        found: dict[str, Any] = loads(dumps({"args": args, "kwargs": kwargs}))
    except (InvalidMessage, DecodeError):
        # Django takes bytes as well, and says of anything else what is wrong with it.
        return {"args": normalize_json(args), "kwargs": normalize_json(kwargs)}
    return found


def has_arguments(data: Any) -> bool:
    """Tell whether a message's data are a task's arguments: anybody may have published it."""
    return isinstance(data, dict) and isinstance(data.get("args"), list) and isinstance(data.get("kwargs"), dict)


class TaskRun:
    """One run of a task for one message."""

    __slots__ = ("_result", "_task", "_value", "args", "kwargs", "message")

    def __init__(self, task: AnyTask, message: Message) -> None:
        self._task = task
        self.message = message
        self._result: AnyResult | None = None
        self._value: Any = None
        self.args: list[Any] = message.data["args"]
        self.kwargs: dict[str, Any] = message.data["kwargs"]

    @property
    def _config(self) -> QueueConfig:
        return get_config().queue(self.message.queue)

    @property
    def sender(self) -> type:
        """Return the sender of the task's signals."""
        return type(self._task.get_backend())

    def starting(self) -> AnyResult | None:
        """Note the start, and return what to announce, if anybody hears it."""
        heard = STARTED.heard(logging.INFO)
        if self._task.takes_context:
            self.args = [TaskContext(task_result=self._made()), *self.args]
        return self._made() if heard else None

    def outcome(self, returned: Any) -> Outcome:
        """Return what the function's return value means for the message.

        A value that cannot be kept buries it at once: every further attempt would repeat the task's effects.
        """
        if returned is None:
            return ACK
        if isinstance(returned, Retry | Bury):
            return returned
        value, config = returned.result if isinstance(returned, Ack) else returned, self._config
        if value is None or not config.keeps_results:
            return ACK
        try:
            self._value = normalize_json(value)
            text = dumps(self._value)
            if len(text) > config.max_size:
                raise MessageTooLarge(f"The task returned {len(text)} bytes of JSON: more than MAX_SIZE")
        except (TypeError, ValueError) as error:
            told = f"{type(error).__module__}.{type(error).__qualname__}: {error}"
            return Bury(told, "".join(traceback.format_exception(error)))
        return Ack(text)

    def failing(self, error: BaseException) -> AnyResult | None:
        """Return what to announce when the function has raised: nothing while the task is tried again."""
        if not self._is_last(error) or not FINISHED.heard(logging.ERROR):
            return None
        kind = type(error)
        path = f"{kind.__module__}.{kind.__qualname__}"
        return self._failed(TaskError(exception_class_path=path, traceback="".join(traceback.format_exception(error))))

    def finishing(self, outcome: Outcome) -> AnyResult | None:
        """Return what to announce when the function has returned, if anybody hears it."""
        if isinstance(outcome, Ack):
            if not FINISHED.heard(logging.INFO):
                return None
            result = self._ended(TaskResultStatus.SUCCESSFUL)
            object.__setattr__(result, "_return_value", self._value)
            return result
        if not isinstance(outcome, Bury | Retry) or not FINISHED.heard(logging.ERROR):
            return None
        if isinstance(outcome, Retry) and not self._is_last(None):
            return None
        told = outcome.traceback or outcome.error
        return self._failed(KeptError(exception_class_path=error_path(outcome.error), traceback=told))

    def _is_last(self, error: BaseException | None) -> bool:
        policy: RetryPolicy = getattr(self._task, "retry", None) or self._config.retry
        used_up = policy.exhausted(self.message.attempt, default_max=self._config.max_attempts)
        return used_up or isinstance(error, policy.bury_on)

    def _failed(self, error: TaskError) -> AnyResult:
        result = self._ended(TaskResultStatus.FAILED)
        result.errors.append(error)
        return result

    def _ended(self, status: TaskResultStatus) -> AnyResult:
        result = self._made()
        object.__setattr__(result, "finished_at", timezone.now())
        object.__setattr__(result, "status", status)
        return result

    def _made(self) -> AnyResult:
        if self._result is None:
            now = timezone.now()
            self._result = TaskResult(
                task=self._task,
                id=self.message.id,
                status=TaskResultStatus.RUNNING,
                enqueued_at=moment(self.message.published_ms),
                started_at=now,
                last_attempted_at=now,
                finished_at=None,
                args=self.args,
                kwargs=self.kwargs,
                backend=self._task.backend,
                errors=[],
                # Who ran the attempts before is only known to the kept result.
                worker_ids=[""] * min(self.message.attempt - 1, MAX_ATTEMPT) + [WORKER],
            )
        return self._result


def moment(milliseconds: int | None) -> datetime | None:
    """Return milliseconds since 1970 as Django's tasks tell times."""
    if milliseconds is None:
        return None
    found = datetime.fromtimestamp(milliseconds / 1000, UTC)
    if settings.USE_TZ:
        return found
    try:
        return timezone.make_naive(found)
    except OverflowError:
        # East of Greenwich the last day has no date.
        return found.replace(tzinfo=None)
