"""The project whose messages are published and handled under faults."""

import os
from typing import Any

SECRET_KEY = "only for tests"
USE_TZ = True
INSTALLED_APPS = ["mq_django", "tests.chaos.apps.Chaos"]
DATABASES: dict[str, Any] = {}

QUEUE = "work"
#: Short, so that a run sees many deaths: the promise is about multiples of it.
VISIBILITY_SECONDS = 3
MAX_ATTEMPTS = 5


def mq_django(connection: str) -> dict[str, Any]:
    """Return MQ_DJANGO for a server."""
    return {
        "CONNECTION": connection,
        "QUEUES": {
            QUEUE: {
                "VISIBILITY_TIMEOUT": VISIBILITY_SECONDS,
                "MAX_ATTEMPTS": MAX_ATTEMPTS,
                "RETRY": {"delay": 0.3, "factor": 1, "jitter": 0},
            }
        },
    }


MQ_DJANGO = mq_django(os.environ.get("CHAOS_CONNECTION", "unix:///nowhere/redis.sock"))
