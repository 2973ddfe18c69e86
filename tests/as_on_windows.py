# ruff: noqa: PLC0415, T201
"""What a project does on a Python that has nothing of what Windows lacks: `python -m tests.as_on_windows`.

Each step is done in this one process. What it prints, or its error, is printed as JSON.
"""

import asyncio
import io
import json
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
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress

import django
from django.conf import settings
from django.core.management import call_command

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


def command(*arguments: str) -> str:
    written = io.StringIO()
    with redirect_stdout(written), redirect_stderr(written):
        call_command(*arguments)
    return written.getvalue()


def publish() -> int:
    from mq_django import queues

    # The last one on a connection that was used before.
    return len(
        {queues["default"].publish("welcome", number, delay=delay) for number, delay in enumerate((None, 60, None))}
    )


def statuses() -> list[int]:
    from django.contrib.auth.models import User
    from django.test import Client

    call_command("migrate", verbosity=0)
    client = Client()
    client.force_login(User.objects.create_superuser("operator"))
    return [
        client.get(f"/admin/mq_django/queue/{path}").status_code for path in ("", "default/change/", "default/ready/")
    ]


def outcome(step: Callable[[], object]) -> object:
    try:
        return step()
    except Exception as error:  # noqa: BLE001 - this is what is asked for
        return f"{type(error).__name__}: {error}"


def outcomes() -> dict[str, object]:
    from django.test import override_settings

    found = {
        "check": outcome(lambda: command("check")),
        "publish": outcome(publish),
        "status": outcome(lambda: command("mq", "status")),
        "admin": outcome(statuses),
        "runconsumer": outcome(lambda: command("runconsumer")),
    }
    for connection in ("embedded", "unix:///run/s"):
        with override_settings(MQ_DJANGO={"CONNECTION": connection}):
            found[f"publish, {connection}"] = outcome(publish)
            found[f"check, {connection}"] = outcome(lambda: command("check"))
    return found


if __name__ == "__main__":
    pretend()
    configure()
    django.setup()
    print(json.dumps(outcomes()))
