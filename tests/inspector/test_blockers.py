"""Queues whose messages wait while others hold all slots of their consumers."""

import pytest

from mq_django import inspector
from mq_django.conf import get_config
from mq_django.core.filters import Filter
from mq_django.core.messages import ACK
from mq_django.errors import ConnectionLost
from mq_django.inspector import actions, message_lists
from mq_django.inspector.explain import cause_of
from mq_django.inspector.queues import quick_stats
from mq_django.stores import open_members
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests.commands import script_calls
from tests.seeding import CONSUMER, publish, settle, take

LONG = 45_000


@pytest.fixture(autouse=True)
def two_queues(mq_settings):
    mq_settings(QUEUES={"imports": {}, "payments": {}})


def beat(consumers, supervisor="s1"):
    """Send the heartbeat of a supervisor to both queues."""
    for queue in ("imports", "payments"):
        members = open_members(get_config().queue(queue), Pooled(get_client("chores")))
        members.beat(supervisor, {}, {name: {"threads": 4, **told} for name, told in consumers.items()})


def held(queue="imports", name="crunch"):
    """Return what a heartbeat says of a consumer whose threads run a message of a queue, and the delivery."""
    publish(queue, name, 1)
    (delivery,) = take(queue, 1)
    entry = delivery.entry.decode()
    return {"busy": [4, 0], "full": {"threads": [queue, delivery.stream, entry, LONG, LONG - 1000]}}, delivery


def why(message_id, queue="payments"):
    for state in ("ready", "pending"):
        for view in message_lists.messages(queue, state, Filter(id=message_id), limit=1).rows:
            return cause_of(view, inspector.queue(queue))
    raise LookupError(message_id)


def test_a_queue_whose_messages_wait_for_the_handlers_of_another_is_starved():
    told, _ = held()
    beat({"c1": told})
    assert inspector.queue("payments").problems() == []
    message_id = publish("payments", "capture", 1)

    imports, payments = inspector.overview()

    assert imports.problems() == []
    assert payments.problems() == ["starved"]
    assert (payments.blocker.queue, payments.blocker.name) == ("imports", "crunch")
    assert LONG <= payments.blocker.ms < LONG + 600_000
    assert payments.blocker.threads == 4
    assert payments.threads == imports.threads == (4, 4)
    cause = why(message_id)
    assert (cause.kind, cause.blocker.name) == ("busy", "crunch")


def test_a_server_that_goes_away_meanwhile_costs_the_name_and_not_the_page(monkeypatch):
    told, _ = held()
    beat({"c1": told})
    publish("payments", "capture", 1)

    def fail(*_):
        raise ConnectionLost("gone")

    monkeypatch.setattr("mq_django.inspector.readers.fan_out", fail)

    assert [(view.name, view.blocker) for view in inspector.overview()] == [("imports", None), ("payments", None)]


def test_the_one_that_has_run_longest_is_named():
    (first, _), (second, _) = held(name="quick"), held(name="slow")
    first["full"]["threads"][3:] = [10_000, 9_000]
    beat({"c1": first, "c2": second})
    publish("payments", "capture", 1)

    blocker = inspector.queue("payments").blocker

    assert (blocker.name, blocker.threads, blocker.consumers) == ("slow", 8, ("c1", "c2"))
    assert 9_000 <= blocker.held_ms < LONG - 1000


def test_one_consumer_with_a_free_thread_is_enough(subtests):
    told, _ = held()
    message_id = publish("payments", "capture", 1)
    for other in [{"busy": [3, 0]}, {}, {"busy": [4, 0], "full": {"coroutines": ["imports", 0, "1-1", 1, 1]}}]:
        with subtests.test(other=other):
            beat({"c1": told, "c2": other})

            assert inspector.queue("payments").problems() == []
            assert why(message_id).kind == "next"


def test_a_consumer_that_fetches_nothing_has_no_free_thread(subtests):
    told, _ = held()
    publish("payments", "capture", 1)
    for other in [{"state": "quiet"}, {"state": "stopping"}, {"quarantine": True}, {"threads": 0}]:
        with subtests.test(other=other):
            beat({"c1": told, "c2": {"busy": [0, 0], **other}})

            assert inspector.queue("payments").problems() == ["starved"]


def test_a_handler_that_has_ended_since_the_heartbeat_blocks_nothing():
    told, delivery = held()
    beat({"c1": told})
    publish("payments", "capture", 1)
    settle("imports", [delivery], ACK)

    assert inspector.queue("payments").blocker is None


def test_a_queue_that_runs_a_message_of_its_own_is_busy_and_not_starved():
    told, _ = held()
    _, own = held("payments", "capture")
    beat({"c1": {**told, "running": [[own.stream, own.entry.decode(), 100]]}})
    message_id = publish("payments", "capture", 1)

    assert inspector.queue("payments").problems() == []
    assert why(message_id).kind == "busy"


def test_a_short_wait_is_no_problem():
    told, _ = held()
    told["full"]["threads"][3:] = [900, 100]
    beat({"c1": told})
    publish("payments", "capture", 1)

    assert inspector.queue("payments").problems() == []


def test_a_paused_queue_waits_for_that():
    told, _ = held()
    beat({"c1": told})
    message_id = publish("payments", "capture", 1)
    actions.pause("payments")

    assert inspector.queue("payments").problems() == ["paused"]
    assert why(message_id).kind == "paused"


def test_a_message_that_was_fetched_and_has_not_started_waits_for_a_thread():
    told, _ = held()
    message_id = publish("payments", "capture", 1)
    (own,) = take("payments", 1)
    beat({CONSUMER: told})

    assert inspector.queue("payments").problems() == ["starved"]
    cause = why(message_id)
    assert (cause.kind, cause.consumer) == ("busy", CONSUMER)

    beat({CONSUMER: {**told, "running": [[own.stream, own.entry.decode(), 100]]}})
    assert why(message_id).kind == "running"


def test_what_makes_no_sense_is_left_out(subtests):
    for odd in [
        7,
        {"threads": 7},
        {"threads": ["nope", 0, "1-1", 1, 1]},
        {"threads": ["imports", 9, "x", 1, 1]},
        {"threads": ["a:b:c", 0, "1-1", -5, 2**70]},
    ]:
        with subtests.test(odd=odd):
            beat({"c1": {"busy": [4, 0], "full": odd}})
            publish("payments", "capture", 1)

            assert inspector.queue("payments").problems() == []


def test_queues_that_make_progress_cost_no_command(redis_client):
    beat({"c1": {"busy": [4, 0]}})
    publish("payments", "capture", 1)
    inspector.overview()
    before = script_calls(redis_client)

    inspector.overview()

    assert script_calls(redis_client) - before == 2


def test_who_asks_only_for_counts_does_not_pay_for_it():
    told, _ = held()
    beat({"c1": told})
    publish("payments", "capture", 1)

    assert quick_stats("payments").blocker is None
    assert quick_stats("payments", minutes=30).blocker.name == "crunch"
