"""The history of what failed goes with the message, in every store, and goes with it."""

import pytest

from mq_django.core.messages import ACK, Bury, Delivery, HandBack, Retry, SetAside
from mq_django.core.retries import read_history
from mq_django.inspector import dead_letters, message_lists
from mq_django.inspector.message_lists import find_waiting
from mq_django.stores.base import Settlement
from mq_django.stores.dead_letters import open_dead_letters
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests.stores.acts import make_due, take_all
from tests.stores.cases import RSMQ, STREAM, TOPIC, outgoing

pytestmark = pytest.mark.usefixtures("mq_settings")


@pytest.fixture(params=[STREAM, TOPIC, RSMQ], ids=lambda case: case.name)
def case(request, mq_settings, namespace):
    mq_settings(**request.param.namespaced(namespace))
    return request.param


@pytest.fixture
def store(case):
    found = case.open()
    found.create_groups()
    return found


def fail(store, outcome, redis_client, consumer="c1"):
    """Take the one message that is ready, and fail it; return the delivery."""
    (delivery,) = take_all(store, consumer)
    assert store.settle(consumer, [Settlement(delivery, outcome, 60_000, 1500)]) == []
    return delivery


def make_ready(store, redis_client, message_id):
    make_due(redis_client, store.keys, message_id)
    store.promote(limit=10)


def test_retries_and_burial_are_told_in_order(case, store, redis_client):
    (message_id,) = case.publish(store, outgoing(data={"n": 1}))
    for number, who in ((1, "c1"), (2, "c2")):
        fail(store, Retry(error=f"ValueError: {number}", traceback=f"Traceback {number}"), redis_client, who)
        waiting = find_waiting(case.queue, message_id)
        assert waiting.attempts[0].traceback == f"Traceback {number}"
        make_ready(store, redis_client, message_id)

    fail(store, Bury("KeyError: x", "Traceback 3", reason="attempts"), redis_client, "c3")

    letter = dead_letters.get(case.queue, dead_letters.find(case.queue, message_id))
    told = [
        (attempt.number, attempt.consumer, attempt.status, attempt.error, attempt.traceback)
        for attempt in letter.attempts
    ]
    assert told == [
        (3, "c3", "FAILED", "KeyError: x", "Traceback 3"),
        (2, "c2", "READY", "ValueError: 2", "Traceback 2"),
        (1, "c1", "READY", "ValueError: 1", "Traceback 1"),
    ]
    assert "story" not in letter.headers


def test_a_redriven_message_takes_its_history_along(case, store, redis_client):
    (message_id,) = case.publish(store, outgoing())
    fail(store, Bury('KeyError: "é\\', 'Traceback "é\\\n/', reason="attempts"), redis_client)
    letters = open_dead_letters(store.config, Pooled(get_client("inspect")))
    assert letters.redrive([*letters.find([message_id])]) == ["REDRIVEN"]

    delivery = fail(store, Retry(error="ValueError: 2", traceback="Traceback 2"), redis_client)

    assert delivery.message.attempt == 1
    first, second = reversed(find_waiting(case.queue, message_id).attempts)
    assert (first.status, first.error, first.traceback) == ("FAILED", 'KeyError: "é\\', 'Traceback "é\\\n/')
    assert (second.status, second.traceback) == ("READY", "Traceback 2")


def test_a_history_survives_being_handed_back_and_set_aside(case, store, redis_client):
    (message_id,) = case.publish(store, outgoing(name="nobody.knows"))
    fail(store, Retry(error="ValueError: 1", traceback="Traceback 1"), redis_client)
    make_ready(store, redis_client, message_id)
    fail(store, HandBack(), redis_client)
    fail(store, SetAside(), redis_client)
    assert find_waiting(case.queue, message_id).attempts[0].error == "ValueError: 1"
    store.release_unhandled(["nobody.knows"], limit=10)

    (delivery,) = take_all(store)

    assert isinstance(delivery, Delivery)
    assert [attempt.error for attempt in read_history(delivery.history)] == ["ValueError: 1"]
    (held,) = message_lists.messages(case.queue, "pending", limit=5).rows
    assert held.id == message_id


def test_an_attempt_without_a_handler_has_no_start(case, store):
    case.publish(store, outgoing())
    (delivery,) = take_all(store)
    store.settle("c1", [Settlement(delivery, Retry(error="crashed"), 60_000, None)])

    (attempt,) = find_waiting(case.queue, delivery.message.id).attempts
    assert attempt.started_ms is None
    assert attempt.finished_ms is not None


def test_nothing_is_left_of_it_when_the_message_is_handled(case, store, redis_client, namespace):
    (message_id,) = case.publish(store, outgoing())
    fail(store, Retry(error="ValueError: 1", traceback="Traceback 1"), redis_client)
    make_ready(store, redis_client, message_id)
    fail(store, ACK, redis_client)

    for key in redis_client.scan_iter(match=f"{namespace}*"):
        if redis_client.type(key) == b"hash":
            assert not any(b"Traceback" in value for value in redis_client.hvals(key)), key


def test_what_is_too_long_for_a_history_is_retried_without_one(redis_client):
    store = STREAM.open()
    store.create_groups()
    (message_id,) = STREAM.publish(store, outgoing(data="x" * 700_000))
    fail(store, Retry(error="ValueError: 1", traceback="Traceback 1"), redis_client)
    make_ready(store, redis_client, message_id)

    (delivery,) = take_all(store)

    assert delivery.history == ""
