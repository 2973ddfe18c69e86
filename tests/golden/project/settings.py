"""Settings for the test and its consumer, which are to agree about all queues."""

import os
from typing import Any

SECRET_KEY = "only for tests"
USE_TZ = True
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "mq_django", "tests.golden.project"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
TASKS = {"default": {"BACKEND": "mq_django.task_backend.MQBackend", "QUEUES": []}}

#: Seconds between two ticks: no test runs at one.
PERIOD = 300 * 24 * 3600

_LATER = {"RETRY": {"delay": 1800, "factor": 2, "jitter": 0}}


def options(connection: str, namespace: str) -> dict[str, Any]:
    """Return MQ_DJANGO for one server and namespace."""
    return {
        "CONNECTION": connection,
        "NAMESPACE": namespace,
        "QUEUES": {
            "default": _LATER,
            "emails": _LATER,
            "acked": {},
            "retried": _LATER,
            "buried": {"MAX_ATTEMPTS": 1},
            "refused": {},
            "undecodable": {},
            "expired": {},
            "redriven": {"MAX_ATTEMPTS": 1},
            "moved": {"MAX_ATTEMPTS": 1},
            "gathered": {},
            "worked": {"MAX_ATTEMPTS": 1},
            "unknown": {},
            "paused": {},
            "scheduled": {},
            "legacy": {"STORE": "rsmq", "NAMESPACE": namespace, "MAX_ATTEMPTS": 2, **_LATER},
        },
        "TOPICS": {"news": {**_LATER, "MAX_ATTEMPTS": 2}},
        "SCHEDULES": {
            "rarely": {"every": PERIOD, "message": "tick", "queue": "scheduled", "data": {"n": 1}, "priority": 3}
        },
    }


MQ_DJANGO = options(
    os.environ.get("MQ_GOLDEN_CONNECTION", "unix:///nowhere/redis.sock"), os.environ.get("MQ_GOLDEN_NAMESPACE", "mq")
)
