"""The service of supervisors that continues what others have left of workflows."""

import pytest

from mq_django.conf import get_config
from mq_django.consumers.supervisor.chores import RUN_IDLE, RUN_TICK, WorkflowService
from mq_django.core.keys import WorkflowKeys
from mq_django.core.messages import StepEnd
from mq_django.errors import NotPermitted
from mq_django.inspector import workflow_runs
from mq_django.producers.queues import queues
from mq_django.transport.connections import get_client
from mq_django.workflows import chain
from tests.seeding import settle, start_run, take
from tests.testapp.tasks import note
from tests.users import rules_of, user
from tests.waiting import wait_until


def service():
    return WorkflowService([*get_config().queues.values()])


def test_it_delivers_what_a_dead_consumer_has_not(mq_settings):
    run_id = start_run({1: [], 2: [1]})
    settle("default", take("default", 1), StepEnd())
    found = service()
    wait_until(lambda: found.run_once() == RUN_TICK and workflow_runs.run(run_id).done == 1)
    assert [delivery.message.id for delivery in take("default", 1)] == [f"w:{run_id}.2.1"]


def test_notes_about_no_run_are_forgotten(mq_settings, redis_client):
    """Another program may write any."""
    key, now_us = get_config().queue("default").keys.step_notes, redis_client.time()[0] * 10**6
    run_id = "0" * 10
    forged = ["1 done - x", "x", "", "1", "1 DONE - x", f"{'9' * 40} done - x", f"{now_us * 2} done - x", "1\nx", " "]
    ids = [f"w:{run_id}.{number}.1".encode() for number, _ in enumerate(forged)]
    redis_client.hset(
        key, mapping={b"#": 10**30, b"w:\xff": "1 done - x", b"": "x", **dict(zip(ids, forged, strict=True))}
    )
    assert service().run_once() == RUN_IDLE
    assert redis_client.hkeys(key) == [b"#"]


def test_a_run_with_a_damaged_key_holds_up_no_notes_of_others(mq_settings, redis_client, namespace):
    """Whichever of them is read first."""
    key = get_config().queue("default").keys.step_notes
    runs = [start_run({1: []}) for _ in range(3)]
    settle("default", take("default", 3), StepEnd())
    damaged = WorkflowKeys(namespace, runs[1][0]).of_run(runs[1])[0]
    redis_client.delete(damaged)
    redis_client.set(damaged, "x")
    found = service()
    wait_until(lambda: found.run_once() == RUN_TICK and redis_client.hlen(key) == 2)
    assert {field for field in redis_client.hkeys(key) if field != b"#"} == {f"w:{runs[1]}.1.1".encode()}
    assert [workflow_runs.run(run_id).done for run_id in (runs[0], runs[2])] == [1, 1]


def test_a_start_that_cannot_be_published_holds_up_no_other(mq_settings, caplog):
    mq_settings(QUEUES={"default": {}, "emails": {"MAX_DEPTH": 1}})
    queues["emails"].publish("welcome", 1)
    full = start_run({1: [], 2: []}, queue="emails")
    found = service()
    other = start_run({1: []})
    wait_until(lambda: workflow_runs.run(other).started and found.run_once() == RUN_TICK)
    assert [delivery.message.id for delivery in take("default", 9)] == [f"w:{other}.1.1"]
    mq_settings(QUEUES={"default": {}, "emails": {}})
    found = service()
    taken = []
    wait_until(lambda: found.run_once() == RUN_TICK and (taken.extend(take("emails", 9)) or len(taken) == 3))
    assert {delivery.message.id for delivery in taken} > {f"w:{full}.{number}.1" for number in (1, 2)}
    assert workflow_runs.run(full).started == 2


def test_without_workflows_it_idles(mq_settings):
    assert service().run_once() == RUN_IDLE


def test_a_redis_user_without_the_keys_of_workflows(mq_settings, redis_client, redis_url, namespace):
    """It is as the documentation says: only a project that starts runs needs them."""
    with user(redis_client, redis_url, rules_of("stream", namespace)) as url:
        mq_settings(CONNECTION=url, QUEUES={"emails": {}, "default": {}})
        assert service().run_once() == RUN_IDLE
        with pytest.raises(NotPermitted):
            chain((note, 1)).start()
        get_client("produce").close()
