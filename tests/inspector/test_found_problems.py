"""The problems of queues as values."""

from dataclasses import replace
from typing import get_args

import pytest
from django.utils.translation import override

from mq_django import inspector
from mq_django.conf import get_config
from mq_django.core.messages import ACK, Bury, Retry
from mq_django.core.project import Problem
from mq_django.errors import ConfigurationError, StoreError
from mq_django.inspector import Thresholds, actions
from mq_django.inspector.problem_sentences import sentence
from mq_django.inspector.queue_view import QueueView
from mq_django.producers import queues
from mq_django.stores.base import Settlement
from mq_django.stores.members import Members
from mq_django.transport.connections import open_transport
from mq_django.transport.private_server import PrivateServer
from tests.seeding import CONSUMER, beat, bury_many, opened, publish, publish_many, set_aside, tally

pytestmark = pytest.mark.usefixtures("mq_settings")


def found(*names, **options):
    return [(problem.queue, problem.kind) for problem in inspector.problems(*names, **options)]


def test_the_worst_problems_come_first_whatever_queue_they_are_of():
    set_aside("emails", "nobody.knows")
    actions.pause("default", who="ops")

    assert found() == [("emails", "unconsumed"), ("emails", "unhandled"), ("default", "paused")]
    assert found("default") == [("default", "paused")]
    assert found(ignore=["paused", "unconsumed"]) == [("emails", "unhandled")]


@pytest.mark.parametrize(
    ("threshold", "kind"), [({"max_ready": 2}, "ready"), ({"max_dead": 1}, "dead"), ({"max_buried": 1}, "buried")]
)
def test_a_figure_above_its_threshold_is_a_problem(threshold, kind):
    beat("emails")
    bury_many("emails", 2)
    tally("emails", {("buried", "welcome"): 2})
    publish_many("emails", [("welcome", n) for n in range(3)])
    usual = Thresholds(max_buried=None)

    assert inspector.problems(thresholds=usual) == []
    (problem,) = inspector.problems(thresholds=replace(usual, **threshold))
    assert (problem.kind, problem.threshold) == (kind, *threshold.values())
    assert problem.figure == problem.threshold + 1


def test_an_old_message_is_late_by_the_age_that_is_given(redis_client):
    beat("emails")
    now, _ = redis_client.time()
    redis_client.xadd(get_config().queue("emails").keys.ready, {"type": "a", "data": "1"}, id=f"{(now - 90) * 1000}-0")

    (problem,) = inspector.problems()
    assert (problem.kind, problem.threshold) == ("late", 60)
    assert 89 <= problem.figure < 95
    assert inspector.problems(thresholds=Thresholds(max_age=300)) == []
    assert inspector.problems(thresholds=Thresholds(max_age=None)) == []


def test_a_queue_that_cannot_be_read_is_a_problem(redis_client):
    redis_client.set(get_config().queue("default").keys.ready, "mine")

    (problem,) = inspector.problems()

    assert (problem.queue, problem.kind, problem.figure) == ("default", "unreadable", None)
    assert "WRONGTYPE" in problem.sentence


def test_one_of_several_servers_that_is_away_is_a_problem_and_all_of_them_an_error(mq_settings, redis_url):
    with PrivateServer() as gone:
        url = gone.url
    mq_settings(QUEUES={"emails": {}, "far": {"CONNECTION": url}})
    queues["emails"].publish("welcome", 1)

    assert found() == [("far", "unreadable"), ("emails", "unconsumed")]

    mq_settings(CONNECTION=url)
    with pytest.raises(StoreError, match="Cannot reach Redis"):
        inspector.problems()


def test_a_threshold_of_growth_is_above_what_counts():
    assert QueueView(name="q").figures(Thresholds(max_growth=500))["growing"] == (0, 500)


# For that of an outbox see test_outbox_views.py; those of schedules and runs are below.
def test_each_kind_has_a_sentence_that_follows_the_name_of_its_queue(subtests):
    for kind in sorted({*get_args(Problem)} - {"outbox", "schedule", "stuck"}):
        with subtests.test(kind=kind):
            with override("en"):
                said = sentence(QueueView(name="q", error="Redis says no."), kind)
            assert said[:1].islower()
            assert said.rstrip()[-1] in ".?"


@pytest.mark.parametrize("ignore", [5, "outbox", float])
def test_what_is_no_set_of_kinds_is_refused(ignore):
    with pytest.raises(ConfigurationError, match="ignore= takes a set of kinds of problems, not"):
        inspector.problems(ignore=ignore)


def grow_old(redis_client, key, seconds):
    """Let the parked messages of a queue have waited for so long."""
    now, _ = redis_client.time()
    for member, score in redis_client.zrange(key, 0, -1, withscores=True):
        redis_client.zrem(key, member)
        redis_client.zadd(key, {f"{member.decode().partition('.')[0]}.{(now - seconds) * 1000}": score})


def test_a_key_that_a_dead_letter_holds_is_a_problem_however_long_ago(mq_settings, redis_client):
    mq_settings(QUEUES={"emails": {"ORDERED": True, "ON_DEAD_LETTER": "hold"}})
    store = opened("emails")
    beat("emails")
    for key in "aaabb":
        publish("emails", "sms", key=key)
    first, second = store.take(CONSUMER, count=10)
    assert found() == []
    ends = [Settlement(first, Bury("no", reason="attempts")), Settlement(second, Retry(), delay_ms=3_600_000)]
    store.settle(CONSUMER, ends)
    grow_old(redis_client, store.keys.parked, 7200)

    problems = inspector.problems(thresholds=Thresholds(max_buried=None))
    assert [problem.kind for problem in problems] == ["held", "late"]
    assert (problems[0].figure, problems[0].threshold) == (2, 0)
    assert problems[0].sentence.startswith("emails has 1 key that waits for a dead letter since ")
    assert problems[0].sentence.endswith(", with 2 parked messages.")
    # Those of the other key wait for its next attempt.
    assert problems[1].sentence == "emails lags: the oldest message that is parked for its key has waited for 2 h."


def test_messages_that_wait_for_the_rate_of_their_key_are_not_late(mq_settings, redis_client):
    mq_settings(QUEUES={"emails": {"RATE_LIMIT": {"key": "1/h"}}})
    store = opened("emails")
    beat("emails")
    publish("emails", "sms", key="a")
    publish("emails", "sms", key="a")
    store.settle(CONSUMER, [Settlement(item, ACK) for item in store.take(CONSUMER, count=10)])
    grow_old(redis_client, store.keys.parked, 7200)

    assert inspector.queue("emails").parked == 1
    assert found() == []


@pytest.mark.parametrize(("handled", "busy", "kind"), [(0, 0, "stalled"), (1, 0, "late"), (0, 8, "late")])
def test_a_queue_stands_still_if_nothing_of_it_runs_although_threads_are_free(redis_client, handled, busy, kind):
    members = Members(get_config().queue("emails"), open_transport("produce"))
    members.beat("s1", {"host": "web1"}, {CONSUMER: {"threads": 8, "busy": [busy, 0]}})
    tally("emails", {("handled", "welcome"): handled})
    now, _ = redis_client.time()
    redis_client.xadd(get_config().queue("emails").keys.ready, {"type": "a", "data": "1"}, id=f"{(now - 300) * 1000}-0")

    (problem,) = inspector.problems()
    assert problem.kind == kind
    assert inspector.problems(thresholds=Thresholds(max_age=None)) == []


def test_a_schedule_that_no_consumer_fires_is_a_problem(mq_settings, redis_client):
    mq_settings(SCHEDULES={"digest": {"queue": "emails", "message": "m", "every": 60}})
    now, _ = redis_client.time()
    redis_client.hset(get_config().queue("emails").keys.schedules, "last:digest", (now - 600) * 1000)

    (problem,) = inspector.problems()
    assert (problem.queue, problem.kind) == ("emails", "schedule")
    # The first of its minutes was up to a minute after that.
    sentence = "emails has a schedule that no consumer fires: digest, overdue for {} min."
    assert problem.sentence in (sentence.format(9), sentence.format(10))
    actions.pause("emails")
    assert found() == [("emails", "paused")]


def test_a_schedule_of_run_time_whose_definition_is_not_valid_is_a_problem(redis_client):
    redis_client.hset(get_config().queue("emails").keys.runtime_schedules, "definition:digest", "{}")

    assert [problem.sentence for problem in inspector.problems()] == [
        "emails has a schedule that does not fire: digest."
    ]
