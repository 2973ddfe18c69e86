"""Settings from the environment, and as little else as possible: these processes start often."""

import json
import os

SECRET_KEY = "only for tests"
USE_TZ = True
INSTALLED_APPS = ["mq_django", "tests.consumers.project", *os.environ.get("MQ_TEST_APPS", "").split()]
DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ.get("MQ_TEST_DATABASE", ":memory:")}
}

CACHES = json.loads(os.environ["MQ_TEST_CACHES"])
MQ_DJANGO = json.loads(os.environ["MQ_TEST_CONFIG"])
# Its handlers serve more queues than a test configures.
SILENCED_SYSTEM_CHECKS = ["mq_django.W004"]
