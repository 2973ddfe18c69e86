"""Django's tasks on our queues."""

from mq_django.task_backend.backend import MQBackend, MQTask
from mq_django.task_backend.decorator import task
from mq_django.task_backend.task_options import aenqueue_many, enqueue_many

__all__ = ["MQBackend", "MQTask", "aenqueue_many", "enqueue_many", "task"]
