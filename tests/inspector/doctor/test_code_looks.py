"""What is said about the settings and the code."""

import pytest

from mq_django import registry
from mq_django.registry import Handler
from tests.inspector.doctor.conftest import levels


@pytest.fixture
def handlers(monkeypatch):
    """Have no handlers and tasks but these; call it to add one."""
    found = {}
    monkeypatch.setattr(registry, "_handlers", found)
    monkeypatch.setattr(registry, "_starts", {})
    monkeypatch.setattr(registry, "_kinds", {})

    def add(queue, name):
        found[queue, name] = Handler(name=name, queue=queue, call=print)

    return add


@pytest.fixture
def project(handlers, mq_settings):
    """A project about which nothing is said."""
    mq_settings(QUEUES={"default": {}})
    handlers("default", "hi")
    return handlers


def of_project(found):
    return [finding for finding in (*found("D2"), *found("D4")) if finding.code != "D201"]


def test_nothing_is_said_about_a_good_project(project, found):
    assert of_project(found) == []


def test_settings_that_are_wrong(project, found, mq_settings):
    mq_settings(QUEUES={"default": {"MAX_ATTEMPTS": -1}})
    (finding,) = found("D")
    assert (finding.code, finding.level) == ("D203", "error")
    assert "MAX_ATTEMPTS" in finding.seen
    assert finding.advice


def test_a_check_that_the_project_silences(project, found, settings):
    project("imports", "hi")
    settings.SILENCED_SYSTEM_CHECKS = ["mq_django.W004"]
    assert of_project(found) == []


def test_a_cache_on_the_same_database(project, found, settings, server_with):
    server = server_with()
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": server.url}}
    (finding,) = found("D203")
    assert finding.level == "warning"
    assert "'default'" in finding.seen


def test_an_embedded_server_is_a_note(project, found, settings, tmp_path):
    settings.MQ_DJANGO = {"QUEUES": {"default": {}}, "EMBEDDED_DIRECTORY": tmp_path}
    assert levels(found("D203")) == [("D203", "note")]


def test_a_handler_of_a_queue_that_is_not_configured(project, found):
    project("imports", "hi")
    (finding,) = of_project(found)
    assert (finding.code, finding.level) == ("D203", "warning")
    assert "'imports'" in finding.seen
    assert finding.seen.endswith("(mq_django.W004)")


def test_a_handler_that_never_runs(project, found, mq_settings):
    mq_settings(QUEUES={"default": {"EXTERNAL": True}})
    assert levels(of_project(found)) == [("D203", "warning")]


def test_tasks_that_run_where_they_are_enqueued(project, found, monkeypatch):
    monkeypatch.setattr("mq_django.checks._plain_tasks", lambda: {"shop.tasks.add"})
    (finding,) = of_project(found)
    assert (finding.code, finding.level) == ("D203", "warning")
    assert "shop.tasks.add" in finding.seen


def test_a_queue_that_nothing_in_the_project_handles(project, found, mq_settings):
    mq_settings(QUEUES={"default": {}, "emails": {}, "theirs": {"EXTERNAL": True}})
    (finding,) = of_project(found)
    assert (finding.code, finding.level) == ("D404", "warning")
    assert "messages of emails:" in finding.seen
    # A task may be enqueued anywhere.
    project(None, "shop.tasks.add")
    assert of_project(found) == []
