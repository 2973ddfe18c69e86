"""What installing the app does, each time in a process of its own."""

import sys
import textwrap
from pathlib import Path

import pytest

from tests.shell import ran

pytestmark = pytest.mark.versions

ROOT = Path(__file__).parent.parent


def run(program):
    """Run a program in the project's root, and return what it prints."""
    settings = """
        import socket, sys
        from django.conf import settings
        def connect(*_):
            raise AssertionError("a connection was opened")
        socket.socket.connect = connect
        def configure(*apps, **others):
            settings.configure(INSTALLED_APPS=["mq_django", *apps], USE_TZ=True, **others)
    """
    done = ran([sys.executable, "-W", "error", "-c", textwrap.dedent(settings) + textwrap.dedent(program)])
    return done.stdout.split()


def test_setup_finds_tasks_and_triggers_and_connects_to_nothing():
    found = run("""
        from django.db.models.signals import post_save
        entry = {"signal": "django.db.models.signals.post_save", "sender": "testapp.Cart", "queue": "q", "name": "n"}
        configure(
            "django.contrib.contenttypes", "tests.testapp",
            MQ_DJANGO={"CONNECTION": "redis://127.0.0.1:1/0", "QUEUES": {"default": {}, "emails": {}, "q": {}},
                       "SIGNALS": [entry]},
            DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "/nowhere/x.sqlite3"}},
        )
        import django
        django.setup()
        from django.apps import apps
        from mq_django.registry import names
        from tests.testapp.models import Cart
        print(apps.get_app_config("mq_django").default_auto_field)
        print("tests.testapp.tasks.noop" in names("default"))
        print("tests.testapp.triggers" in sys.modules)
        print(post_save.has_listeners(Cart))
    """)
    assert found == ["django.db.models.BigAutoField", "True", "True", "True"]


def test_wrong_settings_do_not_keep_check_from_naming_them():
    found = run("""
        configure("tests.testapp", "django.contrib.contenttypes", MQ_DJANGO={"NAMESPACE": "", "SIGNALS": [{}]})
        import django
        django.setup()
        from django.core.checks import run_checks
        print(*sorted(message.id for message in run_checks(tags=["mq_django"])))
    """)
    assert found == ["mq_django.E001", "mq_django.E005"]


def test_without_a_task_api_everything_else_works():
    found = run("""
        for name in ("django.tasks", "django_tasks"):
            sys.modules[name] = None
        configure(MQ_DJANGO={})
        import django
        django.setup()
        import mq_django
        from mq_django import handler, on_signal, queues
        print(len(queues))
        try:
            mq_django.task
        except mq_django.MQError as error:
            print(type(error).__name__, "mq-django[tasks]" in str(error))
    """)
    assert found == ["1", "MissingDependency", "True"]
