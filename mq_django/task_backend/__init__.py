"""Django's tasks on our queues."""

from mq_django.task_backend.backend import MQBackend, MQTask, task

__all__ = ["MQBackend", "MQTask", "task"]
