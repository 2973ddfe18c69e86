"""What an operator does with runs of workflows."""

from itertools import product

import pytest

from mq_django.core.messages import Bury, StepEnd
from mq_django.errors import UnknownRun
from mq_django.inspector import dead_letters, workflow_runs
from mq_django.producers import workflow_run
from mq_django.workflows import get_run
from tests.seeding import end_steps, start_run, take

pytestmark = pytest.mark.usefixtures("mq_settings")

NO = Bury(error="ValueError: no", reason="attempts")


def ids():
    return sorted(delivery.message.id for delivery in take("default", 100))


@pytest.mark.parametrize("policy", ["stop", "continue"])
def test_a_failed_step_without_a_dead_letter_gets_a_message_with_another_id(policy):
    """Also while the run is running, where nothing has begun another round: the queue would not take the same id."""
    run_id = start_run({1: [], 2: []}, policy=policy)
    end_steps(run_id, NO, 1)
    assert dead_letters.delete_messages("default", [f"w:{run_id}.1.1"]).done == 1
    assert get_run(run_id).retry() == 1
    assert ids() == [f"w:{run_id}.1.2"]
    end_steps(run_id, StepEnd(), 1, 2)
    assert workflow_runs.run(run_id).state == "succeeded"


def test_a_failed_step_with_a_dead_letter_keeps_its_id():
    run_id = start_run({1: [], 2: [1]})
    end_steps(run_id, NO, 1)
    assert workflow_run.retry(run_id) == (1, 0, False)
    assert ids() == [f"w:{run_id}.1.1"]


def test_what_cannot_be_published_stays_failed(mq_settings):
    run_id, other = start_run({1: []}, queue="emails"), start_run({1: []})
    end_steps(run_id, NO, 1, queue="emails")
    end_steps(other, NO, 1)
    mq_settings(QUEUES={"default": {}})
    assert workflow_run.retry(run_id) == (0, 1, False)
    assert workflow_runs.run(run_id).failed == 1
    assert workflow_run.retry(other).steps == 1


def test_a_retry_without_time_is_continued_by_the_next_one(monkeypatch):
    monkeypatch.setattr(workflow_run, "BATCH", 2)
    run_id = start_run({number: [] for number in range(1, 6)}, policy="continue")
    end_steps(run_id, NO, *range(1, 6))
    assert workflow_run.retry(run_id, seconds=-1.0) == (0, 0, True)
    assert workflow_run.retry(run_id) == (5, 0, False)
    assert len(ids()) == 5
    assert workflow_run.retry(run_id) == (0, 0, False)


def test_an_unknown_run_is_an_error(subtests):
    acts = (workflow_run.cancel, workflow_run.retry, lambda run_id: workflow_run.skip(run_id, 1))
    for act, run_id in product(acts, ("0gone0gone", "", "../x", "é")):
        with subtests.test(act=act, run_id=run_id), pytest.raises(UnknownRun, match="There is no run"):
            act(run_id)
