"""mq_django with messages and handlers."""

import os
import sys
from datetime import timedelta
from typing import Any

import django

from benchmarks import messages

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.ours.settings")
django.setup()

from mq_django import queues  # noqa: E402 - needs the project to be set up


def publish(kind: str, data: dict[str, Any]) -> None:
    """Publish a message."""
    queues[messages.queue_name(data["n"])].publish(kind, data, key=messages.key_of(data["n"]))


def publish_later(kind: str, data: dict[str, Any], delay: float) -> None:
    """Publish a message for later."""
    queues[messages.queue_name(data["n"])].publish(kind, data, delay=delay)


def publish_many(kind: str, many: list[dict[str, Any]], delay: float) -> None:
    """Publish messages with one call; many calls take turns among the queues."""
    queue = queues[messages.queue_name(many[0]["n"] // len(many))]
    queue.publish_many([(kind, data) for data in many], delay=timedelta(seconds=delay) if delay else None)


def consumer(processes: int, threads: int) -> list[str]:
    """Return the command of the consumers."""
    options = ["--processes", str(processes), "--threads", str(threads), "--verbosity", "0"]
    return [sys.executable, "-m", "django", "runconsumer", *options]
