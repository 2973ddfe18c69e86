"""What the backend needs of a package with Django's task API: Django since 6.0, and django-tasks."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Self

from asgiref.sync import sync_to_async
from django.dispatch import Signal

from mq_django.core.ids import correlation_id_in
from mq_django.core.messages import Message
from mq_django.core.texts import object_of, repr_of
from mq_django.signals import send_signal
from mq_django.task_backend import compat
from mq_django.task_backend.compat import AnyResult, TaskError

# Django's signals about tasks, which are sent only if there are receivers.

#: The message of the task whose end is signalled.
_ended: ContextVar[Message | None] = ContextVar("mq_django_ended", default=None)


@contextmanager
def end_of(message: Message) -> Iterator[None]:
    """Send signals about the end of a task, so that Django's line in the log is about this message: see TaskEnds."""
    token = _ended.set(message)
    try:
        yield
    finally:
        _ended.reset(token)


class TaskEnds(logging.Filter):
    """Changes Django's line in the log about the end of a task.

    `failure_logs` has logged the error of a task that has failed, so that the line becomes an INFO without a traceback.
    It gets the correlation id of the message, because middleware has ended before.
    """

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__()
        self._logger = logger

    def filter(self, record: logging.LogRecord) -> bool:
        message = _ended.get()
        if message is None:
            return True
        if (correlation_id := correlation_id_in(message.headers)) is not None:
            record.correlation_id = correlation_id
        if record.levelno <= logging.INFO:
            return True
        record.levelno, record.levelname, record.exc_info = logging.INFO, "INFO", None
        return self._logger.isEnabledFor(logging.INFO)


@dataclass(frozen=True, slots=True)
class TaskSignal:
    """One of Django's signals about tasks. Django itself has a receiver that logs."""

    signal: Signal
    logger: logging.Logger
    #: Its receivers when there are no others: Django's own.
    djangos: Sequence[Any]

    @classmethod
    def of(cls, signal: Signal, logs: Callable[..., Any], logger: logging.Logger) -> Self:
        """Return a signal that Django logs with a function."""
        # Of each receiver Django keeps a tuple, which begins with a key that begins with the id of the function.
        return cls(signal, logger, [each for each in signal.receivers if each[0][0] == id(logs)])

    def is_needed(self, level: int) -> bool:
        """Return whether there are other receivers, or Django logs this level.

        If not, the caller need not build a result, which takes longer than a short task.
        """
        return self.signal.receivers != self.djangos or self.logger.isEnabledFor(level)

    def send(self, sender: type, result: AnyResult, error: BaseException | None = None) -> None:
        """Send the signal. With an `error` it is sent inside `except`, as Django does: receivers may report it.

        Django's own receiver logs, and so runs filters of the project, which may raise: see send_signal().
        """
        if error is None:
            send_signal(self.signal, sender, task_result=result)
            return
        found = error.__traceback__
        try:
            raise error  # noqa: TRY301 - there is nothing to call
        except BaseException:  # noqa: BLE001 - it ends here
            error.__traceback__ = found
            send_signal(self.signal, sender, task_result=result)

    async def asend(self, sender: type, result: AnyResult, error: BaseException | None = None) -> None:
        """Send the signal on an event loop. Receivers that are not coroutine functions run in a thread."""
        if self.signal.receivers == self.djangos:
            self.send(sender, result, error)
        else:
            await sync_to_async(self.send)(sender, result, error)


# Failed attempts in the form of Django's task API.


class FindsException:
    """The class of its exception is never imported, because the path comes from Redis."""

    __slots__ = ()
    exception_class_path: str

    @property
    def exception_class(self) -> type[BaseException]:
        """Return the exception's class.

        Raises:
            ImportError: no imported module has it.
            ValueError: it is no exception.
        """
        found = object_of(self.exception_class_path)
        if found is None:
            raise ImportError(f"No imported module has the exception {repr_of(self.exception_class_path, 300)}")
        if not isinstance(found, type) or not issubclass(found, BaseException):
            text = f"{repr_of(self.exception_class_path, 300)} does not reference a valid exception."
            raise ValueError(text)  # noqa: TRY004 - as Django does
        return found


class AttemptError(FindsException, TaskError):
    """A failed attempt."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAPI:
    """The classes and signals of one package. With both installed, callers of each get its own."""

    context: Callable[..., Any]
    result: Callable[..., Any]
    status: Any
    attempt_error: Callable[..., Any]
    invalid_task: type[Exception]
    no_result: type[Exception]
    enqueued: TaskSignal
    started: TaskSignal
    finished: TaskSignal


def task_api(package: Any, attempt_error: Callable[..., Any]) -> TaskAPI:
    """Return the API of a package.

    Args:
        package: a module that has the names of `compat`.
        attempt_error: its TaskError, with a class of exceptions that is looked up and not imported.
    """
    logger = logging.getLogger(package.LOGGER)
    if not any(isinstance(each, TaskEnds) for each in logger.filters):
        logger.addFilter(TaskEnds(logger))
    return TaskAPI(
        context=package.TaskContext,
        result=package.TaskResult,
        status=package.TaskResultStatus,
        attempt_error=attempt_error,
        invalid_task=package.InvalidTask,
        no_result=package.TaskResultDoesNotExist,
        enqueued=TaskSignal.of(package.task_enqueued, package.log_task_enqueued, logger),
        started=TaskSignal.of(package.task_started, package.log_task_started, logger),
        finished=TaskSignal.of(package.task_finished, package.log_task_finished, logger),
    )


#: That of `mq_django.task`, and of Django's own decorator.
DJANGO = task_api(compat, AttemptError)
