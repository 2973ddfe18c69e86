"""What is said without an optional package, and what imports it."""

import subprocess
import sys

from django.core.checks import run_checks

LOADED = "import sys, django; django.setup(); import mq_django.testing; print('sentry_sdk' in sys.modules)"


def test_the_check_says_which_extra_to_install(mq_settings, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentry_sdk", None)
    for name in [name for name in sys.modules if name.startswith("mq_django.observability.")]:
        monkeypatch.delitem(sys.modules, name)
    mq_settings(MIDDLEWARE=["mq_django.observability.sentry.report_burials"])
    (found,) = [message for message in run_checks() if message.id == "mq_django.E009"]
    assert found.msg.endswith("needs the package sentry-sdk: python -m pip install 'mq-django[sentry]'.")


def test_what_does_not_use_sentry_does_not_import_it():
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True, env=None)
    assert done.stdout.strip() == "False"
