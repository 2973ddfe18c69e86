# ruff: noqa: PLC0415, T201
"""A project's manage.py on a Python that has nothing of what Windows lacks: python -m tests.as_on_windows COMMAND...

`publish` and `admin` are commands of this file; all others are Django's.
"""

import asyncio
import multiprocessing.reduction
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zoneinfo
from contextlib import suppress

import django
from django.conf import settings
from django.core.management import call_command, execute_from_command_line

from tests.test_import_contract import POSIX_MODULES, POSIX_NAMES

APPS = ["admin", "auth", "contenttypes", "messages", "sessions"]
#: Modules of Python that look at the system when they are imported: a Windows that has no Windows would confuse them.
BEFORE = (asyncio, multiprocessing.reduction, subprocess, tempfile, zoneinfo)
with suppress(ImportError):
    # OpenTelemetry's SDK uses it where it is installed, and redis-py that SDK.
    import psutil  # noqa: F401
PROCESSORS = ["django.template.context_processors.request", "django.contrib.auth.context_processors.auth"]


def pretend() -> None:
    """Take away what Windows lacks."""
    for name in POSIX_MODULES:
        sys.modules[name] = None
    modules = {"os": os, "select": select, "signal": signal, "socket": socket, "time": time}
    for module, names in POSIX_NAMES.items():
        for name in names & set(dir(modules[module])):
            delattr(modules[module], name)
    sys.platform = "win32"


def configure() -> None:
    settings.configure(
        SECRET_KEY="only for tests",
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF="tests.urls",
        STATIC_URL="static/",
        USE_TZ=True,
        INSTALLED_APPS=[*(f"django.contrib.{app}" for app in APPS), "mq_django"],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
        ],
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {"context_processors": [*PROCESSORS, "django.contrib.messages.context_processors.messages"]},
            }
        ],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        MQ_DJANGO={"CONNECTION": os.environ["TEST_CONNECTION"], "NAMESPACE": os.environ["TEST_NAMESPACE"]},
    )


def publish() -> None:
    from mq_django import queues

    print(queues["default"].publish("welcome", 1))
    print(queues["default"].publish("welcome", 2, delay=60))
    # On a connection that was used before.
    print(queues["default"].publish("welcome", 3))


def admin() -> None:
    from django.contrib.auth.models import User
    from django.test import Client

    call_command("migrate", verbosity=0)
    client = Client()
    client.force_login(User.objects.create_superuser("operator"))
    for path in ("", "default/change/", "default/ready/"):
        print(path, client.get(f"/admin/mq_django/queue/{path}").status_code)


if __name__ == "__main__":
    pretend()
    configure()
    django.setup()
    own = {"publish": publish, "admin": admin}.get(sys.argv[1])
    if own:
        own()
    else:
        execute_from_command_line(["manage.py", *sys.argv[1:]])
