"""Django's tasks on our queues: the backend, the tasks it runs, and the decorator `mq_django.task`."""

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from inspect import isfunction
from typing import TYPE_CHECKING, Any, Never, overload

from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.utils.module_loading import import_string

from mq_django import registry
from mq_django.conf import QueueConfig, get_config, read
from mq_django.core.breakers import Breaker
from mq_django.core.clock import Duration
from mq_django.core.handler_options import parse_timeout, yields
from mq_django.core.ids import STEP_NAME
from mq_django.core.keys import instead_of
from mq_django.core.message_format import MAX_PRIORITY, PRIORITIES, Priority, numbered
from mq_django.core.publish_checks import unknown_options
from mq_django.core.retries import RetryPolicy
from mq_django.core.schedules import Cron, Every, Schedule, Scheduled
from mq_django.core.texts import line, listing, repr_of, text_of
from mq_django.discovery import import_declaring
from mq_django.registry import register
from mq_django.stores.results import Result, find_result
from mq_django.task_backend.compat import LOGGER, AnyResult, AnyTask, BaseTaskBackend, InvalidTask, Task, task_backends
from mq_django.task_backend.running import handler_of, step_handler_of
from mq_django.task_backend.sending import (
    announce,
    find_waiting,
    new_result,
    result_in_outbox,
    send_many,
    send_one,
    task_result,
)
from mq_django.task_backend.task_api import DJANGO, TaskAPI
from mq_django.task_backend.task_options import (
    DEFAULT,
    Arguments,
    Publishing,
    TaskOptions,
    arguments_of,
    check_call,
    has_arguments,
    patchable,
)
from mq_django.transport import test_mode
from mq_django.transport.connections import open_transports

#: The backend alias of `mq_django.task`. It is not in the setting TASKS, and does not depend on it.
OWN_ALIAS = "mq_django"
OPTIONS = frozenset({"ON_COMMIT"})

DEFAULT_TASK_BACKEND_ALIAS = "default"
NOT_OF_A_MODULE = (
    "a task is found by the path of its function. A decorator below @task must use functools.wraps(), and options "
    "need their names, as in @task(queue_name=...)"
)
#: Backends that take tasks of `mq_django.task` in tests.
FOR_TESTS = frozenset(
    f"{package}.backends.{name}"
    for package in ("django.tasks", "django_tasks")
    for name in ("dummy.DummyBackend", "immediate.ImmediateBackend")
)

#: The module of the package's handler, which makes backends.
_PACKAGE = "django_tasks"

#: All tasks of this process by path. A message only names a task: nothing is imported for it.
_tasks: dict[str, AnyTask] = {}


@patchable
@dataclass(frozen=True, slots=True, kw_only=True)
class MQTask(TaskOptions, Task):  # type: ignore[type-arg]  # Django's own has no parameters
    """Django's task, with a retry policy, a timeout and the options of publishing."""

    #: None: the queue's.
    retry: RetryPolicy | None = None
    #: None: the queue's. A number is in seconds.
    timeout: timedelta | None = None
    #: None: the queue's.
    breaker: Breaker | None = None
    publishing: Publishing = DEFAULT

    def get_backend(self) -> BaseTaskBackend:
        """Return the task's backend: MQBackend for `mq_django.task`, else that of its alias in TASKS.

        In a test that has a backend for tests in TASKS, it is the test's.
        """
        if self.backend != OWN_ALIAS:
            return Task.get_backend(self)
        # A new task is checked by MQBackend, and becomes known, whatever a test has in TASKS.
        return task_backends[DEFAULT_TASK_BACKEND_ALIAS] if _is_replaced() and _is_known(self) else _own


if TYPE_CHECKING:
    Base = BaseTaskBackend
else:  # a backend of Django, or of the package django-tasks
    Base = object


class TaskBackend(Base):
    """The methods of our backend, for Django and for the package django-tasks."""

    _api = DJANGO

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, dict(params))
        self.on_commit = self.options.get("ON_COMMIT", True)

    def validate_task(self, task: AnyTask) -> None:
        """Refuse a task that could not run. Register any other as the handler of its messages.

        Whether `MQ_DJANGO` has its queue, `enqueue()` and `manage.py check` say: modules are imported before the check.

        Args:
            task: a task made by Django's or our decorator.

        Raises:
            InvalidTask: its function, priority or time cannot be used, or `TASKS` does not have its queue.
            ConfigurationError: its path is the name of another handler.
        """
        # Django compares and asks these as numbers and datetimes. Texts are Django's own as far as their full stop.
        level: object = task.priority
        if isinstance(level, bool) or not isinstance(level, int) or abs(level) > MAX_PRIORITY:
            text = f"priority must be a whole number between {-MAX_PRIORITY} and {MAX_PRIORITY}."
            names = f"mq_django.task and using() also take {', '.join(PRIORITIES)}"
            raise self._api.invalid_task(f"{text} {repr_of(task.priority)} is not; {names}")
        if task.run_after is not None and not isinstance(task.run_after, datetime):
            raise self._api.invalid_task(f"run_after must be an aware datetime, not {repr_of(task.run_after)}")
        if not isfunction(task.func) or "<locals>" in task.func.__qualname__:
            text = "Task function must be defined at a module level."
            raise self._api.invalid_task(f"{text} {repr_of(task.func)} is not: {NOT_OF_A_MODULE}")
        if yields(task.func):
            text = f"A task must not contain `yield`: a call of {task.func.__qualname__} runs nothing"
            raise self._api.invalid_task(text)
        if not isinstance(task.queue_name, str):
            raise self._api.invalid_task(f"Queue {repr_of(task.queue_name)} is not valid for backend: it is no text")
        # Before Django, which does not say where a queue is missing.
        self._check_allowed(task.queue_name)
        super().validate_task(task)
        if not _is_known(task):
            check = partial(self._check_settings, task.queue_name)
            register(replace(handler_of(task, self._api), check_settings=check))
            register(step_handler_of(task, self._api))
            _tasks[task.module_path] = task

    def _check_allowed(self, queue: str) -> None:
        if self.queues:
            self._check_queue(queue, f"TASKS[{self.alias!r}]['QUEUES']", self.queues)

    def _check_settings(self, queue: str) -> None:
        self._check_queue(queue, 'MQ_DJANGO["QUEUES"]', get_config().queues)

    def _check_queue(self, queue: str, setting: str, known: Collection[str]) -> None:
        if queue not in known:
            raise self._api.invalid_task(
                f"Queue {repr_of(queue)} is not valid for backend. {setting} has {listing(known)}{instead_of(queue)}."
            )

    def _check_task(self, task: AnyTask) -> None:
        if _is_known(task):
            self._check_allowed(task.queue_name)
        else:  # it was made for another backend before TASKS was changed
            self.validate_task(task)
        self._check_settings(task.queue_name)

    def enqueue(  # type: ignore[override]  # typed by the function's parameters there
        self, task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> AnyResult:
        """Publish a message that runs the task, and return its result, which is READY.

        If the option `unique` keeps an earlier message, the result is the earlier message's, with its arguments.

        Args:
            task: the task to run; `task.enqueue()` calls this.
            args, kwargs: the arguments of its function: JSON values.

        Raises:
            InvalidArguments: the function cannot be called with these arguments, or one cannot be encoded as JSON.
            InvalidTask: the task cannot run in its queue.
            PublishError, StoreError: as for `Queue.publish`.
            ConfigurationError: `MQ_DJANGO` cannot be used.
        """
        self._check_task(task)
        arguments = arguments_of(task, args, kwargs)
        made, message_id = send_one(task, arguments, on_commit=self.on_commit)
        if message_id != made.message.id:
            return self._earlier_result(task, message_id)
        result = new_result(self._api, task, message_id, made.message.data, made.message.published_ms)
        self._announce(task, [result])
        return result

    def _earlier_result(self, task: AnyTask, message_id: str) -> AnyResult:
        """Return the result of the earlier message that has the unique key."""
        try:
            return self.get_result(message_id)
        except self._api.no_result:
            return new_result(self._api, task, message_id, *find_waiting(task, message_id))

    def _announce(self, task: AnyTask, results: Sequence[AnyResult]) -> None:
        announce(self._api.enqueued, type(self), task, results, on_commit=self.on_commit)

    def enqueue_many(self, task: AnyTask, calls: Iterable[Arguments]) -> list[AnyResult]:
        """Publish messages that run the task, and return their results; `task.enqueue_many()` calls this.

        Args:
            task: the task to run.
            calls: the positional arguments and the keyword arguments of each.

        Raises:
            InvalidArguments: the function cannot be called with arguments, or one cannot be encoded as JSON.
            InvalidTask: the task cannot run in its queue.
            PublishError, StoreError: as for `Queue.publish_many`.
            ConfigurationError: `MQ_DJANGO` cannot be used.
        """
        self._check_task(task)
        arguments = [arguments_of(task, args, kwargs) for args, kwargs in calls]
        made = send_many(task, arguments, on_commit=self.on_commit)
        results = [new_result(self._api, task, message.id, message.data, message.published_ms) for message, *_ in made]
        self._announce(task, results)
        return results

    def get_result(self, result_id: str) -> AnyResult:
        """Return the stored result of an enqueued task.

        Args:
            result_id: the `id` of the result that `enqueue()` returned.

        Raises:
            TaskResultDoesNotExist: there is no result, it has expired, or this process has no task of its path.
            StoreError: Redis cannot be reached, or refuses the command.
            DatabaseError: Redis has no result, and a database that may have its row of the outbox cannot be read.
            ConfigurationError: `MQ_DJANGO` cannot be used.
        """
        text = text_of(result_id)
        stored = _find_stored(text, get_config().partitions_for_id(text, self.queues))
        if stored is None:
            raise self._api.no_result(line(text[:300]))
        found, task = stored
        return task_result(found, task, self._api, text)

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


def _find_stored(result_id: str, configs: Sequence[QueueConfig]) -> tuple[Result, AnyTask] | None:
    """Return a result in one of these queues and partitions, and its task, if this process has it."""
    transports = open_transports("produce", [queue.connection for queue in configs])
    found = find_result(transports, configs, result_id)
    if found is None and any(config.outbox for config in configs):
        waiting = result_in_outbox(result_id, configs)
        # A relay may have published the row meanwhile.
        found = find_result(transports, configs, result_id) or waiting
    if found is None or not has_arguments(found.data):
        return None
    path = found.name.removeprefix(STEP_NAME)
    if path not in _tasks:  # perhaps of a module that this process has not needed
        import_declaring()
    task = _tasks.get(path)
    return None if task is None else (found, task)


def find_anywhere(result_id: str) -> AnyResult | None:
    """Return the stored result of a task of any queue, whatever its backend; None if there is none."""
    stored = _find_stored(result_id, get_config().partitions_for_id(result_id))
    if stored is None:
        return None
    found, task = stored
    return task_result(found, task, api_of(task) or DJANGO, result_id)


def api_of(task: AnyTask) -> TaskAPI | None:
    """Return the API of a task that is enqueued in our queues; None if its backend is another one."""
    backend = task.get_backend()
    return backend._api if isinstance(backend, TaskBackend) else None  # noqa: SLF001 - of this class


class MQBackend(TaskBackend, BaseTaskBackend):
    """Django's task backend that runs tasks with `manage.py runconsumer`.

        TASKS = {"default": {"BACKEND": "mq_django.task_backend.MQBackend", "OPTIONS": {"ON_COMMIT": True}}}

    With `ON_COMMIT`, the default, a task that is enqueued inside `atomic()` is enqueued when that commits.

    The stored result is RUNNING when the task has been running for one to two seconds, because storing each start would
    cost a write per task. In signals and contexts it is RUNNING from the start.

    With Django 6 or newer, code that uses the package django-tasks has the package's objects, signals and exceptions. A
    subclass of MQBackend has Django's.
    """

    _api = DJANGO
    task_class = MQTask

    def __new__(cls, alias: str, params: Mapping[str, Any]) -> Any:
        """Return a backend for the package that calls this: Django, or django-tasks, which reads the same TASKS."""
        # Only the caller tells: both call the class that TASKS names with equal arguments.
        caller = sys._getframe(1).f_globals.get("__name__", "")  # noqa: SLF001 - there is no public form
        if cls is MQBackend and caller == _PACKAGE != LOGGER:
            # Not imported above, because the package is optional, and patches Django when it is imported.
            return import_string("mq_django.task_backend.package_backend.PackageBackend")(alias, params)
        return super().__new__(cls)


def _is_replaced() -> bool:
    """Return whether a test runs tasks by Django's ImmediateBackend, or keeps them in its DummyBackend.

    Only if its settings name it: Django has the ImmediateBackend without that. Only in tests: a project may run its
    other tasks so.
    """
    backend = getattr(settings, "TASKS", {}).get(DEFAULT_TASK_BACKEND_ALIAS, {}).get("BACKEND")
    return (
        backend in FOR_TESTS and test_mode.is_on() and settings.is_overridden("TASKS")  # type: ignore[misc]
    )


def _is_known(task: AnyTask) -> bool:
    known = _tasks.get(task.module_path)
    return known is not None and known.func is task.func


_own = MQBackend(OWN_ALIAS, {"QUEUES": []})


def _scheduled(task: MQTask, when: Schedule) -> Scheduled:
    if not isinstance(when, Cron | Every):
        raise InvalidTask(f"schedule= is cron(...) or every(...), not {repr_of(when)}")
    try:
        check_call(task, (), {})
    except TypeError as error:
        raise InvalidTask(
            f"A task with a schedule is enqueued without arguments; an entry of SCHEDULES may have 'args': {error}"
        ) from error
    path = task.module_path
    return Scheduled(
        name=path,
        queue=task.queue_name,
        message=path,
        data={"args": [], "kwargs": {}},
        when=when,
        priority=task.priority,
        where=path,
    )


Function = Callable[..., Any]


@overload
def task(function: Function, /) -> MQTask: ...


@overload
def task(
    *,
    priority: Priority = ...,
    queue_name: str = ...,
    takes_context: bool = ...,
    retry: RetryPolicy | None = ...,
    timeout: Duration | None = ...,
    breaker: Breaker | None = ...,
    schedule: Schedule | None = ...,
) -> Callable[[Function], MQTask]: ...


def task(
    function: Function | None = None,
    /,
    *,
    priority: Priority = 0,
    queue_name: str = "default",
    takes_context: bool = False,
    retry: RetryPolicy | None = None,
    timeout: Duration | None = None,
    breaker: Breaker | None = None,
    schedule: Schedule | None = None,
    **unknown: Never,
) -> MQTask | Callable[[Function], MQTask]:
    """Make a function a task that `manage.py runconsumer` runs.

    The setting TASKS has no effect on it. Only in tests, a DummyBackend or ImmediateBackend of Django gets it.

        @task(queue_name="emails", retry=RetryPolicy(max_attempts=3))
        def send_receipt(order_id): ...

        send_receipt.enqueue(7)

    Args:
        function: for `@task` without parentheses.
        priority: -100 to 100, or "high" (10), "normal" (0) or "low" (-10); higher runs sooner.
        queue_name: one of MQ_DJANGO["QUEUES"], which `enqueue()` and `manage.py check` look up.
        takes_context: the function takes a `TaskContext` as its first argument, `context`.
        retry: the policy for failed attempts; None: the queue's RETRY.
        timeout: seconds or a timedelta; None: the queue's TIMEOUT.
        breaker: lets its messages wait while what they need is down; None: the queue's BREAKER.
        schedule: `mq_django.cron(...)` or `mq_django.every(...)`: when it is enqueued, without arguments. One process
            fires each tick. If ticks were missed while nothing was running, only the last one fires.
        unknown: is refused, such as `bind` of Celery.

    Returns:
        The task, whose `using()` also takes options of `Queue.publish`. Without `function`, a decorator.

    Raises:
        InvalidArguments: there is no such option. The error says what to write instead of one of others.
        InvalidTask: the task could not run with these options.
        ConfigurationError: the timeout is not above zero, `retry` is not a RetryPolicy, `breaker` is no Breaker, or
            another function has the same path, or a handler that name.
    """
    if unknown:
        raise unknown_options(task, unknown, "@task({})")

    def decorate(function: Function) -> MQTask:
        made = MQTask(
            func=function,
            priority=numbered(priority),
            backend=OWN_ALIAS,
            queue_name=queue_name,
            run_after=None,
            takes_context=takes_context,
            retry=retry,
            timeout=parse_timeout(timeout),
            breaker=breaker,
        )
        if schedule is not None:
            registry.schedule(_scheduled(made, schedule))
        return made

    return decorate if function is None else decorate(function)
