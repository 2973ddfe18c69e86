"""Steps of workflows in queues with partitions."""

import signal
from collections import Counter

from mq_django.conf import get_config
from mq_django.core.partitions import partition_of
from mq_django.inspector import run_steps
from mq_django.inspector.run_check import check_runs
from mq_django.producers.queues import queues
from mq_django.producers.run_repairs import repair
from mq_django.producers.step_starts import open_home, publish_starts
from mq_django.stores import open_store
from mq_django.testing.started_runs import run_supervised
from mq_django.transport.connections import open_wire
from mq_django.workflows import chain, parallel, workflow
from tests.waiting import wait_until

PARTITIONS = 8
PARTITIONED = {"default": {"PARTITIONS": PARTITIONS}}


def ended(run, state):
    """Wait until a run has ended, and check how."""
    wait_until(lambda: run.state not in {"building", "running"}, timeout=20)
    assert run.state == state


def ran(history):
    return Counter(line["name"] for line in history.lines("step"))


def depths():
    return [open_store(part, open_wire("produce", "")).depths().ready for part in get_config().queue("default").parts]


def test_steps_pass_values_on_in_all_partitions(trees, history, tasks, mq_settings):
    mq_settings(QUEUES=PARTITIONED)
    trees("--processes", "2")
    run = chain((tasks.add, 1, 2), parallel((tasks.add, 10), tasks.double), tasks.total).start()
    ended(run, "succeeded")
    definition = workflow("grow", on_success=tasks.told)
    with definition as flow:
        flow.add(tasks.grow, 300)
    ended(definition.run, "succeeded")
    assert [line["id"] for line in history.wait_for("callback")] == [definition.run.id]
    assert ran(history) == {"add": 2, "double": 301, "total": 2, "grow": 1}


def test_a_step_is_in_the_partition_of_its_key(tasks, mq_settings):
    mq_settings(QUEUES=PARTITIONED)
    definition = workflow("keyed")
    with definition as flow:
        for number in range(PARTITIONS):
            flow.add(tasks.double.using(key=f"k{number}"), number)
    found = [0] * PARTITIONS
    for number in range(PARTITIONS):
        found[partition_of(f"k{number}", PARTITIONS)] += 1
    assert depths() == found


def test_a_step_that_is_published_again_is_in_the_same_partition_once(tasks, mq_settings, monkeypatch):
    mq_settings(QUEUES=PARTITIONED)
    monkeypatch.setattr("mq_django.stores.workflow_home.WorkflowHome.forget_starts", lambda self, entries: None)
    definition = workflow("twice")
    with definition as flow:
        for number in range(20):
            flow.add(tasks.double, number)
    before = depths()
    assert sum(before) == 20
    monkeypatch.undo()
    home = open_home(definition.run.id)
    for run_id, starts in home.left(age_ms=-1000).starts.items():
        assert publish_starts(home, run_id, starts) is None
    assert depths() == before


def test_retry_redrives_dead_letters_in_their_partitions(trees, history, tasks, tmp_path, mq_settings):
    mq_settings(QUEUES=PARTITIONED)
    trees()
    flag = tmp_path / "flag"
    definition = workflow("fails", policy="continue")
    with definition as flow:
        for number in range(6):
            step = tasks.fail_unless.using(key=f"k{number}") if number % 2 else tasks.fail_unless
            flow.add(tasks.add, flow.add(step, str(flag), number))
    run = definition.run
    ended(run, "failed")
    failed = [run_steps.step(run.id, number) for number in range(1, 13)]
    assert len(run_steps.dead_letters_of(failed)) == 6
    flag.touch()
    assert run.retry() == 6
    ended(run, "succeeded")
    assert ran(history) == {"fail_unless": 12, "add": 6}


def test_a_supervisor_continues_what_a_dead_tree_has_left(trees, history, tasks, mq_settings):
    mq_settings(QUEUES={"default": {"PARTITIONS": PARTITIONS, "VISIBILITY_TIMEOUT": 2}})
    dead = trees()
    definition = workflow("killed")
    with definition as flow:
        flow.add(tasks.total_surely, flow.map(tasks.add_surely, range(200)))
    history.wait_for("step", 20)
    dead.kill_all()
    trees()
    ended(definition.run, "succeeded")


def test_cancelled_runs_start_no_step(tasks, mq_settings, trees, history, tmp_path):
    mq_settings(QUEUES=PARTITIONED)
    run = chain((tasks.wait_for, str(tmp_path / "go")), (tasks.add, 1)).start()
    trees()
    history.wait_for("step")
    assert run.cancel()
    (tmp_path / "go").touch()
    wait_until(lambda: sum(depths()) == 0)
    assert run.state == "cancelled"
    assert ran(history) == {"wait_for": 1}


def test_a_step_whose_message_is_gone_starts_again(tasks, mq_settings, redis_client):
    mq_settings(QUEUES=PARTITIONED)
    definition = workflow("lost")
    with definition as flow:
        for number in range(20):
            flow.add(tasks.double, number)
    assert check_runs(seconds=10, old_ms=-1000).problems == []
    before = depths()
    fullest = max(range(PARTITIONS), key=before.__getitem__)
    redis_client.delete(get_config().queue("default").parts[fullest].keys.ready)
    problems = check_runs(seconds=10, old_ms=-1000).problems
    assert len(problems) == before[fullest]
    assert all(repair(problem) for problem in problems)
    assert sum(depths()) == 20


def test_steps_in_partitions_of_a_cluster(cluster, mq_settings, trees, history, tasks):
    mq_settings(QUEUES=PARTITIONED, CONNECTION=cluster.url)
    tree = trees("--processes", "2", CONNECTION=cluster.url, QUEUES=PARTITIONED)
    run = chain((tasks.add, 1, 2), parallel((tasks.add, 10), tasks.double), tasks.total).start()
    ended(run, "succeeded")
    tree.signal(signal.SIGTERM)
    assert tree.wait() == 0


def test_steps_wait_while_the_number_of_partitions_is_another(tasks, mq_settings, caplog):
    mq_settings(QUEUES=PARTITIONED)
    queues["default"].publish("act", {})
    mq_settings(QUEUES={"default": {"PARTITIONS": 4}})
    run = chain((tasks.add, 1), tasks.double).start()
    assert "has 8 partitions in Redis, and PARTITIONS is 4 here" in caplog.text
    mq_settings(QUEUES=PARTITIONED)
    before = sum(depths())
    run_supervised()
    assert (sum(depths()), run.state) == (before + 1, "running")
