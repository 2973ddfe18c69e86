"""Settings of the project, with retries that come after the trace."""

import os
from typing import Any

SECRET_KEY = "only for tests"
USE_TZ = True
INSTALLED_APPS = ["mq_django", "tests.trace.project"]
DATABASES: dict[str, Any] = {}
MQ_DJANGO = {
    "CONNECTION": os.environ.get("MQ_TRACE_CONNECTION", "unix:///nowhere/redis.sock"),
    "QUEUES": {"plain": {"RETRY": {"delay": 3600, "jitter": 0}}, "once": {"MAX_ATTEMPTS": 1}},
}
