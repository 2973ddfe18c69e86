"""The backend for Django's tasks."""

from mq_django.task_backend.backend import MQBackend, MQTask, task

__all__ = ["MQBackend", "MQTask", "task"]
