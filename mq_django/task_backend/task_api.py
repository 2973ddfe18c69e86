"""What the backend needs of a package with Django's task API: Django since 6.0, and django-tasks."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mq_django.task_backend import compat
from mq_django.task_backend.announcing import TaskEnds, TaskSignal
from mq_django.task_backend.task_errors import AttemptError


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
