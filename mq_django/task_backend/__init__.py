"""Django's tasks on our queues."""

from mq_django.task_backend.backend import MQBackend, MQTask
from mq_django.task_backend.decorator import task
from mq_django.task_backend.result_lookup import aget_result, get_result
from mq_django.task_backend.task_options import aenqueue_many, enqueue_many
from mq_django.task_backend.waiting import aas_completed, as_completed, await_, await_all, wait, wait_all

__all__ = [
    "MQBackend",
    "MQTask",
    "aas_completed",
    "aenqueue_many",
    "aget_result",
    "as_completed",
    "await_",
    "await_all",
    "enqueue_many",
    "get_result",
    "task",
    "wait",
    "wait_all",
]
