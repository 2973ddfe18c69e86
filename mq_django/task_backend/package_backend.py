"""The backend for code that uses the package django-tasks where Django has tasks of its own, as Wagtail does."""

from dataclasses import dataclass
from datetime import timedelta

from mq_django.core.breakers import Breaker
from mq_django.core.retries import RetryPolicy
from mq_django.task_backend import package_names
from mq_django.task_backend.backend import TaskBackend
from mq_django.task_backend.package_names import BaseTaskBackend, Task, TaskError
from mq_django.task_backend.task_api import FindsException, task_api
from mq_django.task_backend.task_options import DEFAULT, Publishing, TaskOptions, patchable


class PackageError(FindsException, TaskError):
    """A failed attempt."""

    __slots__ = ()


PACKAGE = task_api(package_names, PackageError)


@patchable
@dataclass(frozen=True, slots=True, kw_only=True)
class PackageTask(TaskOptions, Task):  # type: ignore[misc, type-arg]  # mypy reads TaskOptions as Django's
    """The package's task, with what `MQTask` has."""

    retry: RetryPolicy | None = None
    timeout: timedelta | None = None
    breaker: Breaker | None = None
    publishing: Publishing = DEFAULT


class PackageBackend(TaskBackend, BaseTaskBackend):  # type: ignore[misc]  # mypy reads TaskBackend as Django's
    """MQBackend with the objects, signals and exceptions of the package."""

    _api = PACKAGE
    task_class = PackageTask
