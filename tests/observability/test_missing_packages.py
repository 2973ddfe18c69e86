"""What is said without an optional package, and what imports it."""

import subprocess
import sys

from django.core.checks import run_checks

#: What a project has loaded that publishes, tests and starts consumers, and observes none of it.
LOADED = """
import sys, django
django.setup()
import mq_django.testing, mq_django.management.commands.runconsumer
from mq_django import queues
queues["default"]
names = ("mq_django.observability", "sentry_sdk", "prometheus_client")
print([name for name in sys.modules if name.startswith(names)])
"""


def test_the_check_says_which_extra_to_install(mq_settings, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentry_sdk", None)
    for name in [name for name in sys.modules if name.startswith("mq_django.observability.")]:
        monkeypatch.delitem(sys.modules, name)
    mq_settings(MIDDLEWARE=["mq_django.observability.sentry.report_burials"])
    (found,) = [message for message in run_checks() if message.id == "mq_django.E009"]
    assert found.msg.endswith("needs the package sentry-sdk: python -m pip install 'mq-django[sentry]'.")


def test_a_project_that_uses_none_of_the_packages_imports_none():
    # redis-py imports OpenTelemetry where it is installed.
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
