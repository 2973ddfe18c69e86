"""Django's tasks on our queues.

`MQBackend` is a backend for Django's TASKS setting, and `@task` declares a task with the options of our queues. A
task is a handler whose message has the arguments as its data.

    enqueue() -> sending: a publication -> producers -> a queue -> running: one attempt -> a result

`task_options` has what our tasks have beside what Django's have, such as `using(delay=...)`, and their arguments.
`running` runs an attempt in a consumer: context, signals, outcome, also of a step of a workflow. Results are kept in
Redis (`stores/results`); `waiting` waits for them, and `sending` shows them as Django's `TaskResult`.

`compat` chooses Django 6 or the package django-tasks, `task_api` has what the backend needs of either, and the other
names of the package are in `package_names`.

A message names its task; the function is found among the declared ones, and never imported by that name.
"""

from mq_django.task_backend.backend import MQBackend, MQTask, task
from mq_django.task_backend.task_options import aenqueue_many, enqueue_many
from mq_django.task_backend.waiting import (
    aget_result,
    aiter_results,
    await_result,
    await_results,
    get_result,
    iter_results,
    wait_result,
    wait_results,
)

__all__ = [
    "MQBackend",
    "MQTask",
    "aenqueue_many",
    "aget_result",
    "aiter_results",
    "await_result",
    "await_results",
    "enqueue_many",
    "get_result",
    "iter_results",
    "task",
    "wait_result",
    "wait_results",
]
