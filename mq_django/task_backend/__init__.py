"""Django's tasks on our queues."""

from mq_django.task_backend.backend import MQBackend, MQTask
from mq_django.task_backend.decorator import task

__all__ = ["MQBackend", "MQTask", "task"]
