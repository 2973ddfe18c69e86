"""What becomes of a step by the outcome of its message."""

import pytest
from asgiref.sync import iscoroutinefunction
from django.utils.decorators import sync_and_async_middleware

from mq_django import Ack, get_result
from mq_django.errors import Cancelled
from mq_django.inspector import message_lists
from mq_django.inspector.queues import totals
from mq_django.middleware import around_handling
from mq_django.task_backend.compat import TaskResultStatus, task_finished
from mq_django.testing.recording import run_supervised
from mq_django.workflows import workflow
from tests.hearing import hears
from tests.testapp import tasks
from tests.working import run


@around_handling
@sync_and_async_middleware
def forgiving(handle):
    """A middleware for which each message is handled."""
    if iscoroutinefunction(handle):

        async def middleware(handling):
            await handle(handling)
            return Ack()

    else:

        def middleware(handling):
            handle(handling)
            return Ack()

    return middleware


@pytest.fixture(autouse=True)
def ran():
    tasks.ran.clear()
    return tasks.ran


@pytest.fixture
def forgiven(mq_settings):
    mq_settings(MIDDLEWARE=[f"{__name__}.forgiving"])


def work_off():
    for _ in range(3):
        run()
        run_supervised()


@pytest.mark.usefixtures("forgiven")
@pytest.mark.parametrize("kind", ["retry", "bury", "set"])
def test_a_step_that_middleware_acks_is_done(kind, ran):
    definition = workflow("forgiven")
    with definition as flow:
        flow.add(tasks.noop).after(flow.add(tasks.give_back, kind))
    work_off()
    assert (definition.run.state, definition.run.progress.done) == ("succeeded", 2)
    assert ran == ["noop"]


@pytest.mark.usefixtures("forgiven")
def test_a_step_that_has_succeeded_keeps_its_value_if_middleware_acks_it(ran):
    definition = workflow("valued")
    with definition as flow:
        flow.add(tasks.note, flow.add(tasks.give_back, "tuple"), flow.add(tasks.shout, "loud"))
    work_off()
    assert definition.run.state == "succeeded"
    assert ran == ["LOUD", ([1, [2, 3]], "LOUD")]


@pytest.mark.usefixtures("forgiven")
def test_a_step_that_its_run_no_longer_needs_is_not_done_if_middleware_acks_it(ran):
    definition = workflow("cancelled")
    with definition as flow:
        flow.add(tasks.noop)
    definition.run.cancel()
    work_off()
    assert (definition.run.state, definition.run.progress.done) == ("cancelled", 0)
    assert ran == []


@pytest.mark.parametrize("name", ["noop", "shout"], ids=["function", "coroutine"])
def test_a_step_that_its_run_has_dropped_counts_as_cancelled(mq_settings, ran, name):
    mq_settings(QUEUES={"default": {"HISTORY": 3600}, "emails": {}})
    definition = workflow("cancelled")
    with definition as flow:
        flow.add(getattr(tasks, name), *(["loud"] if name == "shout" else []))
    definition.run.cancel()
    with hears(task_finished) as told:
        run()
    (message_id,) = [each["task_result"].id for each in told]
    for found in (told[0]["task_result"], get_result(message_id)):
        assert found.status == TaskResultStatus.FAILED
        (error,) = found.errors
        assert (error.exception_class, error.traceback) == (Cancelled, "Its run ended before it started")
    stored = get_result(message_id)
    assert (stored.started_at, stored.worker_ids, stored.attempts) == (None, [], 0)
    kept = message_lists.find_handled("default", message_id)
    assert (kept.ending, kept.seconds) == ("cancelled", None)
    assert totals().handled == 0
    assert ran == []
