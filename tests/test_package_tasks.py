"""Code that uses the package django-tasks, as Wagtail does, on a Django that has tasks of its own."""

from importlib.util import find_spec

import django
import pytest

from mq_django import RetryPolicy, enqueue_many
from mq_django.task_backend import MQBackend, MQTask
from mq_django.task_backend.backend import TaskBackend
from tests.hearing import hears
from tests.testapp import tasks
from tests.working import work

if django.VERSION < (6, 0) or not find_spec("django_tasks"):
    pytest.skip("needs Django 6.0 and the package django-tasks", allow_module_level=True)

import django.tasks
import django.tasks.signals
import django_tasks
import django_tasks.backends.base
import django_tasks.exceptions
import django_tasks.signals

pytestmark = pytest.mark.versions
BOTH = pytest.mark.parametrize("package", [django.tasks, django_tasks], ids=["django", "django-tasks"])


@pytest.fixture(autouse=True)
def ours(mq_settings, settings):
    settings.TASKS = {"default": {"BACKEND": "mq_django.task_backend.MQBackend", "QUEUES": ["default", "emails"]}}
    tasks.ran.clear()


def of_django(context, number):
    tasks.ran.append(context)
    if number < 0:
        raise ValueError("negative")
    return number * 2


def of_package(context, number):
    tasks.ran.append(context)
    if number < 0:
        raise ValueError("negative")
    return number * 2


def made_by(package, **options):
    function = of_django if package is django.tasks else of_package
    return package.task(takes_context=True, retry=RetryPolicy(max_attempts=1), **options)(function)


@BOTH
def test_each_has_its_own_objects(package):
    made = made_by(package)
    assert isinstance(made, package.base.Task)
    assert isinstance(made.get_backend(), package.backends.base.BaseTaskBackend)
    enqueued = made.enqueue(3)
    assert type(enqueued) is package.TaskResult
    work("default")
    result = made.get_result(enqueued.id)
    assert type(result) is package.TaskResult
    assert type(result.status) is package.TaskResultStatus
    assert (result.return_value, result.task.func) == (6, made.func)
    assert isinstance(result.task, package.base.Task)
    enqueued.refresh()
    assert enqueued.status == package.TaskResultStatus.SUCCESSFUL
    (context,) = tasks.ran
    assert type(context) is package.TaskContext
    assert type(context.task_result) is package.TaskResult


@BOTH
def test_each_has_its_own_errors(package):
    made = made_by(package)
    enqueued = made.enqueue(-1)
    work("default")
    enqueued.refresh()
    assert enqueued.status == package.TaskResultStatus.FAILED
    (error,) = enqueued.errors
    assert isinstance(error, package.base.TaskError)
    assert error.exception_class is ValueError


@BOTH
def test_each_has_its_own_exceptions(package):
    invalid = getattr(package.exceptions, "InvalidTask", None) or package.exceptions.InvalidTaskError
    with pytest.raises(invalid):
        made_by(package, queue_name="sms")
    with pytest.raises(invalid):
        made_by(package).using(priority=1000)
    with pytest.raises(invalid):
        made_by(package).using(run_after="tomorrow")
    with pytest.raises(package.exceptions.TaskResultDoesNotExist):
        package.default_task_backend.get_result("none")


@BOTH
def test_each_has_its_own_signals(package):
    seen = []

    def note(sender, signal, task_result, **_):
        seen.append((signal, issubclass(sender, TaskBackend), type(task_result), task_result.status))

    everything = [
        getattr(each.signals, name)
        for each in (django.tasks, django_tasks)
        for name in ("task_enqueued", "task_started", "task_finished")
    ]
    with hears(*everything, to=note):
        made_by(package).enqueue(3)
        work("default")
    signals = (package.signals.task_enqueued, package.signals.task_started, package.signals.task_finished)
    assert seen == [
        (signal, True, package.TaskResult, status)
        for signal, status in zip(signals, ("READY", "RUNNING", "SUCCESSFUL"), strict=True)
    ]


def test_a_task_of_the_package_takes_our_options():
    made = made_by(django_tasks, timeout=5)
    assert made.using(delay=3600, unique="x").using(delay=0).enqueue(3).status == "READY"
    enqueue_many(made, [[1], {"number": 2}])
    assert len(work("default")) == 3


def test_mq_django_task_is_of_django():
    assert isinstance(tasks.noop, MQTask)
    assert isinstance(tasks.noop, django.tasks.Task)
    assert type(tasks.noop.get_backend()) is MQBackend
    assert type(tasks.noop.enqueue()) is django.tasks.TaskResult


def test_a_subclass_of_the_backend_is_of_django(settings):
    settings.TASKS = {"default": {"BACKEND": f"{__name__}.Own"}}
    assert type(django_tasks.task_backends["default"]) is Own


class Own(MQBackend):
    pass
