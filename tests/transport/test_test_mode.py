"""What makes a process one that runs tests."""

import sys

import pytest

from mq_django.transport import test_mode


@pytest.fixture(autouse=True)
def _a_shell(monkeypatch):
    """An environment without traces of tests. What the mode sets is taken back."""
    monkeypatch.setenv(test_mode.SWITCH, "")
    for name in (test_mode.SWITCH, "PYTEST_VERSION", "PYTEST_XDIST_WORKER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "argv", ["manage.py", "runserver"])
    monkeypatch.delattr("django.core.mail.outbox", raising=False)
    monkeypatch.setattr("django.test.runner._worker_id", 0)


def test_a_process_is_not_in_test_mode():
    assert not test_mode.is_on()


def test_djangos_test_command_is_one(monkeypatch, subtests):
    for argv in [
        ["manage.py", "test", "shop"],
        ["/srv/shop/manage.py", "test"],
        ["/usr/bin/django-admin", "test"],
        ["/lib/django/__main__.py", "test"],
    ]:
        with subtests.test(argv=argv):
            monkeypatch.setattr(sys, "argv", argv)
            assert test_mode.is_on()
        # For what it starts, which would be on for that.
        monkeypatch.delenv(test_mode.SWITCH)


def test_other_programs_are_none(monkeypatch, subtests):
    for argv in [[], [""], ["celery", "test"], ["manage.py", "migrate", "test"], ["__main__.py", "test"]]:
        with subtests.test(argv=argv):
            monkeypatch.setattr(sys, "argv", argv)
            assert not test_mode.is_on()


def test_pytest_is_one(monkeypatch):
    monkeypatch.setenv("PYTEST_VERSION", "9.0.0")
    assert test_mode.is_on()


def test_a_runner_that_sets_djangos_test_environment_up_is_one(monkeypatch):
    monkeypatch.setattr("django.core.mail.outbox", [], raising=False)
    assert test_mode.is_on()


def test_the_switch_decides(monkeypatch, subtests):
    for value, is_on in [("1", True), ("0", False), ("", False)]:
        with subtests.test(value=value, is_on=is_on):
            monkeypatch.setenv(test_mode.SWITCH, value)
            monkeypatch.setenv("PYTEST_VERSION", "" if is_on else "9.0.0")
            assert test_mode.is_on() is is_on


def test_what_tests_start_is_in_test_mode_too(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["manage.py", "test"])
    assert test_mode.is_on()
    monkeypatch.setattr(sys, "argv", ["manage.py", "runconsumer"])
    assert test_mode.is_on()


def test_workers_of_xdist_and_of_django_have_names(monkeypatch):
    assert test_mode.worker() == ""
    monkeypatch.setattr("django.test.runner._worker_id", 3)
    assert test_mode.worker() == "django3"
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw2")
    assert test_mode.worker() == "gw2"
