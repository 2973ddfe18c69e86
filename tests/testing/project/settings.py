"""A project whose tests use the test kit. CONFIGURED_REDIS is its real server, which no test may touch."""

import os
from importlib.util import find_spec
from pathlib import Path

import django

BASE_DIR = Path(__file__).parent
SECRET_KEY = "only for tests"
USE_TZ = True
TIME_ZONE = "UTC"
STATIC_URL = "static/"
ROOT_URLCONF = "shop.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    *(["django_tasks"] if not find_spec("django.tasks") else []),
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "mq_django",
    "shop",
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": BASE_DIR / "development.sqlite3",
        "TEST": {"NAME": BASE_DIR / "tests.sqlite3" if "TEST_DATABASE_FILE" in os.environ else None},
    }
}
LOCMEM = "django.core.mail.backends.locmem.EmailBackend"
if django.VERSION >= (6, 1):
    MAILERS = {"default": {"BACKEND": LOCMEM}}
else:
    EMAIL_BACKEND = LOCMEM
TASKS = {"default": {"BACKEND": "mq_django.task_backend.MQBackend", "QUEUES": []}}
#: Of the queues that have no limit, which counts for a whole queue.
PARTITIONS = int(os.environ.get("PARTITIONS", "1"))
OUTBOX = os.environ.get("OUTBOX") == "1"
MQ_DJANGO = {
    "CONNECTION": os.environ["CONFIGURED_REDIS"],
    "QUEUES": {
        "default": {"RESULT_TTL": 3600, "PARTITIONS": PARTITIONS, "OUTBOX": OUTBOX},
        "emails": {"RETRY": {"delay": 60}, "MAX_ATTEMPTS": 3, "PARTITIONS": PARTITIONS, "OUTBOX": OUTBOX},
        "slow": {"RATE_LIMIT": "1/m"},
        "ordered": {"ORDERED": True, "OUTBOX": True},
        "kept": {"OUTBOX": {"KEEP_UNTIL": "handled"}},
        "answers": {"STREAM": True, "PARTITIONS": PARTITIONS, "OUTBOX": OUTBOX},
    },
    "TOPICS": {"orders": {"RETENTION": 86400}},
    # No other test meets its ticks.
    "SCHEDULES": {"tick": {"every": 86400, "message": "tick", "starts": "2060-01-01"}},
}
PACKAGE = "django.tasks" if find_spec("django.tasks") else "django_tasks"
IMMEDIATE_BACKEND = f"{PACKAGE}.backends.immediate.ImmediateBackend"
