"""A project that uses what has keys of its own: every store, delays, limits, unique keys, results, schedules."""

import os
from typing import Any

SECRET_KEY = "only for tests"
USE_TZ = True
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "mq_django", "tests.compat.project"]
DATABASES: dict[str, Any] = {}
TASKS = {"default": {"BACKEND": "mq_django.task_backend.MQBackend", "QUEUES": []}}

_RETRY = {"delay": 0.2, "factor": 1, "jitter": 0}
MQ_DJANGO = {
    "CONNECTION": os.environ.get("COMPAT_CONNECTION", "unix:///nowhere/redis.sock"),
    "QUEUES": {
        "plain": {"MAX_ATTEMPTS": 3, "RETRY": _RETRY},
        "limited": {"RATE_LIMIT": {"queue": "400/s", "key": "200/s"}, "CONCURRENCY": {"queue": 8, "key": 1}},
        "legacy": {"STORE": "rsmq", "MAX_ATTEMPTS": 3, "RETRY": _RETRY, "REALTIME": True},
    },
    "TOPICS": {"log": {"RETRY": _RETRY}},
    "SCHEDULES": {"tick": {"every": 1, "message": "tick", "queue": "plain"}},
}
