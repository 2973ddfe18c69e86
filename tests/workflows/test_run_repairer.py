"""Supervisors repair runs of which other programs have taken something."""

import subprocess
import sys

import pytest

from mq_django.conf import get_config
from mq_django.core.keys import WorkflowKeys
from mq_django.core.messages import StepEnd
from mq_django.inspector import problems, workflow_runs
from mq_django.observability import problem_watch
from mq_django.observability.problem_watch import RunRepairer
from mq_django.transport.connections import get_client
from tests.seeding import end_steps, start_run
from tests.users import rules_of, user

pytestmark = pytest.mark.usefixtures("mq_settings")


@pytest.fixture
def ready():
    return get_config().queue("default").keys.ready


@pytest.fixture
def no_age(monkeypatch):
    """Look at what was published just now, too."""
    monkeypatch.setattr(problem_watch, "OLD_MS", -1000)


@pytest.mark.usefixtures("no_age")
def test_a_step_whose_message_is_gone_starts_again(redis_client, ready, caplog):
    run_id = start_run({1: []})
    redis_client.delete(ready)
    assert RunRepairer().run_once() == problem_watch.RUNS_EVERY
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


def test_it_runs_whichever_modules_start_workflows():
    """No consumer imports a module that has only workflows, and `mq_django.workflows` takes megabytes."""
    code = (
        "import sys; from django.conf import settings; settings.configure(INSTALLED_APPS=[]); "
        "import django; django.setup(); "
        "from mq_django.management.commands.runconsumer import watchers; "
        "print(*(each.name for each in watchers()), 'mq_django.workflows' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split("\n")[0] == "repairer of runs False", done.stderr


def test_a_redis_user_without_the_keys_of_workflows(mq_settings, redis_client, redis_url, namespace, caplog):
    with user(redis_client, redis_url, rules_of("stream", namespace)) as url:
        mq_settings(CONNECTION=url, QUEUES={"emails": {}, "default": {}})
        assert RunRepairer().run_once() == problem_watch.RUNS_EVERY
        assert not any(problem.kind == "stuck" for problem in problems())
        get_client("produce").close()
    assert caplog.text == ""
