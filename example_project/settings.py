"""Settings of the example project. Nothing has to be set: it runs as it is."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import django

from mq_django import cron, every

BASE_DIR = Path(__file__).resolve().parent.parent

#: The database, the mails and, unless MQ_REDIS_URL is given, Redis's data.
DEMO_DIR = Path(os.environ.get("EXAMPLE_PROJECT_DIR") or BASE_DIR / ".demo")
DEMO_DIR.mkdir(parents=True, exist_ok=True)

# A demo that listens on 127.0.0.1 alone. A real project keeps its key to itself.
SECRET_KEY = "the example project has no secrets"
DEBUG = True
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "example_project.urls"
WSGI_APPLICATION = "example_project.wsgi.application"
USE_TZ = True
TIME_ZONE = "UTC"
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
    "example_project.shop",
    "example_project.ledger",
    "example_project.office",
]
if django.VERSION < (6, 0):
    # Django's task API for 5.2, of which it is not yet a part.
    INSTALLED_APPS.append("django_tasks")

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
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
                "example_project.shop.carts.cart_size",
            ],
        },
    },
]

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": DEMO_DIR / "shop.sqlite3",
        "OPTIONS": {
            # Web and consumers write at the same time. IMMEDIATE takes the write lock at the start of a
            # transaction; the default takes it at the first write, and then refuses instead of waiting.
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            # Readers do not wait for the writer; a commit does not wait for the disk.
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
    }
}


def next_database(url: str) -> str:
    """Return the URL of the next database of the same Redis server."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    number = query.get("db") or ("" if parts.scheme == "unix" else parts.path.strip("/")) or "0"
    query["db"] = str(int(number) + 1)
    return f"{parts.scheme}://{parts.netloc}{parts.path}?{urlencode(query)}"


#: A Redis server that is there already. Without one the project starts its own, and all its processes share it.
REDIS_URL = os.environ.get("MQ_REDIS_URL")
if REDIS_URL:
    # Two aliases on one server, each with a database of its own: cache.clear() flushes the database of its alias.
    CACHES = {
        "default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": next_database(REDIS_URL)},
        "queues": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": REDIS_URL},
    }
else:
    CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}

QUEUES: dict[str, dict[str, Any]] = {
    "default": {},
    # What a visitor publishes is a row in the visitor's transaction: no page fails while Redis is away.
    "emails": {"VISIBILITY_TIMEOUT": 30, "OUTBOX": True},
    "notifications": {"MAX_ATTEMPTS": 5, "TIMEOUT": 30, "OUTBOX": True},
    # The gateway takes twenty SMS a second from us, and charges for each that it refuses. All consumers together keep
    # well below.
    "sms": {"RATE_LIMIT": "10/s", "CONCURRENCY": 4, "MAX_ATTEMPTS": 5, "TIMEOUT": 30, "OUTBOX": True},
    # Answers stay readable for ten minutes after their end: a visitor may close the tab and come back.
    "assistant": {"STREAM": {"entries": 2000, "bytes": 64 * 1024, "ttl": 600}, "TIMEOUT": 60, "OUTBOX": True},
    # The nightly import never takes all threads from what visitors wait for.
    "imports": {"CONCURRENCY": 4},
}

#: How often the report and the newsletter go out in the demo, which nobody watches for a week; None: in production.
_OFTEN = os.environ.get("EXAMPLE_PROJECT_OFTEN_SECONDS")
#: When the office writes its report: a schedule in code, see `office/tasks.py`.
REPORT_SCHEDULE = every(seconds=float(_OFTEN)) if _OFTEN else cron("0 3 * * *", timezone="Europe/Berlin")
#: When it imports new price lists: see `office/workflows.py`.
IMPORT_SCHEDULE = every(seconds=float(_OFTEN)) if _OFTEN else cron("30 2 * * *", timezone="Europe/Berlin")
#: And a schedule without code.
NEWSLETTER = {"cron": "0 18 * * fri", "timezone": "Europe/Berlin"} if not _OFTEN else {"every": float(_OFTEN)}

#: How long a line of a price list takes: see `office/tasks.py`.
PRICE_LINE_SECONDS = float(os.environ.get("EXAMPLE_PROJECT_PRICE_LINE_SECONDS", "0"))

#: How long the assistant takes for a word: see `shop/assistant.py`.
ASSISTANT_WORD_SECONDS = float(os.environ.get("EXAMPLE_PROJECT_WORD_SECONDS", "0.05"))

#: A log that three groups read: see `office/handlers.py`.
TOPICS: dict[str, dict[str, Any]] = {"orders": {"RETENTION": timedelta(days=30), "OUTBOX": True}}

MQ_DJANGO = {
    # The alias that is kept for queues.
    "CONNECTION": "queues" if REDIS_URL else "embedded",
    "NAMESPACE": os.environ.get("EXAMPLE_PROJECT_NAMESPACE", "shop"),
    "EMBEDDED_DIRECTORY": DEMO_DIR / "redis",
    "QUEUES": QUEUES,
    "TOPICS": TOPICS,
    "SCHEDULES": {"newsletter": {"task": "example_project.shop.tasks.send_newsletter", **NEWSLETTER}},
}

# Plain `from django.tasks import task` runs on the same queues.
TASKS = {
    "default": {
        "BACKEND": "mq_django.task_backend.MQBackend",
        "QUEUES": list(QUEUES),
    }
}

#: How long a cart may be left alone before its owner gets a reminder.
CART_REMINDER_DELAY = timedelta(seconds=float(os.environ.get("EXAMPLE_PROJECT_REMINDER_SECONDS", "3600")))

#: The push and SMS gateway: `python -m example_project.gateway --port 8099`.
GATEWAY_URL = os.environ.get("EXAMPLE_PROJECT_GATEWAY_URL", "http://127.0.0.1:8099")
GATEWAY_TIMEOUT = timedelta(seconds=1)

MAIL_BACKEND = "example_project.shop.mail.FolderBackend"
if django.VERSION >= (6, 1):
    MAILERS = {"default": {"BACKEND": MAIL_BACKEND, "OPTIONS": {"file_path": DEMO_DIR / "mails"}}}
else:
    EMAIL_BACKEND, EMAIL_FILE_PATH = MAIL_BACKEND, DEMO_DIR / "mails"
DEFAULT_FROM_EMAIL = "Harbour Goods <shop@localhost>"

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "lines": {"format": "{asctime} {levelname:<7} {name}: {message}", "style": "{"},
    },
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "lines"}},
    "root": {"handlers": ["console"], "level": "INFO"},
}
