"""What other programs and failovers take from runs of workflows is found, and repaired."""

import pytest

from mq_django.conf import get_config
from mq_django.core.keys import WorkflowKeys
from mq_django.core.messages import Bury, Retry, StepEnd
from mq_django.inspector import workflow_runs
from mq_django.inspector.run_check import check_runs
from mq_django.producers.workflow_run import repair
from tests.seeding import end_steps, publish, settle, start_run, take

pytestmark = pytest.mark.usefixtures("mq_settings")

TWO = {1: [], 2: []}


@pytest.fixture
def keys(namespace):
    return WorkflowKeys(namespace, "0")


def check(run_id="", *, seconds=20.0, old_ms=-1000):
    return check_runs(run_id, seconds=seconds, old_ms=old_ms)


def found(*args, **options):
    return [(problem.kind, problem.run, problem.step) for problem in check(*args, **options).problems]


def delete_messages(redis_client, queue="default"):
    """Delete the messages of a queue, as another program does."""
    redis_client.delete(get_config().queue(queue).keys.ready)


def test_a_message_that_another_program_has_deleted(redis_client):
    run_id, other = start_run(TWO), start_run(TWO, queue="emails")
    assert found() == []
    delete_messages(redis_client)
    assert found() == found(run_id) == [("message", run_id, "1"), ("message", run_id, "2")]
    assert found(other) == []
    assert found(old_ms=60_000) == []


def test_it_starts_again_with_a_new_message(redis_client):
    run_id = start_run(TWO, policy="continue")
    delete_messages(redis_client)
    problems = check().problems
    assert [repair(problem) for problem in problems] == [True, True]
    assert found() == []
    assert redis_client.xlen(get_config().queue("default").keys.ready) == 2
    # What a second repair does was done.
    assert [repair(problem) for problem in problems] == [True, True]
    assert redis_client.xlen(get_config().queue("default").keys.ready) == 2
    end_steps(run_id, StepEnd(), 1, 2)
    assert workflow_runs.run(run_id).state == "succeeded"


@pytest.mark.parametrize("retry", [0.0, 60.0])
def test_messages_in_other_places_are_found(retry):
    start_run(TWO)
    taken = take("default", 2)
    assert found() == []
    settle("default", taken[:1], Bury(error="ValueError: no", reason="attempts"))
    settle("default", taken[1:], Retry(retry, "no"))
    # One is a dead letter about which the run has not heard, and the other one is ready again or waits.
    assert found() == []


def test_a_step_of_which_the_run_has_not_heard_yet_is_no_problem():
    start_run({1: []})
    settle("default", take("default", 1), StepEnd())
    assert found() == []


def test_what_could_not_be_searched_in_time_is_told(redis_client):
    start_run(TWO)
    delete_messages(redis_client)
    publish("default", "welcome")
    late = check(seconds=0.0)
    assert (late.problems, late.not_searched, late.runs) == ([], ["default"], 1)


def test_a_step_of_a_run_that_has_ended_starts_when_it_is_retried(redis_client):
    run_id = start_run(TWO)
    end_steps(run_id, Bury(error="ValueError: no", reason="attempts"), 1)
    delete_messages(redis_client)
    (problem,) = check().problems
    assert (problem.kind, problem.step) == ("message", "2")
    assert repair(problem)
    assert redis_client.xlen(get_config().queue("default").keys.ready) == 0
    assert found() == []
    assert workflow_runs.run(run_id).state == "failed"


def test_a_start_that_a_full_queue_has_refused(mq_settings):
    mq_settings(QUEUES={"default": {"MAX_DEPTH": 1}})
    run_id = start_run(TWO)
    (problem,) = check().problems
    assert (problem.kind, problem.run) == ("start", run_id)
    assert not repair(problem)
    mq_settings()
    assert repair(problem)
    assert found() == []


def test_a_run_that_has_nothing_left_to_do(redis_client, keys):
    run_id = start_run({1: []})
    redis_client.hset(keys.run(run_id), mapping={"flying": 0, "done": 1})
    (problem,) = check().problems
    assert (problem.kind, problem.run) == ("stopped", run_id)
    assert repair(problem)
    assert workflow_runs.run(run_id).state == "succeeded"


def test_nonsense_is_no_error(redis_client, keys):
    run_id = start_run(TWO)
    redis_client.xadd(keys.starts, {b"\xff": b"\xff", "run": "../..", "step": "<b>", "round": "9" * 5000})
    redis_client.hset(keys.run(run_id), mapping={"next": "9" * 4000, "flying": "inf", "state": b"\xff"})
    problems = check().problems
    assert [problem.kind for problem in problems] == ["start"]
    assert not repair(problems[0])
