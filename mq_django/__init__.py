"""A message queue for Django on Redis.

Importing the package imports no other module, but in `runconsumer` the one that lets hangups wait. Each public name is
imported when it is first used.
"""

import sys
from importlib import import_module
from typing import Any

if sys.argv[1:2] == ["runconsumer"]:
    # Before anything of the project is imported but the settings, and apps before this one.
    from mq_django.consumers import hangups

    hangups.hold()

__version__ = "0.1.0"

_PUBLIC = {
    "Ack": "mq_django.core.messages",
    "Breaker": "mq_django.core.breakers",
    "Bury": "mq_django.core.messages",
    "CancelResult": "mq_django.core.messages",
    "Chunk": "mq_django.core.message_streams",
    "Cron": "mq_django.core.schedules",
    "Every": "mq_django.core.schedules",
    "Group": "mq_django.producers.topics",
    "GroupPosition": "mq_django.producers.topics",
    "GroupStatus": "mq_django.producers.topics",
    "Lookup": "mq_django.core.messages",
    "LookupState": "mq_django.core.messages",
    "MQError": "mq_django.errors",
    "MQTask": "mq_django.task_backend",
    "Message": "mq_django.core.messages",
    "Progress": "mq_django.core.running_handler",
    "Queue": "mq_django.producers.queues",
    "Replayed": "mq_django.producers.topics",
    "Resumable": "mq_django.producers.resume",
    "Retry": "mq_django.core.messages",
    "RetryPolicy": "mq_django.core.retries",
    "ScheduleOptions": "mq_django.core.schedules",
    "ScheduleStatus": "mq_django.stores.schedule_status",
    "Topic": "mq_django.producers.topics",
    "aenqueue_many": "mq_django.task_backend",
    "aget_progress": "mq_django.producers.queues",
    "aget_result": "mq_django.task_backend",
    "aiter_results": "mq_django.task_backend",
    "aread_stream": "mq_django.producers.message_streams",
    "await_result": "mq_django.task_backend",
    "await_results": "mq_django.task_backend",
    "cron": "mq_django.core.schedules",
    "enqueue_many": "mq_django.task_backend",
    "every": "mq_django.core.schedules",
    "exactly_once": "mq_django.core.handler_options",
    "get_progress": "mq_django.producers.queues",
    "get_result": "mq_django.task_backend",
    "handler": "mq_django.registry",
    "is_cancelled": "mq_django.core.running_handler",
    "iter_results": "mq_django.task_backend",
    "on_signal": "mq_django.triggers",
    "progress": "mq_django.core.running_handler",
    "queues": "mq_django.producers.queues",
    "read_stream": "mq_django.producers.message_streams",
    "resumable": "mq_django.producers.resume",
    "schedules": "mq_django.producers.schedules",
    "stream": "mq_django.core.running_handler",
    "subscriber": "mq_django.registry",
    "task": "mq_django.task_backend",
    "topics": "mq_django.producers.topics",
    "uninterrupted": "mq_django.core.running_handler",
    "wait_result": "mq_django.task_backend",
    "wait_results": "mq_django.task_backend",
}

__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    module = _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
