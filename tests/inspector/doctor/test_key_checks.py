"""What the keys in Redis show: queues that nobody configures."""

import pytest
import redis

from mq_django.conf import get_config
from mq_django.core.ids import new_run_id
from mq_django.core.keys import KINDS, WorkflowKeys
from mq_django.inspector.doctor import checks
from mq_django.inspector.doctor.report import examine_project
from mq_django.producers import queues, topics
from tests.inspector.doctor.conftest import levels
from tests.seeding import beat, bury, opened, publish

KEYS = {"D201", "D199"}
#: What the other looks say about the queues that these tests make.
OTHERS = "could not be looked at"


@pytest.fixture
def look(mq_settings, namespace):
    jobs = {"STORE": "rsmq", "NAMESPACE": f"{namespace}-r"}
    mq_settings(TOPICS={"orders": {}}, QUEUES={"default": {}, "emails": {}, "jobs": jobs})

    def found():
        return [each for each in examine_project(codes=KEYS).findings if OTHERS not in each.seen]

    return found


def test_what_is_configured_and_used_is_no_finding(look, redis_client):
    publish("default", "hi")
    publish("emails", "hi", delay=60, unique="a")
    bury("emails")
    topics["orders"].publish("paid", 1, on_commit=False)
    beat("orders:billing")
    for key in every_key(get_config().queues["default"].keys):
        if not redis_client.exists(key):
            redis_client.hset(key, "a", "b")
    assert look() == []


def test_the_keys_of_workflows_are_no_finding(look, redis_client, namespace):
    keys = WorkflowKeys(namespace, "0")
    of_home = {value for value in (getattr(keys, name) for name in dir(keys)) if str(value).startswith(namespace)}
    for key in (of_home - {namespace}) | {*keys.of_run(new_run_id()), *keys.all(new_run_id())}:
        redis_client.hset(key, "a", "b")
    assert look() == []


def every_key(keys):
    """Return every key that a queue may have: all attributes that are keys, and those with a number or an id."""
    of_queue = {value for value in (getattr(keys, name) for name in dir(keys)) if str(value).startswith(keys.namespace)}
    assert {getattr(keys, kind) for kind in KINDS} < of_queue
    others = {keys.result("m1"), keys.progress("m1"), keys.minutes(5), keys.hours(5)}
    return (of_queue | others) - {keys.wake, keys.arrivals, keys.namespace}


def test_a_queue_that_nobody_configures(look, mq_settings):
    publish("emails", "hi")
    publish("emails", "hi", delay=60)
    mq_settings(QUEUES={"default": {}})
    (finding,) = look()
    assert (finding.code, finding.level) == ("D201", "warning")
    assert "emails (2 messages)" in finding.seen
    assert f"--pattern '{get_config().namespace}:{{emails}}:*'" in finding.advice


def test_a_topic_that_nobody_configures(look, mq_settings):
    topics["orders"].publish("paid", 1, on_commit=False)
    mq_settings(QUEUES={"default": {}})
    (finding,) = look()
    assert "orders (1 message)" in finding.seen


def test_an_empty_one_is_a_note(look, mq_settings):
    opened("emails")
    mq_settings(QUEUES={"default": {}})
    assert levels(look()) == [("D201", "note")]


def test_no_foreign_text_gets_into_a_command(look, redis_client, namespace):
    redis_client.xadd(f"{namespace}:{{'; rm -rf x}}:ready", {"a": "b"})
    (finding,) = look()
    assert "rm -rf" not in finding.advice


def test_a_scan_is_bounded_and_says_so(look, redis_client, namespace, monkeypatch):
    monkeypatch.setattr(checks, "BATCH", 10)
    monkeypatch.setattr(checks, "MAX_SCANS", 2)
    for number in range(100):
        redis_client.set(f"{namespace}:{{emails}}:result:{number}", "a")
    notes = [finding for finding in look() if "too many keys" in finding.seen]
    assert levels(notes) == [("D199", "note")]


def test_a_server_that_refuses_a_scan(look, server_with):
    server = server_with()
    with redis.Redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", "default", "-scan")
    notes = [finding for finding in look() if "Could not look at keys" in finding.seen]
    assert levels(notes) == [("D199", "note")]


def test_the_progress_of_a_long_scan_is_reported(look, redis_client, namespace, monkeypatch):
    monkeypatch.setattr(checks, "PROGRESS", -1.0)
    counts = []
    examine_project(codes=KEYS, progress=counts.append)
    assert counts[0] == checks.BATCH


def test_rsmq_keys_may_share_the_prefix(look, mq_settings, namespace):
    mq_settings(QUEUES={"jobs": {"STORE": "rsmq", "NAMESPACE": namespace}})
    queues["jobs"].publish("hi", 1, on_commit=False)
    assert look() == []
