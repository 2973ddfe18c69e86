"""What installing the app does, each time in a process of its own."""

import shutil
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


def test_wrong_settings_do_not_keep_check_from_naming_them(tmp_path):
    (tmp_path / "handlers.py").write_text("from mq_django import queues\nDEFAULT = queues['default']\n")
    (tmp_path / "__init__.py").touch()
    found = run(f"""
        sys.path.insert(0, {str(tmp_path.parent)!r})
        configure(
            "tests.testapp", "django.contrib.contenttypes", {tmp_path.name!r},
            MQ_DJANGO={{"NAMESPACE": "", "SIGNALS": [{{}}]}},
        )
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


def test_the_checks_of_runconsumer_leave_nothing_behind(tmp_path):
    (tmp_path / "pages.py").write_text("print('loaded', flush=True)\nurlpatterns = []\n")
    found = run(f"""
        sys.path.insert(0, {str(tmp_path)!r})
        configure("django.contrib.contenttypes", ROOT_URLCONF="pages", MQ_DJANGO={{"QUEUES": {{"default": {{}}}}}})
        import django
        django.setup()
        from django.core.management import call_command
        from django.core.management.base import CommandError, SystemCheckError
        from django.test import override_settings
        for mq_django in ({{}}, {{"NAMESPACE": ""}}):
            with override_settings(MQ_DJANGO=mq_django):
                try:
                    call_command("runconsumer", "nowhere", skip_checks=False)
                except CommandError as error:
                    print(type(error).__name__, "pages" in sys.modules)
    """)
    # What has failed in the child fails again, with its sentence.
    assert found == ["loaded", "CommandError", "False", "loaded", "loaded", "SystemCheckError", "True"]


def test_a_project_without_the_app_is_warned():
    found = run("""
        settings.configure(INSTALLED_APPS=["django.contrib.contenttypes"], USE_TZ=True)
        import django
        django.setup()
        from django.core.checks import run_checks
        from mq_django import queues, task
        queues["default"]
        print(*(message.id for message in run_checks()))
    """)
    assert found == ["mq_django.W010"]


def test_a_project_without_the_app_whose_views_import_it_is_warned_in_the_log_of_the_check(tmp_path):
    (tmp_path / "views.py").write_text("from mq_django import queues\nurlpatterns = []\n")
    found = run(f"""
        sys.path.insert(0, {str(tmp_path)!r})
        settings.configure(INSTALLED_APPS=["django.contrib.contenttypes"], USE_TZ=True, ROOT_URLCONF="views")
        import django
        django.setup()
        import logging
        logging.basicConfig(stream=sys.stdout, format="%(levelname)s")
        from django.core.checks import run_checks
        print("mq_django.conf" in sys.modules)
        print(*run_checks(), "checked")
        from mq_django import queues
        queues["default"]
        queues["default"]
    """)
    assert found == ["False", "WARNING", "checked"]


TASK = "from mq_django import task\n@task\ndef add(): ...\n"

#: What an app has beside `tasks.py`, and whether consumers import it; "failed": they cannot.
SOURCES = {
    "jobs.py": (TASK, True),
    "called.py": ("import mq_django as mq\ndef f(): ...\nadd = mq.task(priority=3)(f)", True),
    "dotted.py": ("import mq_django.registry\n@mq_django.registry.handler('default', __name__)\ndef f(m): ...", True),
    "star.py": ("from mq_django import *\n@subscriber('orders', group=__name__.split('.')[0])\ndef add(m): ...", True),
    "within.py": ("try:\n  from mq_django import task as job\nfinally:\n  @job()\n  async def add(): ...", True),
    "package_tasks.py": ("from django_tasks import task\n@task\ndef add(): ...", True),
    "package/__init__.py": ("", False),
    "package/latin.py": ("# -*- coding: latin-1 -*-\n# \xe9\n" + TASK, True),
    "folder/deep.py": (TASK, True),
    "later.py": ("from mq_django import task\ndef later():\n  @task\n  def add(): ...", False),
    "other.py": ("'''@mq_django.task'''\ndef task(f): return f\n@task\ndef add(): ...", False),
    "tests/test_x.py": (TASK, False),
    "test_y.py": (TASK, False),
    "plugin/__init__.py": ("", False),
    "plugin/apps.py": ("", False),
    "plugin/jobs.py": (TASK, False),
    "wrong.py": (TASK + "def (", "failed"),
    "exits.py": (TASK + "raise SystemExit(3)", "failed"),
}


def test_modules_that_declare_are_found_by_their_source(tmp_path, subtests):
    forms = ("package", "namespace", "zipped")
    for form in forms:
        for name, (source, _) in {"__init__.py": ("", None), "named.py": ("1/0", None), **SOURCES}.items():
            path = tmp_path / form / form / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(source.encode("latin-1"))
    (tmp_path / "namespace/namespace/__init__.py").unlink()
    where = str(tmp_path / "namespace")
    config = f"from django.apps import AppConfig\nclass Config(AppConfig):\n  name, path = 'namespace', {where!r}\n"
    (tmp_path / "namespace/configs.py").write_text(config)
    shutil.make_archive(str(tmp_path / "zipped"), "zip", tmp_path / "zipped")
    found = run(f"""
        sys.path[:0] = {[str(tmp_path / "package"), where, str(tmp_path / "zipped.zip")]!r}
        forms = {forms!r}
        configure("package", "configs.Config", "zipped", MQ_DJANGO={{"MODULES": [form + ".named" for form in forms]}})
        import django
        django.setup()
        assert "package.jobs" not in sys.modules
        from django.core.checks import run_checks
        for message in run_checks(tags=["mq_django"]):
            if "cannot be imported" in message.msg:
                print(message.id + ":" + message.msg.split()[2])
        print(*(name for name in sys.modules if name.startswith(forms)))
    """)
    for form in forms:
        assert f"mq_django.E014:{form}.named" in found
        for name, (_, expected) in SOURCES.items():
            module = f"{form}.{name.removesuffix('.py').replace('/', '.')}"
            if form == "zipped" and name == "folder/deep.py":
                continue  # in a zip file, folders need their `__init__.py`
            with subtests.test(module):
                assert (module in found) is (expected is True)
                assert (f"mq_django.W009:{module}" in found) is (expected == "failed")


def test_a_process_that_has_not_needed_a_module_knows_its_tasks(tmp_path):
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "jobs.py").write_text(TASK)
    found = run(f"""
        sys.path.insert(0, {str(tmp_path)!r})
        configure("shop", MQ_DJANGO={{}})
        import django
        django.setup()
        from mq_django.conf import get_config
        from mq_django.producers.schedules import check_task
        check_task(get_config().queue("default"), "shop.jobs.add", {{"args": [], "kwargs": {{}}}})
        try:
            check_task(get_config().queue("default"), "json.dumps", {{"args": [], "kwargs": {{}}}})
        except TypeError as error:
            print(*str(error).split()[1:])
    """)
    assert " ".join(found) == "is not the path of a task of this project"


def test_discovery_can_be_switched_off(tmp_path):
    (tmp_path / "shop").mkdir()
    for name in ("__init__", "jobs", "named"):
        (tmp_path / "shop" / f"{name}.py").write_text(TASK)
    found = run(f"""
        sys.path.insert(0, {str(tmp_path)!r})
        configure("shop", MQ_DJANGO={{"MODULES": ["shop.named"], "DISCOVER": False}})
        import django
        django.setup()
        from mq_django.discovery import import_declaring
        print(*import_declaring(), *(name for name in sys.modules if name.startswith("shop.")))
    """)
    assert found == ["shop.named"]
