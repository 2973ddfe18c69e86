"""Why the open steps of a run have not ended."""

import pytest

from mq_django.conf import get_config
from mq_django.core.messages import Retry
from mq_django.inspector import actions, open_steps, workflow_runs
from mq_django.inspector.open_steps import explain_steps
from mq_django.stores.base import Settlement
from mq_django.transport.sessions import Pooled
from tests.seeding import CONSUMER, beat, start_run, store, take

pytestmark = pytest.mark.usefixtures("mq_settings")


def reasons(run_id):
    view = workflow_runs.run(run_id)
    steps = workflow_runs.graph_steps(view)
    return {number: one.why for number, one in explain_steps(view, steps).items()}


def test_a_step_that_is_tried_again_says_when_and_why():
    run_id = start_run({1: []})
    (delivery,) = take("default", 1)
    again = Settlement(delivery, Retry(error="requests.ConnectionError: hunter2"), delay_ms=40 * 60_000 + 50_000)
    assert store("default").settle(CONSUMER, [again]) == []
    beat("default")
    assert reasons(run_id) == {1: "Waits for attempt 2, which is due in 40 min. requests.ConnectionError"}


def test_a_paused_queue_is_the_reason_of_all_its_steps():
    run_id = start_run({number: [] for number in range(1, 41)})
    actions.pause("default", reason="a deploy")
    found = reasons(run_id)
    assert len(found) == 40
    assert all("The queue is paused." in said for said in found.values())


def test_a_message_that_is_gone_is_told(redis_client, monkeypatch):
    monkeypatch.setattr(open_steps, "NEW_MS", -1)
    run_id = start_run({1: []})
    redis_client.delete(*get_config().queue("default").keys.streams())
    assert "Its message was not found in its queue." in reasons(run_id)[1]


def test_a_queue_that_is_not_configured_hides_no_other_step(mq_settings):
    run_id = start_run({1: [], 2: []})
    mq_settings(QUEUES={"other": {}})
    assert set(reasons(run_id).values()) == {"Its queue is not in the settings, or cannot have steps."}


def test_many_steps_cost_a_bounded_number_of_round_trips(monkeypatch):
    run_id = start_run({number: [] for number in range(1, 201)})
    view = workflow_runs.run(run_id)
    steps = workflow_runs.graph_steps(view)
    beat("default")
    sent = []

    def pipelines(self, wanted, original=Pooled.pipelines):
        sent.append(sum(map(len, wanted)))
        return original(self, wanted)

    monkeypatch.setattr(Pooled, "pipelines", pipelines)
    found = explain_steps(view, steps)
    assert len(found) == 200
    assert len(sent) < 10
    assert sum(sent) < 40
