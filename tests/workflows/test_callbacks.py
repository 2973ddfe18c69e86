"""What callbacks of runs get, and how soon one that fails is seen."""

import logging

import pytest

from mq_django.consumers.decisions import log_failure
from mq_django.core.messages import Bury, Retry, StepEnd
from mq_django.errors import StoreError
from mq_django.producers import workflow_steps
from mq_django.workflows import workflow
from tests.seeding import end_steps, take
from tests.stores.cases import outgoing

ERROR = "ValueError: no"


@pytest.fixture
def failed(tasks, mq_settings):
    """A run of which only the step that fails has not ended."""
    return start(tasks, "b.csv")


def start(tasks, path):
    definition = workflow("import", on_failure=tasks.explained, on_finish=tasks.told, policy="continue")
    with definition as flow:
        flow.add(tasks.double, 1)
        flow.add(tasks.fail_unless, path, value=flow.add(tasks.total, [2]))
    run = definition.run
    end_steps(run.id, StepEnd(value=b"2"), 1, 2)
    return run


def called(run):
    """Return the data of the callbacks that are published."""
    found = {each.message.id: each.message.data for each in take("default", 10)}
    return {
        message_id.split(".")[1]: data for message_id, data in found.items() if message_id.startswith(f"w-{run.id}")
    }


def expected(run, **others):
    failure = {"step": 3, "task": "tests.workflows.flowing.tasks.fail_unless", "error": ERROR}
    failure |= {"args": ["b.csv"], "kwargs": {"value": None}, "message_id": f"w:{run.id}.3.1"}
    return failure | others


def test_a_callback_gets_the_step_that_has_failed_if_it_takes_it(failed):
    end_steps(failed.id, Bury(ERROR), 3)

    callbacks = called(failed)
    assert callbacks["failure"] == {"args": [failed.id], "kwargs": {"failure": expected(failed)}}
    assert callbacks["finish"] == {"args": [failed.id], "kwargs": {}}
    assert failed.failure._asdict() == expected(failed)


def test_a_run_without_a_failed_step_has_no_failure(failed):
    assert failed.failure is None
    end_steps(failed.id, Bury(ERROR), 3)
    assert failed.retry() == 1
    assert failed.failure is None


def test_a_callback_gets_the_failure_of_a_run_that_was_retried_before_it_was_published(failed, monkeypatch):
    publish, published = workflow_steps._publication, []

    def late(home, run_id, start):
        if not start.step.isdigit() and not published:
            published.append(start)
            assert failed.retry() == 1
        return publish(home, run_id, start)

    monkeypatch.setattr(workflow_steps, "_publication", late)
    end_steps(failed.id, Bury(ERROR), 3)

    found = called(failed)["failure"]["kwargs"]["failure"]
    assert (found["step"], found["args"]) == (3, ["b.csv"])
    assert found["error"] in (ERROR, "ValueError")
    assert failed.failure is None


def test_a_callback_does_not_wait_for_what_is_too_long_or_cannot_be_read(tasks, mq_settings, monkeypatch):
    run = start(tasks, "b" * 20_000)
    end_steps(run.id, Bury(ERROR), 3)
    assert called(run)["failure"]["kwargs"]["failure"] == expected(run, args=None, kwargs=None)

    def refuse(*_):
        raise StoreError("gone")

    monkeypatch.setattr(workflow_steps, "open_dead_letters", refuse)
    assert run.failure.error == "ValueError"


@pytest.mark.parametrize(
    ("message_id", "attempt", "level"),
    [
        ("w-0run.finish.1", 1, logging.ERROR),
        ("w-0run.finish.1", 2, logging.WARNING),
        ("w:0run.1.1", 1, logging.WARNING),
    ],
)
def test_the_first_failed_attempt_of_a_callback_is_an_error(message_id, attempt, level, caplog):
    message = outgoing(id=message_id).message._replace(attempt=attempt)
    log_failure(message, Retry(error=ERROR), None)
    assert [record.levelno for record in caplog.records] == [level]
