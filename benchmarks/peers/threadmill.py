# /// script
# requires-python = ">=3.12"
# dependencies = ["threadmill[redis]==0.3.1", "hiredis==3.5.0"]
#
# [tool.bench]
# name = "threadmill 0.3"
# remaining = '''redis.call('zcard', 'threadmill:{default}:queue:bench0')
#   + redis.call('zcard', 'threadmill:{default}:running:bench0')
#   + redis.call('zcard', 'threadmill:{default}:deferred:bench0')'''
# one_by_one = 4000
# bulk = 0
# handled = 5000
# fast = "8 threads, no log line a task; it keeps each result for a day"
# safe = "8 threads, a task that is not acked within 5 s is failed, not tried again"
# ///
"""threadmill: Django's task API. It acks after handling, in both settings.

0.3 is the last that Python 3.12 and 3.13 run. Its successors need Python 3.14, and read many tasks with one call.
"""

import logging
import multiprocessing
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
    INSTALLED_APPS=["threadmill"],
    TASKS={
        "default": {
            "BACKEND": "threadmill.backends.redis.RedisTaskBackend",
            "REDIS_URL": messages.URL,
            "QUEUES": [NAME],
            "OPTIONS": {"lease_ttl": timedelta(seconds=5)} if IS_SAFEST else {},
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


def work(processes: int) -> None:
    """Be the pool of workers."""
    # The workers are forked, and so they know the settings above.
    multiprocessing.set_start_method("fork")
    words = ["threadmill", "worker", "--queues", NAME, "--workers", str(processes), "--threads", str(messages.THREADS)]
    logging.getLogger("multiprocessing").disabled = not IS_SAFEST
    call_command(*words)


def consumer(processes: int, _threads: int) -> list[str]:
    return [sys.executable, "-c", f"from {__name__} import work; work({processes})"]
