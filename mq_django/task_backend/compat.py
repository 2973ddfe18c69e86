"""Django's task API: of Django since 6.0, else of the package django-tasks.

With both, `package_backend` serves those who use the package.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from mq_django.errors import MissingDependency

if TYPE_CHECKING or find_spec("django.tasks"):
    from django.tasks import task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import (
        log_task_enqueued,
        log_task_finished,
        log_task_started,
        task_enqueued,
        task_finished,
        task_started,
    )
    from django.utils.json import normalize_json
elif find_spec("django_tasks"):
    from django_tasks import task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import (
        log_task_enqueued,
        log_task_finished,
        log_task_started,
        task_enqueued,
        task_finished,
        task_started,
    )
    from django_tasks.utils import normalize_json
else:
    raise MissingDependency(
        "Tasks need Django 6.0 or newer, or the package django-tasks: python -m pip install 'mq-django[tasks]'"
    )

if TYPE_CHECKING:
    AnyTask = Task[..., Any]
    AnyResult = TaskResult[..., Any]
else:  # without parameters in Django itself
    AnyTask = Task
    AnyResult = TaskResult

#: The logger of Django's own receivers of these signals.
LOGGER = log_task_started.__module__.removesuffix(".signals")

__all__ = [
    "LOGGER",
    "AnyResult",
    "AnyTask",
    "BaseTaskBackend",
    "InvalidTask",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "log_task_enqueued",
    "log_task_finished",
    "log_task_started",
    "normalize_json",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]
