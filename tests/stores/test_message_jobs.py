"""Jobs that delete ready or waiting messages, in every store: all that match, and nothing else."""

import time

import pytest

from mq_django import inspector, queues
from mq_django.conf import get_config
from mq_django.core.filters import Filter
from mq_django.inspector import jobs as started
from mq_django.stores.background_jobs import IDLE, LEASE_MS, BackgroundJobs
from mq_django.stores.dead_letters import JobStep, delete_messages
from mq_django.stores.message_scans import Cursor, scan_state
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests.seeding import publish, publish_many, set_aside, take
from tests.waiting import wait_until

STORES = {"stream": {}, "rsmq": {"STORE": "rsmq"}}


@pytest.fixture(params=[*STORES])
def queue(request, mq_settings, namespace):
    options = STORES[request.param]
    mq_settings(QUEUES={"emails": {**options, **({"NAMESPACE": namespace} if options else {})}})
    return "emails"


@pytest.fixture
def jobs(queue):
    return opened()


def opened():
    return BackgroundJobs(get_config().queue("emails"), Pooled(get_client("inspect")))


def delay_many(count, name="welcome"):
    queues["emails"].publish_many([(name, n) for n in range(count)], delay=60)


def work_off(jobs, place="delayed"):
    while jobs.work("w1", place) != IDLE:
        pass
    return jobs.read()[place]


def test_delayed_messages_that_match_are_deleted_and_the_others_stay(jobs):
    delay_many(620)
    delay_many(5, "remind")

    begun = started.begin("emails", "delete", "delayed", who="ann", criteria=Filter(name="welc"))
    found = work_off(jobs)

    assert (begun.word, begun.total) == ("begun", 625)
    assert (found.state, found.done, found.looked, found.order.who) == ("finished", 620, 625, "ann")
    assert inspector.queue("emails").delayed == 5


def test_ready_messages_that_match_are_deleted_and_pending_ones_stay(mq_settings):
    mq_settings()
    publish("emails", "welcome", "held")
    take("emails", 1)
    publish_many("emails", [("welcome", n) for n in range(700)])
    publish_many("emails", [("remind", n) for n in range(3)])
    publish("emails", "welcome", 1, priority=5)
    publish("emails", "remind", 1, priority=5)

    started.begin("emails", "delete", "ready", who="ann", criteria=Filter(name="welcome"))
    found = work_off(opened(), place="ready")

    assert (found.state, found.done) == ("finished", 701)
    view = inspector.queue("emails")
    assert (view.ready, view.pending) == (4, 1)


def test_all_visible_messages_of_an_rsmq_queue_are_deleted_and_hidden_ones_stay(mq_settings, namespace):
    mq_settings(QUEUES={"emails": {"STORE": "rsmq", "NAMESPACE": namespace}})
    publish_many("emails", [("welcome", n) for n in range(150)])
    delay_many(150)

    started.begin("emails", "delete", "ready", who="ann")
    found = work_off(opened(), place="ready")

    assert (found.done, found.missing) == (150, 0)
    assert inspector.queue("emails").delayed == 150


def test_unhandled_messages_are_deleted(mq_settings):
    mq_settings()
    for _ in range(3):
        set_aside("emails", "nobody")
    set_aside("emails", "other")

    started.begin("emails", "delete", "unhandled", who="ann", criteria=Filter(name="nobody"))

    assert work_off(opened(), place="unhandled").done == 3
    assert inspector.queue("emails").unhandled == 1


def test_what_was_published_after_the_preview_stays(jobs):
    delay_many(3)
    until_ms = inspector.queue("emails").now_ms + 1
    wait_until(lambda: time.time() * 1000 > until_ms)
    publish("emails", "welcome", "later", delay=60)

    started.begin("emails", "delete", "delayed", who="ann", until=f"{until_ms}-0")

    assert work_off(jobs).done == 3
    assert inspector.queue("emails").delayed == 1


def test_large_messages_are_found_by_name_and_time_like_others(jobs):
    large = "x" * 40_000
    publish("emails", "welcome", large, delay=60)
    publish("emails", "remind", large, delay=60)
    until_ms = inspector.queue("emails").now_ms + 1
    wait_until(lambda: time.time() * 1000 > until_ms)
    publish("emails", "welcome", large, delay=60)

    started.begin("emails", "delete", "delayed", who="ann", criteria=Filter(name="welcome"), until=f"{until_ms}-0")
    assert work_off(jobs).done == 1
    started.begin("emails", "delete", "delayed", who="ann", until=f"{until_ms}-0")
    assert work_off(jobs).done == 1

    assert inspector.queue("emails").delayed == 1


def test_unique_keys_of_deleted_messages_are_free_again(mq_settings):
    mq_settings()
    publish("emails", "welcome", 1, delay=60, unique="cart:7")
    publish("emails", "welcome", 1, delay=60, unique="cart:8", unique_for=3600)

    started.begin("emails", "delete", "delayed", who="ann")
    assert work_off(opened()).done == 2

    assert publish("emails", "welcome", 2, delay=60, unique="cart:7", on_conflict="error")
    assert publish("emails", "welcome", 2, delay=60, unique="cart:8", unique_for=3600, on_conflict="error")


def test_a_worker_that_lost_the_job_deletes_nothing(jobs, redis_client):
    delay_many(2)
    started.begin("emails", "delete", "delayed", who="ann")
    redis_client.hset(get_config().queue("emails").keys.jobs, mapping={"delayed:worker": "w2", "delayed:lease": 2**50})
    transport = Pooled(get_client("inspect"))
    config = get_config().queue("emails")
    source, found, after = scan_state(config, transport, "delayed", Cursor(), 10)

    step, members = JobStep("w1", str(after), 2, LEASE_MS, "delayed"), [message.member for message in found]
    words = delete_messages(transport, config.keys, source.named(), step, members)

    assert words == ["STOPPED"]
    assert inspector.queue("emails").delayed == 2


def test_a_cancelled_job_stops(jobs):
    delay_many(1300)
    started.begin("emails", "delete", "delayed", who="ann")
    jobs.work("w1", "delayed")

    assert started.cancel("emails", "delayed")
    assert jobs.work("w1", "delayed") == IDLE

    found = jobs.read()["delayed"]
    assert found.state == "cancelled"
    assert inspector.queue("emails").delayed == 1300 - found.done


def test_each_place_of_messages_has_a_job_of_its_own(jobs, redis_client):
    delay_many(2)
    started.begin("emails", "delete", "delayed", who="ann")
    busy = started.begin("emails", "delete", "delayed", who="bob")

    assert busy.word == "busy"
    publish("emails", "welcome", 1)
    assert started.begin("emails", "delete", "ready", who="bob").word == "begun"
    assert started.begin("emails", "delete", who="ann").word == "nothing"
    assert {job.order.messages for job in inspector.queue("emails").jobs} == {"delayed", "ready"}
    work_off(jobs)
    # A job that runs is kept for as long as it takes.
    assert redis_client.ttl(get_config().queue("emails").keys.jobs) == -1
    work_off(jobs, place="ready")
    assert redis_client.ttl(get_config().queue("emails").keys.jobs) > 0
    assert inspector.queue("emails").jobs == ()


def test_a_job_that_would_redrive_what_is_no_dead_letter_is_cancelled(jobs, redis_client):
    delay_many(2)
    started.begin("emails", "delete", "delayed", who="ann")
    key = get_config().queue("emails").keys.jobs
    redis_client.hset(key, "delayed:what", "redrive")

    assert jobs.work("w1", "delayed") == IDLE
    assert redis_client.hget(key, "delayed:state") == b"cancelled"
    assert inspector.queue("emails").delayed == 2
