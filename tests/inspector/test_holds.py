"""What is held by name or key waits, uncharged, and the rest goes on."""

import pytest

from mq_django import Retry, RetryPolicy, handler, inspector, queues, subscriber, topics
from mq_django.conf import get_config
from mq_django.core import clock
from mq_django.core.breakers import MAX_HOLDS
from mq_django.core.messages import Ack, LookupState, Park
from mq_django.errors import InvalidFilter, NotSupported, QueueFull
from mq_django.inspector.holds import end_hold, hold, holds, open_breaker
from mq_django.inspector.queues import quick_stats
from mq_django.stores.base import Settlement
from tests.seeding import CONSUMER, opened, publish
from tests.waiting import wait_until
from tests.working import run

pytestmark = pytest.mark.usefixtures("handlers")

FORMS = {
    "stream": {},
    "ordered": {"ORDERED": True},
    "fair": {"FAIR": True},
    "limited": {"CONCURRENCY": {"key": 2}},
    "partitions": {"PARTITIONS": 2},
}


#: Where messages wait, or go on, differs with the form of the queue.
of_each_form = pytest.mark.parametrize("queue", FORMS, indirect=True)


@pytest.fixture
def queue(request, mq_settings):
    mq_settings(QUEUES={"emails": FORMS[getattr(request, "param", "stream")]})
    return "emails"


@pytest.fixture
def seen(queue):
    """What was handled, as name and data, in this order."""
    found = []
    for name in ("receipt", "invoice"):
        handler(queue, name)(lambda message: found.append((message.name, message.data, message.attempt)))
    return found


def counts(queue):
    view = quick_stats(queue)
    return view.depth, view.parked


@of_each_form
def test_the_messages_of_a_name_wait_until_the_hold_ends(queue, seen):
    for number in range(3):
        publish(queue, "receipt", number, key=f"c{number}")
        publish(queue, "invoice", number, key=f"c{number}x")
    hold(queue, name="receipt", who="ada", reason="the printer burns")
    outcomes = [type(each.outcome) for each in run()]
    assert (outcomes.count(Park), outcomes.count(Ack)) == (3, 3)
    assert {name for name, _, _ in seen} == {"invoice"}
    assert counts(queue) == (3, 3)
    (held,) = holds(queue)
    assert (held.value, held.who, held.reason, held.messages) == ("receipt", "ada", "the printer burns", 3)
    assert run() == []
    assert end_hold(queue, name="receipt")
    assert [type(each.outcome) for each in run()] == [Ack] * 3
    assert sorted(seen[3:]) == [("receipt", number, 1) for number in range(3)]
    run()
    assert counts(queue) == (0, 0)
    assert holds(queue) == ()


@of_each_form
def test_the_messages_of_a_key_wait_until_the_hold_ends(queue, seen):
    for number in range(3):
        publish(queue, "receipt", number, key="c1")
        publish(queue, "receipt", number, key="c2")
    hold(queue, key="c1")
    run()
    assert [number for _, number, _ in seen] == [0, 1, 2]
    end_hold(queue, key="c1")
    run()
    assert [number for _, number, _ in seen] == [0, 1, 2, 0, 1, 2]


def test_a_hold_ends_by_itself(queue, seen, redis_client):
    publish(queue, "receipt", 1, key="c")
    hold(queue, name="receipt", lasts=3600)
    run()
    assert seen == []
    hold(queue, name="receipt", lasts=0.001)
    (held,) = inspector.queue(queue).holds
    wait_until(lambda: clock.now_ms() > held.until_ms)
    run()
    assert [name for name, _, _ in seen] == ["receipt"]
    run()
    assert holds(queue) == ()


def test_a_breaker_opened_by_hand_lets_one_through_and_then_all(queue, seen):
    for number in range(3):
        publish(queue, "receipt", number, key=f"c{number}")
    open_breaker(queue, who="ada", reason="the printer burns", probe=86_400)
    run()
    assert seen == []
    (held,) = holds(queue)
    assert (held.kind, held.state, held.probe_ms, held.messages) == ("queue", "open", 86_400_000, 3)
    assert end_hold(queue)
    run()
    assert sorted(seen) == [("receipt", number, 1) for number in range(3)]


def test_a_partition_is_held_with_the_others(mq_settings):
    mq_settings(QUEUES={"emails": {"PARTITIONS": 2}})
    hold("emails.1", name="receipt")
    assert [len(part.holds) for part in inspector.queue("emails").parts] == [1, 1]
    assert end_hold("emails.0", name="receipt")


@of_each_form
def test_a_message_that_is_parked_after_its_hold_has_ended_goes_on(queue, seen):
    hold(queue, name="receipt")
    publish(queue, "receipt", 1, key="c")
    store = opened(get_config().queue(queue).partition_for(key="c").name)
    taken = store.take(CONSUMER, count=1)
    end_hold(queue, name="receipt")
    store.promote(limit=5)
    assert store.current_holds() == {}
    assert store.settle(CONSUMER, [Settlement(each, Park("name:receipt")) for each in taken]) == []
    run()
    assert seen == [("receipt", 1, 1)]


def test_a_held_message_is_found_cancelled_and_deleted(queue, seen):
    ids = [publish(queue, "receipt", number, key="c") for number in range(2)]
    hold(queue, name="receipt")
    run()
    assert queues[queue].find(ids[0]).state == LookupState.PARKED
    assert queues[queue].cancel(ids[0])
    end_hold(queue, name="receipt")
    run()
    assert [data for _, data, _ in seen] == [1]


def test_no_attempt_is_charged_while_it_is_held(queue):
    attempts = []

    @handler(queue, "receipt", retry=RetryPolicy(delay=0))
    def fail(message):
        attempts.append(message.attempt)
        hold(queue, name="receipt")
        return Retry() if message.attempt == 1 else None

    publish(queue, "receipt", key="c")
    run()
    assert attempts == [1]
    end_hold(queue, name="receipt")
    run()
    assert attempts == [1, 2]


def test_a_group_of_a_topic_holds_its_own(mq_settings):
    mq_settings(TOPICS={"orders": {}})
    found = []
    for group in ("billing", "mails"):
        subscriber("orders", group=group, name="paid")(lambda message, group=group: found.append((group, message.data)))
    hold("orders:billing", name="paid")
    topics["orders"].publish("paid", 1, on_commit=False)
    run()
    assert found == [("mails", 1)]
    end_hold("orders:billing", name="paid")
    run()
    assert found == [("mails", 1), ("billing", 1)]


def test_what_cannot_be_held_is_refused(mq_settings):
    mq_settings(QUEUES={"emails": {}, "old": {"STORE": "rsmq"}})
    odd = [{"name": ""}, {"key": "x" * 256}, {"name": "\ud800"}, {"name": 3}, {"name": "x", "key": "x"}]
    for about in (*odd, {}):
        with pytest.raises(InvalidFilter):
            hold("emails", **about)
    for about in odd:
        with pytest.raises(InvalidFilter):
            end_hold("emails", **about)
    for probe in (0, 86_401, None):
        with pytest.raises(InvalidFilter):
            open_breaker("emails", probe=probe)
    for lasts in (0, -1, 367 * 86_400, "long", True):
        with pytest.raises(InvalidFilter):
            hold("emails", name="receipt", lasts=lasts)
    with pytest.raises(NotSupported):
        hold("old", name="receipt")
    assert not end_hold("emails", name="receipt")
    for number in range(MAX_HOLDS):
        hold("emails", name=f"n{number}")
    hold("emails", name="n0", reason="again")
    with pytest.raises(QueueFull):
        hold("emails", name="one more")


def test_what_others_write_into_the_holds_holds_nothing(mq_settings, redis_client):
    mq_settings(QUEUES={"emails": {}})
    found = []
    handler("emails", "receipt")(lambda message: found.append(message.data))
    key = get_config().queue("emails").keys.holds
    junk = [b"", b"{", b"[]", b"\xff", b'{"state": 3}', b'{"state": "held", "score": "x"}']
    junk.append(b'{"state": "odd", "score": "-1"}')
    redis_client.hset(key, mapping={f"name:{number}": text for number, text in enumerate(junk)} | {b"\xff": b"{}"})
    publish("emails", "receipt", 1)
    run()
    assert found == [1]
    assert holds("emails") == ()
    assert redis_client.exists(key) == 0
