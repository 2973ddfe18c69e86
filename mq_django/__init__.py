"""A message queue for Django on Redis.

Importing the package imports no other module. Each public name is imported when it is first used.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "Ack": "mq_django.core.outcomes",
    "Bury": "mq_django.core.outcomes",
    "CancelResult": "mq_django.core.lookup",
    "Cron": "mq_django.core.schedules",
    "Every": "mq_django.core.schedules",
    "Group": "mq_django.producers.topics",
    "GroupPosition": "mq_django.producers.group_status",
    "GroupStatus": "mq_django.producers.group_status",
    "Lookup": "mq_django.core.lookup",
    "MQError": "mq_django.errors",
    "MQTask": "mq_django.task_backend",
    "Message": "mq_django.core.messages",
    "Place": "mq_django.core.lookup",
    "Progress": "mq_django.core.reports",
    "Queue": "mq_django.producers.queues",
    "Replayed": "mq_django.producers.replay",
    "Resumable": "mq_django.producers.resume",
    "Retry": "mq_django.core.outcomes",
    "RetryPolicy": "mq_django.core.retries",
    "ScheduleOptions": "mq_django.core.schedule_options",
    "ScheduleStatus": "mq_django.stores.schedule_status",
    "Topic": "mq_django.producers.topics",
    "aenqueue_many": "mq_django.task_backend",
    "aget_progress": "mq_django.producers.progress_reading",
    "cron": "mq_django.core.schedules",
    "enqueue_many": "mq_django.task_backend",
    "every": "mq_django.core.schedules",
    "get_progress": "mq_django.producers.progress_reading",
    "handler": "mq_django.registry",
    "on_signal": "mq_django.triggers",
    "progress": "mq_django.core.progress",
    "queues": "mq_django.producers.queues",
    "resumable": "mq_django.producers.resume",
    "schedules": "mq_django.producers.schedule_collection",
    "subscriber": "mq_django.registry",
    "task": "mq_django.task_backend",
    "topics": "mq_django.producers.topics",
}

__all__ = [
    "Ack",
    "Bury",
    "CancelResult",
    "Cron",
    "Every",
    "Group",
    "GroupPosition",
    "GroupStatus",
    "Lookup",
    "MQError",
    "MQTask",
    "Message",
    "Place",
    "Progress",
    "Queue",
    "Replayed",
    "Resumable",
    "Retry",
    "RetryPolicy",
    "ScheduleOptions",
    "ScheduleStatus",
    "Topic",
    "aenqueue_many",
    "aget_progress",
    "cron",
    "enqueue_many",
    "every",
    "get_progress",
    "handler",
    "on_signal",
    "progress",
    "queues",
    "resumable",
    "schedules",
    "subscriber",
    "task",
    "topics",
]


def __getattr__(name: str) -> Any:
    module = _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
