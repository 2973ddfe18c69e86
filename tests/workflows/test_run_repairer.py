"""Supervisors repair runs of which other programs have taken something."""

import sys

import pytest

from mq_django.conf import get_config
from mq_django.core.keys import WorkflowKeys
from mq_django.core.messages import StepEnd
from mq_django.inspector import problems, workflow_runs
from mq_django.management.commands.runconsumer import watchers
from mq_django.workflows import definitions
from mq_django.workflows.definitions import RunRepairer
from tests.seeding import end_steps, start_run

pytestmark = pytest.mark.usefixtures("mq_settings")


@pytest.fixture
def ready():
    return get_config().queue("default").keys.ready


@pytest.fixture
def no_age(monkeypatch):
    """Look at what was published just now, too."""
    monkeypatch.setattr(definitions, "OLD_MS", -1000)


@pytest.mark.usefixtures("no_age")
def test_a_step_whose_message_is_gone_starts_again(redis_client, ready, caplog):
    run_id = start_run({1: []})
    redis_client.delete(ready)
    assert RunRepairer().run_once() == definitions.EVERY
    assert redis_client.xlen(ready) == 1
    assert f"Repairing run {run_id}" in caplog.text
    end_steps(run_id, StepEnd(), 1)
    assert workflow_runs.run(run_id).state == "succeeded"


@pytest.mark.usefixtures("no_age")
def test_one_of_several_supervisors_checks(redis_client, ready, namespace):
    checked = WorkflowKeys(namespace, "0").checked
    RunRepairer().run_once()
    assert redis_client.exists(checked) == 0, "there is nothing to check"
    start_run({1: []})
    RunRepairer().run_once()
    assert 0 < redis_client.pttl(checked) < 60_000
    redis_client.delete(ready)
    RunRepairer().run_once()
    assert redis_client.exists(ready) == 0
    redis_client.delete(checked)
    RunRepairer().run_once()
    assert redis_client.xlen(ready) == 1


@pytest.mark.usefixtures("no_age")
def test_a_start_that_a_full_queue_refuses_is_left_to_the_other_service(mq_settings, caplog):
    mq_settings(QUEUES={"default": {"MAX_DEPTH": 1}, "emails": {}})
    run_id = start_run({1: [], 2: []})
    RunRepairer().run_once()
    assert caplog.text == ""
    assert workflow_runs.run(run_id).started == 2
    (problem,) = [problem for problem in problems() if problem.kind == "stuck"]
    assert (problem.queue, problem.figure) == ("workflows", 1)
    assert problem.sentence == (
        f"workflows have 1 run that does not go on: {run_id}. Its next step cannot be published. Is the queue full?"
    )


@pytest.mark.usefixtures("no_age")
def test_a_run_that_goes_on_is_no_problem_any_more(mq_settings, redis_client, namespace):
    queues = mq_settings(QUEUES={"default": {}, "emails": {}, "gone": {}})["QUEUES"]
    start_run({1: []}, queue="gone")
    mq_settings(QUEUES={"default": {}, "emails": {}})
    RunRepairer().run_once()
    (problem,) = [problem for problem in problems() if problem.kind == "stuck"]
    assert problem.sentence.endswith("The queue of its next step is not in the settings.")

    mq_settings(QUEUES=queues)
    redis_client.delete(WorkflowKeys(namespace, "0").checked)
    RunRepairer().run_once()
    assert [problem for problem in problems() if problem.kind == "stuck"] == []


def test_what_is_young_may_be_under_way(redis_client, ready):
    start_run({1: []})
    redis_client.delete(ready)
    RunRepairer().run_once()
    assert redis_client.exists(ready) == 0


def test_only_a_project_with_workflows_has_it(monkeypatch):
    assert RunRepairer in [type(each) for each in watchers()]
    monkeypatch.delitem(sys.modules, "mq_django.workflows")
    assert RunRepairer not in [type(each) for each in watchers()]
