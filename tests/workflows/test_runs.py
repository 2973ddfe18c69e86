from mq_django.workflows import chain, parallel, workflow
from tests.waiting import wait_until


def ended(run):
    wait_until(lambda: run.state not in {"building", "running"}, timeout=20)
    return run.state


def test_a_chain_passes_values_on(trees, history, tasks):
    trees()
    run = chain((tasks.add, 1, 2), parallel((tasks.add, 10), tasks.double), tasks.total).start()
    assert ended(run) == "succeeded"
    assert run.progress == (4, 4, 0, 0, 0)
    steps = sorted((line["name"], line["args"]) for line in history.lines("step"))
    assert steps == [("add", [1, 2]), ("add", [3, 10]), ("double", 3), ("total", 2)]


def test_a_running_step_adds_steps(trees, history, tasks):
    trees()
    with workflow("grow", on_success=tasks.told) as flow:
        flow.add(tasks.grow, 500)
    assert history.wait_for("callback")
    assert [line["args"] for line in history.lines("step") if line["name"] == "total"] == [500]
