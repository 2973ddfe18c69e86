"""Why a message waits in the line of its key: each state of the message before it, as a sentence."""

import pytest

from mq_django import inspector
from mq_django.core.messages import ACK, Bury, Retry, SetAside
from mq_django.inspector import explain
from mq_django.inspector.explain import Cause, why
from mq_django.inspector.key_lines import LineHead
from mq_django.inspector.message_lists import find_waiting
from mq_django.stores.base import Settlement
from tests.inspector.test_key_lines import fill, opened, take
from tests.seeding import CONSUMER, beat, publish

__all__ = ["opened"]


def cause_of(message_id):
    return explain.cause_of(find_waiting("emails", message_id), inspector.queue("emails"))


def sentence(message_id):
    return why(cause_of(message_id), name="sms", can_see_data=True)


@pytest.fixture
def ordered(opened):
    store = opened(ORDERED=True, ON_DEAD_LETTER="hold")
    beat("emails")
    return store


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (Retry(), ", as attempt 2."),
        (SetAside(), "no consumer has a handler for its name, “sms”."),
        (Bury("no", reason="attempts"), "which is a dead letter and holds the key."),
    ],
)
def test_the_message_before_it_waits(ordered, outcome, said):
    first, second, third = fill()
    ordered.settle(CONSUMER, [Settlement(item, outcome, delay_ms=60_000) for item in take(ordered)])
    assert cause_of(second).kind == "ordered"
    assert sentence(second).startswith(f"It waits for message {first} of the same key")
    assert sentence(second).endswith(said)
    assert sentence(third).endswith(f"{said} 1 message of its key is before it.")


def test_the_message_before_it_is_with_a_consumer(ordered):
    first, second, _ = fill()
    take(ordered)
    assert f"message {first} of the same key, which consumer {CONSUMER} holds" in sentence(second)


def test_each_place_of_the_message_before_it_has_its_sentence(subtests):
    for place, said in [
        ("running", "which has been running on consumer c1 for 5 s."),
        ("held", "which consumer c1 holds."),
        ("fetched", "it has not started."),
        ("abandoned", "takes the message after the visibility timeout."),
        ("ready", "which is ready."),
        ("gone", "which no longer exists. The next check lets the key go on."),
    ]:
        with subtests.test(place=place, said=said):
            head = LineHead(token="0-1-1", state=place, id="m1", name="sms", attempt=1, consumer="c1", since_ms=5000)
            shown = why(Cause(kind="ordered", key="a", head=head, now_ms=10_000), name="sms", can_see_data=False)
            assert shown.startswith("It waits for message m1 of the same key")
            assert shown.endswith(said)


def test_the_message_before_it_has_just_ended(ordered):
    _, second, _ = fill()
    ordered.settle(CONSUMER, [Settlement(item, ACK) for item in take(ordered)])
    assert cause_of(second).kind == "due"


def test_other_keys_have_their_turn(opened):
    store = opened(FAIR=True)
    beat("emails")
    ids = fill(4)
    publish("emails", "sms", 1)
    take(store, 1)
    cause = cause_of(ids[-1])
    assert (cause.kind, cause.key, cause.count) == ("turn", "a", 2)
    assert sentence(ids[-1]) == "It waits for the turn of its key. 2 messages of its key are before it."


def test_with_turns_a_limit_is_named_while_it_is_reached(opened):
    store = opened(FAIR=True, CONCURRENCY={"key": 1})
    beat("emails")
    ids = fill(4)
    assert len(take(store)) == 1
    assert cause_of(ids[-1]).kind == "parked"


def test_a_turn_of_its_key_does_not_help_while_a_limit_of_the_queue_is_reached(opened):
    store = opened(FAIR=True, CONCURRENCY=1)
    beat("emails")
    *_, third = fill()
    (held,) = store.take(CONSUMER, count=10)
    assert cause_of(third).kind == "full"
    store.settle(CONSUMER, [Settlement(held, ACK)])
    assert cause_of(third).kind == "turn"


def test_one_with_others_of_its_key_before_it_is_not_about_to_become_ready(ordered, redis_client):
    _first, second, third = fill()
    take(ordered)
    redis_client.delete(ordered.keys.permits)
    assert cause_of(second).kind == "due"
    assert sentence(third) == "Another message of its key has not ended. 1 message of its key is before it."
