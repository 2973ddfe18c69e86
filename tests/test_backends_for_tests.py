"""Django's backends for tests get the tasks of `mq_django.task`, too, but only in tests."""

import pytest

from mq_django import enqueue_many, task
from mq_django.registry import find
from mq_django.task_backend.compat import TaskResultStatus, task_backends
from mq_django.transport import test_mode
from tests.task_api import DUMMY, IMMEDIATE

pytestmark = pytest.mark.versions


ran = []


@task(queue_name="emails", priority=5)
def greet(name):
    ran.append(name)
    return f"Hello {name}"


def part():
    """Do nothing."""


@pytest.fixture(autouse=True)
def _test_mode(monkeypatch, mq_settings):
    monkeypatch.setenv(test_mode.SWITCH, "1")
    ran.clear()


@pytest.fixture
def use(settings):
    def use(backend):
        settings.TASKS = {"default": {"BACKEND": backend, "QUEUES": []}}
        return task_backends["default"]

    return use


def test_the_dummy_backend_keeps_them(use):
    backend = use(DUMMY)
    result = greet.enqueue("Ann")
    assert [(kept.task.func, kept.args) for kept in backend.results] == [(greet.func, ["Ann"])]
    assert greet.get_result(result.id).status == TaskResultStatus.READY
    assert ran == []


def test_the_immediate_backend_runs_them(use):
    use(IMMEDIATE)
    result = greet.enqueue("Ann")
    assert (ran, result.status, result.return_value) == (["Ann"], TaskResultStatus.SUCCESSFUL, "Hello Ann")


def test_many_are_enqueued_one_by_one(use):
    backend = use(DUMMY)
    assert len(enqueue_many(greet, [["Ann"], ["Bob"]])) == 2
    assert [kept.args for kept in backend.results] == [["Ann"], ["Bob"]]


def test_options_of_publishing_have_no_effect(use):
    use(IMMEDIATE)
    assert greet.using(unique="ann", key="ann").enqueue("Ann").return_value == "Hello Ann"


def test_tasks_made_while_a_test_backend_is_set_have_a_handler(use):
    use(DUMMY)
    assert find("emails", task(queue_name="emails")(part).module_path) is not None


def test_without_the_setting_they_go_to_the_queue(settings, redis_client, namespace, monkeypatch):
    monkeypatch.setenv(test_mode.SWITCH, "0")
    greet.enqueue("Ann")
    assert (ran, redis_client.xlen(f"{namespace}:{{emails}}:ready")) == ([], 1)


def test_outside_of_tests_they_go_to_the_queue(use, redis_client, namespace, monkeypatch):
    use(IMMEDIATE)
    monkeypatch.setenv(test_mode.SWITCH, "0")
    greet.enqueue("Ann")
    assert (ran, redis_client.xlen(f"{namespace}:{{emails}}:ready")) == ([], 1)
