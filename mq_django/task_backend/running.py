"""One attempt of a task in a consumer: its arguments, context, signals and outcome."""

import logging
import os
import socket
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.utils import timezone

from mq_django.conf import current_time_zone, get_config
from mq_django.core import clock
from mq_django.core.handler_options import database_of
from mq_django.core.jsontext import dumps, loads
from mq_django.core.logs import get_logger
from mq_django.core.messages import Message
from mq_django.core.outcomes import ACK, Ack, Bury, Cancel, Expire, Outcome, Retry, refuse_unfinished
from mq_django.core.texts import summary_of, traceback_of
from mq_django.errors import MessageTooLarge
from mq_django.registry import Handler
from mq_django.stores.results import CANCELLED, EXPIRED, error_path
from mq_django.task_backend.arguments import check_call, has_arguments
from mq_django.task_backend.compat import AnyResult, AnyTask, normalize_json
from mq_django.task_backend.task_api import TaskAPI, end_of

logger = get_logger(__name__)

#: The most attempts whose consumers are listed in a result.
MAX_ATTEMPT = 10_000

#: The worker id while a task runs. The stored result has the name of the consumer instead.
WORKER = f"{socket.gethostname()[:40]}-{os.getpid()}"


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
        text = dumps(normalize_json(value))
        if len(text) > config.max_size:
            raise MessageTooLarge(f"The task returned {len(text)} bytes of JSON: more than MAX_SIZE")
    except (TypeError, ValueError) as error:
        return Bury(summary_of(error), traceback_of(error))
    return Ack(text)


def _finished(task: AnyTask, api: TaskAPI, message: Message, outcome: Outcome, seconds: float) -> AnyResult | None:
    """Return the result for the signal that a task has ended; None if it is retried."""
    if isinstance(outcome, Expire):
        outcome = Bury(EXPIRED)
    elif isinstance(outcome, Cancel):
        outcome = Bury(f"{CANCELLED}: {outcome.error}", outcome.error)
    if not isinstance(outcome, Ack | Bury) or not has_arguments(message.data):
        return None
    now = _now()
    result = _result(task, api, message, now - timedelta(seconds=seconds))
    object.__setattr__(result, "finished_at", now)
    if isinstance(outcome, Bury):
        object.__setattr__(result, "status", api.status.FAILED)
        trace = outcome.traceback or outcome.error
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
