"""Runs of workflows and their steps for display."""

import pytest

from mq_django import inspect
from mq_django.core.keys import WorkflowKeys
from mq_django.core.messages import Bury, StepEnd
from mq_django.inspector import workflow_runs
from mq_django.workflows import get_run
from tests.seeding import end_steps, start_run

pytestmark = pytest.mark.usefixtures("mq_settings")

NO = Bury(error="ValueError: password=hunter2", reason="attempts")


@pytest.fixture
def keys(namespace):
    return WorkflowKeys(namespace, "0")


def pages(**options):
    """Return the ids of all runs, page by page."""
    found, after = [], ""
    while True:
        page = workflow_runs.list_runs(after=after, **options)
        found.append([view.id for view in page.rows])
        after = page.after
        if not after:
            return found


def test_runs_are_listed_by_time_the_latest_first(redis_client, keys):
    ids = [start_run({1: []}) for _ in range(5)]
    # Of these, all were started in the same millisecond.
    same = sorted((start_run({1: []}) for _ in range(5)), reverse=True)
    redis_client.zadd(keys.index, dict.fromkeys(same, 4e12))
    redis_client.zadd(keys.index, {run_id: 1e12 + place for place, run_id in enumerate(ids)})
    ordered = [*same, *reversed(ids)]
    assert pages(limit=2) == [ordered[at : at + 2] for at in range(0, 10, 2)]


def test_a_filter_looks_at_a_bounded_number(monkeypatch):
    monkeypatch.setattr(workflow_runs, "MAX_LOOKED", 4)
    monkeypatch.setattr(workflow_runs, "READ", 2)
    first = start_run({1: []}, name="wanted")
    for _ in range(7):
        start_run({1: []})
    page = workflow_runs.list_runs(name="wanted", limit=9)
    assert (page.rows, page.scanned) == ([], 4)
    assert [view.id for view in workflow_runs.list_runs(name="wanted", after=page.after, limit=9).rows] == [first]


def test_a_run_has_its_numbers_and_times():
    run_id = start_run({1: [], 2: [1], 3: [1]}, policy="continue", unique="shop:a.csv")
    view = workflow_runs.run(run_id)
    assert (view.state, view.total, view.started, view.waiting, view.last, view.share) == ("running", 3, 1, 2, 3, 0.0)
    end_steps(run_id, NO, 1)
    view = workflow_runs.run(run_id)
    assert (view.state, view.failed, view.skipped, view.share) == ("failed", 1, 2, 1.0)
    assert view.started_ms <= view.finished_ms < view.expires_ms == view.started_ms + 3600_000
    assert workflow_runs.failure(run_id) == (1, "ValueError")
    assert workflow_runs.run("0gone0gone") is workflow_runs.run("../x") is None


def test_a_run_that_continues_may_take_as_long_again(redis_client, keys):
    run_id = start_run({1: []})
    first_ms = workflow_runs.run(run_id).expires_ms
    assert redis_client.zscore(keys.alive, run_id) == first_ms
    end_steps(run_id, NO, 1)
    get_run(run_id).retry()
    view = workflow_runs.run(run_id)
    assert view.expires_ms == redis_client.zscore(keys.alive, run_id) > first_ms


def test_joins_are_nodes_of_a_graph_and_rows_of_nothing():
    many = {number: [] for number in range(1, 11)}
    run_id = start_run({**many, 11: list(many), 12: list(many)})
    view = workflow_runs.run(run_id)
    steps = workflow_runs.graph_steps(view)
    assert [step.number for step in steps if step.is_join] == [13]
    assert workflow_runs.names_before(steps)[12] == list(many)
    assert len(workflow_runs.list_steps(view, limit=500).rows) == view.total == 12


def test_steps_are_counted_by_state_and_paged():
    run_id = start_run({number: [] for number in range(1, 301)}, policy="continue")
    end_steps(run_id, NO, *range(1, 31))
    end_steps(run_id, StepEnd(), 300)
    view = workflow_runs.run(run_id)
    found = workflow_runs.count_steps(view, examples=3)
    assert found.counts == {"failed": 30, "started": 269, "done": 1}
    assert [step.number for step in found.first["failed"]] == [1, 2, 3]
    page = workflow_runs.list_steps(view, state="failed", after=10, limit=15)
    assert [step.number for step in page.rows] == list(range(11, 26))
    following = inspect.steps(view, state="failed", after=page.after, limit=15)
    assert [step.number for step in following.rows] == list(range(26, 31))
    assert workflow_runs.list_steps(view, state="done", limit=5).after == ""


def test_a_large_body_is_not_read(redis_client, keys):
    run_id = start_run({1: []})
    redis_client.hset(keys.bodies(run_id), 1, b"x" * 100_000)
    (step,) = workflow_runs.graph_steps(workflow_runs.run(run_id))
    assert (step.task, step.state) == ("", "started")
