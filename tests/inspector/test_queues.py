"""Queues as people see them."""

import time
from dataclasses import replace

import pytest

from mq_django import inspector
from mq_django.conf import get_config
from mq_django.core.messages import ACK
from mq_django.inspector.consumers import ALIVE_MS
from mq_django.inspector.queue_view import NONE, WINDOW, Pause, QueueView
from mq_django.producers import queues
from mq_django.transport.sessions import Session
from tests.commands import script_calls
from tests.seeding import beat, bury, keep, settle, take

pytestmark = pytest.mark.usefixtures("mq_settings")


def test_the_oldest_ready_message_is_the_one_that_nobody_took_yet(redis_client):
    keys = get_config().queue("emails").keys
    now = int(time.time() * 1000)
    redis_client.xadd(keys.ready, {"type": "a", "data": "1"}, id=f"{now - 90_000}-0")
    redis_client.xadd(keys.ready, {"type": "a", "data": "1"}, id=f"{now - 30_000}-0")

    assert 90_000 <= inspector.queue("emails").oldest_ms < 600_000
    take("emails", 1)
    assert 30_000 <= inspector.queue("emails").oldest_ms < 90_000
    take("emails", 1)
    assert inspector.queue("emails").oldest_ms is None


def test_a_consumer_lives_as_long_as_its_supervisor_was_heard_of(redis_client):
    beat("emails", "s1", consumers=2)
    beat("emails", "s2", consumers=1)
    keys = get_config().queue("emails").keys
    now, micros = redis_client.time()
    redis_client.hset(keys.consumers, "seen:s2", now * 1000 + micros // 1000 - ALIVE_MS - 1)

    view = inspector.queue("emails")

    assert view.alive == 2
    assert [(consumer.id, consumer.alive) for consumer in view.consumers] == [
        ("s1-c0", True),
        ("s1-c1", True),
        ("s2-c0", False),
    ]
    assert view.consumers[0].host == "web1"
    assert view.consumers[0].pid == 100
    assert view.consumers[0].version == "0.1.0"


def test_a_queue_that_others_handle_needs_housekeeping_and_no_known_consumer(mq_settings):
    mq_settings(QUEUES={"emails": {"EXTERNAL": True}})
    queues["emails"].publish("welcome", 1)

    assert inspector.queue("emails").problems() == ["unattended"]
    keep("emails")
    view = inspector.queue("emails")
    assert view.problems() == []
    assert [(keeper.id, keeper.host) for keeper in view.housekeepers] == [("keeper", "ops1")]
    assert (view.alive, view.consumers) == (0, ())
    # That nobody handles them is seen by how long they wait.
    assert replace(view, oldest_ms=61_000).problems() == ["late"]


def test_what_happened_is_counted_by_minute_and_by_name():
    queues["emails"].publish_many([("welcome", n) for n in range(4)] + [("goodbye", 1)])

    activity = inspector.queue("emails").activity

    # The minute may have turned between the two.
    assert sum(activity.published[-2:]) == 5
    assert [(name.name, name.published) for name in activity.names] == [("welcome", 4), ("goodbye", 1)]


def test_an_overview_is_one_command_a_queue(redis_client, mq_settings):
    mq_settings(QUEUES={f"q{n}": {} for n in range(20)})
    inspector.overview()
    before = script_calls(redis_client)

    assert len(inspector.overview()) == 20

    assert script_calls(redis_client) - before == 20


@pytest.mark.single_server(why="it counts round trips, and each node of a cluster needs its own")
def test_a_page_of_all_queues_and_topics_takes_as_many_round_trips_as_one_of_few(mq_settings, monkeypatch):
    mq_settings(QUEUES={f"q{n}": {} for n in range(300)}, TOPICS={f"t{n}": {} for n in range(20)})
    sent, send = [], Session.send
    monkeypatch.setattr(Session, "send", lambda session, commands: sent.append(commands) or send(session, commands))

    inspector.overview()
    assert len(sent) == 2  # the groups of all topics, and all queues

    inspector.totals()
    assert len(sent) == 2 + 3  # the same, and what was counted

    inspector.topics.topics()
    assert len(sent) == 2 + 3 + 2  # the groups of all topics, and all topics


def test_totals_are_sums_over_all_queues():
    queues["default"].publish("a", 1)
    queues["emails"].publish("b", 1, delay=60)
    bury("emails")
    settle("default", take("default", 1), ACK)

    totals = inspector.totals()

    assert totals.published == 3
    assert (totals.ready, totals.delayed, totals.dead) == (0, 1, 1)


def activity(**ago):
    """Return what happened, each count a minute as {minutes ago: count}."""
    counts = {what: tuple(found.get(WINDOW - 1 - at, 0) for at in range(WINDOW)) for what, found in ago.items()}
    return replace(NONE, **counts)


def every(first, last, count):
    return dict.fromkeys(range(first, last + 1), count)


def test_a_queue_grows_when_more_comes_than_goes_and_goes_on_so(subtests):
    for ready, happened, growth in [
        (5000, {"published": every(0, 20, 100), "handled": every(0, 20, 80)}, 200),
        (5000, {"published": every(0, 20, 100), "handled": every(0, 20, 95), "buried": every(0, 20, 5)}, 0),
        # A burst that is worked off.
        (5000, {"published": {3: 10_000}, "handled": every(0, 3, 1000)}, 0),
        # What came is delayed.
        (3, {"published": every(0, 20, 100)}, 0),
        # Of many a few more is noise.
        (5000, {"published": every(0, 20, 10_000), "handled": every(0, 20, 9950)}, 0),
        # The running minute is not over.
        (5000, {"published": {0: 5000}}, 0),
    ]:
        with subtests.test(ready=ready, happened=happened, growth=growth):
            assert QueueView(name="q", ready=ready, activity=activity(**happened)).growth == growth


def test_a_queue_that_grows_is_a_problem_while_it_is_consumed():
    beat("emails")
    view = replace(inspector.queue("emails"), ready=500, activity=activity(published=every(0, 20, 100)))

    assert view.problems() == ["growing"]
    assert replace(view, pause=Pause()).problems() == ["paused"]
    assert replace(view, consumers=()).problems() == ["unconsumed"]


def test_the_error_share_is_of_what_ran_in_the_last_half_hour():
    happened = activity(handled={1: 90, 45: 1000}, retried={1: 6}, buried={2: 4, 50: 1000})

    assert QueueView(name="q", activity=happened).error_share == pytest.approx(0.1)
    assert QueueView(name="q", activity=activity(published={1: 5})).error_share is None
