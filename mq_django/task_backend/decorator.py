"""The decorator `mq_django.task`."""

from collections.abc import Callable
from typing import Any, overload

from mq_django import registry
from mq_django.core.clock import Duration
from mq_django.core.handler_options import parse_timeout
from mq_django.core.retries import RetryPolicy
from mq_django.core.schedules import Cron, Every, Schedule, Scheduled
from mq_django.core.texts import repr_of
from mq_django.task_backend.arguments import check_call
from mq_django.task_backend.backend import OWN_ALIAS, MQTask
from mq_django.task_backend.compat import InvalidTask


def _scheduled(task: MQTask, when: Schedule) -> Scheduled:
    if not isinstance(when, Cron | Every):
        raise InvalidTask(f"schedule= is cron(...) or every(...), not {repr_of(when)}")
    try:
        check_call(task, (), {})
    except TypeError as error:
        raise InvalidTask(f"A task with a schedule is enqueued without arguments: {error}") from error
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
    priority: int = ...,
    queue_name: str = ...,
    takes_context: bool = ...,
    retry: RetryPolicy | None = ...,
    timeout: Duration | None = ...,
    schedule: Schedule | None = ...,
) -> Callable[[Function], MQTask]: ...


def task(
    function: Function | None = None,
    /,
    *,
    priority: int = 0,
    queue_name: str = "default",
    takes_context: bool = False,
    retry: RetryPolicy | None = None,
    timeout: Duration | None = None,
    schedule: Schedule | None = None,
) -> MQTask | Callable[[Function], MQTask]:
    """Make a function a task that `manage.py runconsumer` runs.

    The setting TASKS has no effect on it. Only in tests, a DummyBackend or ImmediateBackend of Django gets it.

        @task(queue_name="emails", retry=RetryPolicy(max_attempts=3))
        def send_receipt(order_id): ...

        send_receipt.enqueue(7)

    Args:
        function: for `@task` without parentheses.
        priority: -100 to 100; higher runs sooner.
        queue_name: one of MQ_DJANGO["QUEUES"], which `enqueue()` and `manage.py check` look up.
        takes_context: the function takes a `TaskContext` as its first argument, `context`.
        retry: the policy for failed attempts; None: the queue's RETRY.
        timeout: seconds or a timedelta; None: the queue's TIMEOUT.
        schedule: `mq_django.cron(...)` or `mq_django.every(...)`: when it is enqueued, without arguments. One process
            fires each tick. If ticks were missed while nothing was running, only the last one fires.

    Returns:
        The task, whose `using()` also takes options of `Queue.publish`. Without `function`, a decorator.

    Raises:
        InvalidTask: the task could not run with these options.
        ConfigurationError: the timeout is not above zero, `retry` is not a RetryPolicy, or another function has the
            same path, or a handler that name.
    """

    def decorate(function: Function) -> MQTask:
        made = MQTask(
            func=function,
            priority=priority,
            backend=OWN_ALIAS,
            queue_name=queue_name,
            run_after=None,
            takes_context=takes_context,
            retry=retry,
            timeout=parse_timeout(timeout),
        )
        if schedule is not None:
            registry.schedule(_scheduled(made, schedule))
        return made

    return decorate if function is None else decorate(function)
