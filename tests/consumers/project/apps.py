"""Shortens what trees of tests only wait for: each value leaves as much room for a busy machine as the usual one."""

import json
import os
from importlib import import_module
from types import ModuleType

from django.apps import AppConfig

from mq_django.consumers import service
from mq_django.consumers.supervisor import heartbeat
from mq_django.consumers.worker import main
from mq_django.transport.connections import TIMEOUTS

#: Seconds between two heartbeats, at most. After how much silence a supervisor is dead stays what it is.
HEARTBEAT = 0.25
#: By module and name.
LIMITS = {
    "mq_django.consumers.worker.fetchers:BLOCK_MS": 500,
    "mq_django.consumers.worker.main:EXPENSIVE_EVERY": 0.3,
    "mq_django.consumers.supervisor.preflight:RETRY_AFTER": 0.1,
    "mq_django.consumers.supervisor.reclaimer:CHECK_EVERY": 0.2,
    "mq_django.consumers.supervisor.reclaimer:LAST_CHECK": 2.0,
    "mq_django.consumers.supervisor.reclaimer:TRY_AGAIN": 0.3,
    "mq_django.consumers.supervisor.services:TICK": 0.3,
    "mq_django.consumers.supervisor.services:LISTEN": 0.5,
    "mq_django.consumers.service:MAX_BACKOFF": 0.5,
    "mq_django.consumers.worker.fetchers:CHECK": 0.5,
    "mq_django.consumers.worker.progress:EVERY": 0.3,
    # The longest of these reads, and what a reply may take.
    "mq_django.transport.connections:TIMEOUTS": {**TIMEOUTS, "consume": (2.0, 3.5)},
}


class Project(AppConfig):
    """The handlers, with the limits of LIMITS, and those that a test sets in the environment."""

    name = "tests.consumers.project"

    def ready(self) -> None:
        """Set the limits of this process."""
        for place, value in (LIMITS | json.loads(os.environ.get("MQ_TEST_LIMITS", "{}"))).items():
            module, name = place.split(":")
            replace(import_module(module), name, value)
        for beating in (heartbeat, main):
            replace(beating, "interval", often)


def replace(module: ModuleType, name: str, value: object) -> None:
    """Set a value of a module, which must have one of this name."""
    assert name in vars(module), f"{module.__name__} has no {name}"
    setattr(module, name, value)


def often(visibility_seconds: float) -> float:
    """Return the seconds between two heartbeats."""
    return min(HEARTBEAT, service.interval(visibility_seconds))
