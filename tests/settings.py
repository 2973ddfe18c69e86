"""Settings of the test project: Django's admin, our app, and a database that other processes can open."""

import os
import secrets
import tempfile
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mq_django import cron, every

# These tests try what projects do outside of tests. Those of the test mode turn it on in projects of their own.
os.environ["MQ_DJANGO_TESTING"] = "0"

BASE_DIR = Path(__file__).parent

# The tests' database is a file, because consumers run in processes and threads of their own. tests/conftest.py names it
# in the environment once it is there, because they must open the same one. Each process that runs tests makes its own,
# and no other has its name: whoever makes a test database deletes it, too.
_inherited = os.environ.get("MQ_DJANGO_TEST_DATABASE")
DATABASE_FILE = str(Path(tempfile.gettempdir()) / f"mq-django-tests-{secrets.token_hex(6)}.sqlite3")

# Without croniter the schedules of the example project are intervals.
if not find_spec("croniter"):
    os.environ.setdefault("EXAMPLE_PROJECT_OFTEN_SECONDS", "86400")

SECRET_KEY = "only for tests"
DEBUG = False
ALLOWED_HOSTS = ["*"]
USE_TZ = True
ROOT_URLCONF = "tests.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
STATIC_URL = "static/"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "mq_django",
    "tests.testapp",
    # The shop, for its own tests. Its handlers and triggers are there in all others too, and harm none.
    "example_project.shop",
    "example_project.ledger",
    "example_project.office",
]

CART_REMINDER_DELAY = timedelta(hours=1)
REPORT_SCHEDULE = cron("0 3 * * *") if find_spec("croniter") else every(days=1)
#: The example project's import of price lists.
IMPORT_SCHEDULE = REPORT_SCHEDULE
ASSISTANT_WORD_SECONDS = 0.0
GATEWAY_URL = "http://127.0.0.1:1"
GATEWAY_TIMEOUT = timedelta(seconds=1)

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": _inherited or ":memory:",
        # Writers queue up; by default a read that turns into a write would be refused at once.
        # Nobody needs these data after a power failure, so a commit need not wait for the disk.
        "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE", "init_command": "PRAGMA synchronous=OFF;"},
        "TEST": {"NAME": DATABASE_FILE},
    },
    # For what belongs to the commit of one database and not of another.
    "other": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
}

# Django 6.1 warns of mails without it.
MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}

# Hashing passwords on purpose slowly would cost every admin test a second.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

# The queues that tasks of the test apps name. Which server and namespace, a test says with the fixture mq_settings;
# one that forgets it shall fail, and start nothing.
MQ_DJANGO: dict[str, Any] = {"CONNECTION": "unix:///nowhere/redis.sock", "QUEUES": {"default": {}, "emails": {}}}
