"""mq_django with tasks, enqueued and run by Django's task API."""

import os
from typing import Any

import django

from benchmarks.ours.contender import consumer

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.ours.settings")
django.setup()

from benchmarks.ours import tasks  # noqa: E402 - needs the project to be set up

__all__ = ["consumer", "publish"]

TASKS = {"noop": tasks.noop, "note": tasks.note, "work": tasks.work}


def publish(kind: str, data: dict[str, Any]) -> None:
    """Enqueue a task."""
    TASKS[kind].enqueue(data)
