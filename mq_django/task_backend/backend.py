"""Django's tasks on our queues: the backend, and the tasks it runs."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error

from mq_django.conf import get_config, read
from mq_django.core.retries import RetryPolicy
from mq_django.core.times import Duration
from mq_django.errors import ConfigurationError
from mq_django.producers.queues import queues
from mq_django.producers.sinks import after_commit
from mq_django.registry import check_retry, parse_timeout, register
from mq_django.stores.results import find_result
from mq_django.task_backend.announcing import ENQUEUED
from mq_django.task_backend.compat import (
    AnyResult,
    AnyTask,
    BaseTaskBackend,
    InvalidTask,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
)
from mq_django.task_backend.publishing import DEFAULT, Publishing
from mq_django.task_backend.running import arguments_of, handler_of, has_arguments, moment
from mq_django.task_backend.task_results import task_result
from mq_django.transport.connections import open_wires

#: The backend alias of `mq_django.task`. It is not in the setting TASKS, and does not depend on it.
OWN_ALIAS = "mq_django"
OPTIONS = frozenset({"ON_COMMIT"})

#: All tasks of this process by path. A message only names a task: nothing is imported for it.
_tasks: dict[str, AnyTask] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class MQTask(Task):  # type: ignore[type-arg]  # Django's own has no parameters
    """Django's task, with a retry policy, a timeout and the options of publishing."""

    #: None: the queue's.
    retry: RetryPolicy | None = None
    #: None: the queue's. A number is in seconds.
    timeout: timedelta | None = None
    publishing: Publishing = DEFAULT

    def __post_init__(self) -> None:
        # Django's decorator passes the timeout as it was given, which may be seconds.
        object.__setattr__(self, "timeout", parse_timeout(self.timeout))
        check_retry(self.retry)
        Task.__post_init__(self)

    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: datetime | None = None,
        backend: str | None = None,
        delay: Duration | None = None,
        unique: str | None = None,
        unique_for: Duration | str | None = None,
        on_conflict: str | None = None,
        expires: Duration | datetime | None = None,
        key: str | None = None,
        using: str | None = None,
        on_commit: bool | None = None,
        robust: bool | None = None,
    ) -> "MQTask":
        """Return a task with other options. None keeps the present value.

            remind.using(delay=3600, unique=f"cart:{cart.pk}").enqueue(cart.pk)

        Args:
            priority: -100 to 100; higher runs sooner.
            queue_name: one of MQ_DJANGO["QUEUES"].
            run_after: a datetime; replaces `delay`.
            backend: an alias in TASKS.
            delay: a timedelta or seconds from the sending; replaces `run_after`.
            unique, unique_for, on_conflict, expires, key, using, on_commit, robust: as for `Queue.publish`.

        Raises:
            InvalidTask: both `delay` and `run_after` are given, or an option cannot be used.
        """
        if run_after is not None and delay is not None:
            raise InvalidTask("Give delay or run_after, not both.")
        changed = _given(priority=priority, queue_name=queue_name, run_after=run_after, backend=backend)
        published = _given(
            delay=delay,
            unique=unique,
            unique_for=unique_for,
            on_conflict=on_conflict,
            expires=expires,
            key=key,
            using=using,
            on_commit=on_commit,
            robust=robust,
        )
        if "delay" in published:
            changed["run_after"] = None
        elif run_after is not None and self.publishing.delay is not None:
            published["delay"] = None
        if published:
            changed["publishing"] = replace(self.publishing, **published)
        return replace(self, **changed)

    def get_backend(self) -> BaseTaskBackend:
        """Return the task's backend: MQBackend for `mq_django.task`, else that of its alias in TASKS."""
        return _own if self.backend == OWN_ALIAS else Task.get_backend(self)


class MQBackend(BaseTaskBackend):
    """Django's task backend that runs tasks with `manage.py runconsumer`.

        TASKS = {"default": {"BACKEND": "mq_django.task_backend.MQBackend", "OPTIONS": {"ON_COMMIT": True}}}

    With `ON_COMMIT`, the default, a task that is enqueued inside `atomic()` is enqueued when that commits.

    The status RUNNING is used in signals and contexts only. The stored result is READY until an attempt has ended,
    because storing each start would cost a write per task.
    """

    task_class = MQTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, dict(params))
        self.on_commit = self.options.get("ON_COMMIT", True)

    def validate_task(self, task: AnyTask) -> None:
        """Refuse a task that could not run. Register any other as the handler of its messages.

        Args:
            task: a task made by Django's or our decorator.

        Raises:
            InvalidTask: its function, priority or queue cannot be used.
            ConfigurationError: its path is the name of another handler.
        """
        super().validate_task(task)
        self._check_queue(task.queue_name)
        if not _is_known(task):
            register(handler_of(task))
            _tasks[task.module_path] = task

    def _check_queue(self, name: str) -> None:
        if self.queues and name not in self.queues:
            raise InvalidTask(f"Queue '{name}' is not valid for backend.")
        try:
            configured = get_config().queues
        except ConfigurationError:
            return  # reported by `manage.py check`, which an error at import would prevent from running
        if name not in configured:
            raise InvalidTask(f"Queue '{name}' is not valid for backend: it is not in MQ_DJANGO[\"QUEUES\"].")

    def enqueue(  # type: ignore[override]  # typed by the function's parameters there
        self, task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> AnyResult:
        """Publish a message that runs the task, and return its result, which is READY.

        Args:
            task: the task to run; `task.enqueue()` calls this.
            args, kwargs: the arguments of its function: JSON values.

        Raises:
            TypeError, ValueError: an argument cannot be encoded as JSON.
            InvalidTask: the task cannot run in its queue.
            PublishError, StoreError: as for `Queue.publish`.
            ConfigurationError: `MQ_DJANGO` cannot be used.
        """
        if _is_known(task):
            self._check_queue(task.queue_name)
        else:  # it was made for another backend before TASKS was changed
            self.validate_task(task)
        queue, enqueued_ms = queues[task.queue_name], int(time.time() * 1000)
        result = TaskResult(
            task=task,
            id=queue.config.new_id(),
            status=TaskResultStatus.READY,
            enqueued_at=moment(enqueued_ms),
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=[],
            kwargs={},
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        # Set directly, because the result's own conversion to JSON takes longer than the rest of this method.
        arguments = arguments_of(task.module_path, args, kwargs)
        for name, value in arguments.items():
            object.__setattr__(result, name, value)
        publishing: Publishing = getattr(task, "publishing", DEFAULT)
        on_commit = self.on_commit if publishing.on_commit is None else publishing.on_commit
        message_id = queue.publish(
            task.module_path,
            arguments,
            deliver_at=task.run_after,
            priority=task.priority,
            message_id=result.id,
            enqueued_ms=enqueued_ms,
            on_commit=on_commit,
            **publishing.options(),
        )
        if message_id != result.id:
            # Another message with the unique key waits and was kept.
            object.__setattr__(result, "id", message_id)
        if ENQUEUED.is_needed(logging.DEBUG):
            # Not a partial(), because Django logs the __qualname__ of an action that fails.
            after_commit(
                lambda: ENQUEUED.send(type(self), result), using=publishing.using, on_commit=on_commit, robust=True
            )
        return result

    def get_result(self, result_id: str) -> AnyResult:
        """Return the stored result of an enqueued task.

        Args:
            result_id: the `id` of the result that `enqueue()` returned.

        Raises:
            TaskResultDoesNotExist: there is no result, it has expired, or this process has no task of its path.
            StoreError: Redis cannot be reached, or refuses the command.
            ConfigurationError: `MQ_DJANGO` cannot be used.
        """
        config = get_config()
        configs = [queue for name, queue in config.queues.items() if not self.queues or name in self.queues]
        found = find_result(open_wires("produce", [queue.connection for queue in configs]), configs, str(result_id))
        task = _tasks.get(found.name) if found else None
        if found is None or task is None or not has_arguments(found.data):
            raise TaskResultDoesNotExist(result_id)
        return task_result(found, task, str(result_id))

    def check(self, **_: object) -> list[CheckMessage]:
        """Return the errors in the backend's settings, for `manage.py check`."""
        return list(self._problems())

    def _problems(self) -> Iterator[CheckMessage]:
        where = f"TASKS[{self.alias!r}]"
        for name in sorted(self.options.keys() - OPTIONS):
            hint = f"Use {', '.join(OPTIONS)}."
            yield Error(f"{where}['OPTIONS'] has {name!r}, which is not an option.", hint=hint, id="mq_django.E006")
        if not isinstance(self.on_commit, bool):
            hint = "True: inside atomic() a task waits for the commit. False: it is enqueued at once."
            yield Error(f"{where}['OPTIONS']['ON_COMMIT'] must be a bool.", hint=hint, id="mq_django.E006")
        config, _problems = read(getattr(settings, "MQ_DJANGO", {}))
        for name in sorted(self.queues - set(config.queues)):
            hint = f"Add {name!r} to MQ_DJANGO[\"QUEUES\"], or remove it from {where}['QUEUES']."
            yield Error(f"{where} has the queue {name!r}, which is not configured.", hint=hint, id="mq_django.E007")


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _is_known(task: AnyTask) -> bool:
    known = _tasks.get(task.module_path)
    return known is not None and known.func is task.func


_own = MQBackend(OWN_ALIAS, {"QUEUES": []})
