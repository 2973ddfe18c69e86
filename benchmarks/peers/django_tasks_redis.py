# /// script
# requires-python = ">=3.12"
# dependencies = ["django-tasks-redis==0.4.0", "hiredis==3.5.0"]
#
# [tool.bench]
# name = "django-tasks-redis"
# # An entry is deleted when it is acked.
# remaining = "redis.call('xlen', 'b:default:bench0:stream:normal') + redis.call('zcard', 'b:default:bench0:delayed')"
# one_by_one = 3000
# bulk = 0
# handled = 1500
# processes_for_eight = 8
# skips = ["threads"]
# fast = "defaults, no line of output a task; it runs one task a process, and keeps each result"
# safe = "messages of the dead are looked for every 2.5 s and taken over after 5 s"
# ///
"""django-tasks-redis: Django's task API on Redis. It acks after handling, in both settings."""

import os
import sys
from datetime import timedelta
from typing import Any

import django
from django.conf import settings
from django.core.management import call_command
from django.utils import timezone

from benchmarks import messages

NAME = messages.queue_name(0)
IS_SAFEST = messages.IS_SAFEST

settings.configure(
    SECRET_KEY="only for measuring",
    USE_TZ=True,
    INSTALLED_APPS=["django_tasks_redis"],
    TASKS={
        "default": {
            "BACKEND": "django_tasks_redis.RedisTaskBackend",
            "QUEUES": [NAME],
            "OPTIONS": {
                "REDIS_URL": messages.URL,
                "REDIS_KEY_PREFIX": "b",
                **({"REDIS_CLAIM_TIMEOUT": 5} if IS_SAFEST else {}),
            },
        }
    },
)
django.setup()

from django.tasks import task  # noqa: E402 - reads the settings


@task(queue_name=NAME)
def handle(kind: str, data: dict[str, Any]) -> None:
    messages.handle(kind, data)


def publish(kind: str, data: dict[str, Any]) -> None:
    handle.enqueue(kind, data)


def publish_later(kind: str, data: dict[str, Any], delay: float) -> None:
    handle.using(run_after=timezone.now() + timedelta(seconds=delay)).enqueue(kind, data)


def work() -> None:
    """Be one worker."""
    options = {"claim_interval": 2.5} if IS_SAFEST else {}
    with open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: PTH123 - it is no path of the project
        call_command("run_redis_tasks", queue_name=NAME, continuous=True, stdout=nowhere, **options)


def consumer(processes: int, _threads: int) -> list[str]:
    one = [sys.executable, "-c", f"from {__name__} import work; work()"]
    return [sys.executable, "-m", "benchmarks.several", *([*one, "+"] * processes)]
