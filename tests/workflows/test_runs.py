"""Runs of workflows with real consumers."""

from collections import Counter

import pytest

from mq_django.conf import get_config
from mq_django.errors import UnknownRun
from mq_django.producers.queues import queues
from mq_django.stores.dead_letter_queue import open_dead_letters
from mq_django.transport.connections import open_wire
from mq_django.workflows import chain, get_run, parallel, workflow
from tests.consumers.trees import kill
from tests.waiting import wait_until


def ended(run, state):
    """Wait until a run has ended, and check how."""
    wait_until(lambda: run.state not in {"building", "running"}, timeout=20)
    assert run.state == state


def ran(history):
    return Counter(line["name"] for line in history.lines("step"))


def test_a_chain_passes_values_on(trees, history, tasks):
    trees()
    run = chain((tasks.add, 1, 2), parallel((tasks.add, 10), tasks.double), tasks.total).start()
    ended(run, "succeeded")
    assert run.progress == (4, 4, 0, 0, 0)
    steps = sorted((line["name"], line["args"]) for line in history.lines("step"))
    assert steps == [("add", [1, 2]), ("add", [3, 10]), ("double", 3), ("total", 2)]


def test_a_running_step_adds_steps(trees, history, tasks):
    trees()
    definition = workflow("grow", on_success=tasks.told)
    with definition as flow:
        flow.add(tasks.grow, 300)
    ended(definition.run, "succeeded")
    assert [line["id"] for line in history.wait_for("callback")] == [definition.run.id]
    assert ran(history) == {"grow": 1, "double": 300, "total": 1}


@pytest.mark.parametrize("policy", ["stop", "continue"])
def test_a_run_continues_when_the_dead_letter_is_redriven(trees, history, tasks, tmp_path, policy):
    trees()
    flag = tmp_path / "flag"
    definition = workflow("fails", on_failure=tasks.told, on_success=tasks.told, policy=policy)
    with definition as flow:
        failing = flow.add(tasks.fail_unless, str(flag), 5)
        flow.add(tasks.add, failing, 1)
    run = definition.run
    ended(run, "failed")
    history.wait_for("callback", 1)
    flag.touch()
    config = get_config().queue("default")
    letters = open_dead_letters(config, open_wire("produce"))
    entries = wait_until(lambda: [entry for entry in letters.find([f"w:{run.id}.1.1"]) if entry])
    assert letters.redrive(entries) == ["REDRIVEN"]
    wait_until(lambda: run.state == "succeeded", timeout=20)
    assert run.progress == (2, 2, 0, 0, 0)
    history.wait_for("callback", 2)
    assert ran(history) == {"fail_unless": 2, "add": 1}


def test_retry_runs_what_has_failed_again(trees, history, tasks, tmp_path):
    trees()
    flag = tmp_path / "flag"
    definition = workflow("fails", policy="continue")
    with definition as flow:
        for number in range(3):
            flow.add(tasks.add, flow.add(tasks.fail_unless, str(flag), number))
    run = definition.run
    ended(run, "failed")
    assert run.progress == (6, 0, 3, 3, 0)
    flag.touch()
    assert run.retry() == 3
    ended(run, "succeeded")
    assert ran(history) == {"fail_unless": 6, "add": 3}


def test_a_purged_step_fails_and_retry_starts_it_again(trees, tasks, history):
    run = chain((tasks.add, 1), (tasks.add, 2)).start()
    assert queues["default"].sink.store.purge(limit=10) == 1
    tree = trees()
    ended(run, "failed")
    assert run.retry() == 1
    ended(run, "succeeded")
    assert ran(history) == {"add": 2}
    assert tree.stop() == 0


def test_a_cancelled_run_starts_nothing_more(trees, tasks, history, tmp_path):
    trees()
    flag = tmp_path / "flag"
    run = chain((tasks.wait_for, str(flag)), (tasks.add, 2)).start()
    history.wait_for("step")
    assert run.cancel() is True
    assert run.cancel() is False
    flag.touch()
    wait_until(lambda: run.progress.done == 1, timeout=20)
    assert run.state == "cancelled"
    assert run.retry() == 0
    ended(run, "succeeded")
    assert ran(history) == {"wait_for": 1, "add": 1}


def test_no_run_is_lost_when_processes_are_killed(trees, tasks, history):
    tree = trees("--processes", "2")
    runs = [
        chain((tasks.add_surely, n), parallel(*[(tasks.add_surely, m) for m in range(5)]), tasks.total_surely).start()
        for n in range(60)
    ]
    for _ in range(3):
        before = len(history.lines("step"))
        wait_until(lambda before=before: len(history.lines("step")) > before + 20, timeout=20)
        for child in tree.children()[:1]:
            kill(child)
    tree.kill_all()
    other = trees()
    wait_until(other.children)
    for run in runs:
        ended(run, "succeeded")
        assert run.progress == (7, 7, 0, 0, 0)
    assert other.stop() == 0


def test_an_unknown_run(mq_settings):
    with pytest.raises(UnknownRun):
        get_run("x")
    with pytest.raises(UnknownRun):
        get_run("0123456789abcd").cancel()
    with pytest.raises(UnknownRun):
        _ = get_run("0123456789abcd").state


def test_a_step_whose_argument_is_missing_fails_at_once(trees, tasks, tmp_path):
    """No later attempt would find the value of a step that was skipped."""
    trees()
    run = chain((tasks.fail_unless, str(tmp_path / "never")), tasks.increase).start()
    ended(run, "failed")
    assert run.skip(1)
    ended(run, "failed")
    assert run.progress == (2, 1, 1, 0, 0)
