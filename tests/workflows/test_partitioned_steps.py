"""Steps of workflows in queues with partitions."""

from mq_django.conf import get_config
from mq_django.core.partitions import partition_of
from mq_django.inspector.run_check import check_runs
from mq_django.producers.queues import queues
from mq_django.producers.workflow_run import repair
from mq_django.producers.workflow_steps import open_home, publish_starts
from mq_django.stores import open_store
from mq_django.testing.recording import run_supervised
from mq_django.transport.connections import open_transport
from mq_django.workflows import chain, workflow

PARTITIONS = 8
PARTITIONED = {"default": {"PARTITIONS": PARTITIONS}}


def depths():
    return [
        open_store(part, open_transport("produce", "")).depths().ready for part in get_config().queue("default").parts
    ]


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
