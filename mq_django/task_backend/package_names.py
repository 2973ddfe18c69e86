"""The names of the package django-tasks, as Django has them. Only what runs with the package imports this."""

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

#: The logger of the package's own receivers of these signals.
LOGGER = "django_tasks"

__all__ = [
    "LOGGER",
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
