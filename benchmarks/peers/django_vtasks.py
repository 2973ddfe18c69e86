# /// script
# requires-python = ">=3.12"
# dependencies = ["django-vtasks[valkey]==3.2.0", "uvloop", "redis", "hiredis==3.5.0"]
#
# [tool.bench]
# name = "django-vtasks"
# remaining = "redis.call('llen', '{vt}:q:bench0') + redis.call('zcard', '{vt}:sched:bench0')"
# one_by_one = 8000
# bulk = 30000
# handled = 12000
# fast = "concurrency 100, uvloop"
# safe = "concurrency 8, a worker is gone after 3 s without heartbeat, its tasks looked for every 5 s, 10 times"
# ///
"""django-vtasks: Django's task API. It acks after handling, in both settings; it keeps no results and has no retries.

Its batches give a handler many tasks with one call, and lose them if it dies: they are no other setting but another
handler, and not measured here.
"""

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

safest = {"VTASKS_MAX_RESCUES": 10, "VTASKS_HEARTBEAT_INTERVAL": 1, "VTASKS_RESCUE_INTERVAL": 5}
settings.configure(
    SECRET_KEY="only for measuring",
    USE_TZ=True,
    INSTALLED_APPS=["django_vtasks"],
    TASKS={
        "default": {
            "BACKEND": "django_vtasks.backends.valkey.ValkeyTaskBackend",
            "QUEUES": [NAME],
            "OPTIONS": {"BROKER_URL": messages.URL},
        }
    },
    VTASKS_QUEUES=[NAME],
    **(safest if IS_SAFEST else {}),
)
django.setup()

from django.tasks import task_backends  # noqa: E402 - reads the settings
from django_vtasks import task  # noqa: E402


@task(queue_name=NAME)
async def handle(kind: str, data: dict[str, Any]) -> None:
    await messages.handle_async(kind, data)


async def publish(kind: str, data: dict[str, Any]) -> None:
    await handle.aenqueue(kind, data)


async def publish_later(kind: str, data: dict[str, Any], delay: float) -> None:
    await handle.using(run_after=timezone.now() + timedelta(seconds=delay)).aenqueue(kind, data)


async def publish_many(kind: str, many: list[dict[str, Any]], delay: float) -> None:
    one = handle.using(run_after=timezone.now() + timedelta(seconds=delay)) if delay else handle
    await task_backends["default"].aenqueue_many([(one, (kind, data), {}) for data in many])


def work() -> None:
    """Be one worker."""
    call_command("runworker", concurrency=messages.THREADS if IS_SAFEST else 100)


def consumer(processes: int, _threads: int) -> list[str]:
    one = [sys.executable, "-c", f"from {__name__} import work; work()"]
    return [sys.executable, "-m", "benchmarks.several", *([*one, "+"] * processes)]
