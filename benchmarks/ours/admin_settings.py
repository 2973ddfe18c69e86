"""The project with Django's admin."""

import json
import os

from benchmarks.ours.settings import *  # noqa: F403
from benchmarks.ours.settings import INSTALLED_APPS as OURS
from benchmarks.ours.settings import MQ_DJANGO

DJANGO = ("admin", "auth", "contenttypes", "messages", "sessions", "staticfiles")
#: An app that changes the look of the admin.
LOOK = os.environ.get("BENCH_LOOK", "")
INSTALLED_APPS = [*filter(None, [LOOK]), *(f"django.contrib.{name}" for name in DJANGO), *OURS]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
PROCESSORS = (
    "django.template.context_processors.request",
    "django.contrib.auth.context_processors.auth",
    "django.contrib.messages.context_processors.messages",
)
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {"context_processors": list(PROCESSORS)},
    }
]
ROOT_URLCONF = "benchmarks.ours.urls"
ALLOWED_HOSTS = ["testserver", "127.0.0.1"]
STATIC_URL = "static/"
#: Schedules, as JSON.
SCHEDULES = json.loads(os.environ.get("BENCH_SCHEDULES", "{}"))
MQ_DJANGO = {**MQ_DJANGO, "TOPICS": {"benchlog": {}}, "SCHEDULES": SCHEDULES}
