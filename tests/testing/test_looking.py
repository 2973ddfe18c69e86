"""Reading queues, dead letters, results and topics."""

from datetime import UTC, datetime, timedelta

import pytest

from mq_django import queues, topics
from mq_django.conf import get_config
from mq_django.core.messages import Ack, Bury, Delivery, Retry, SetAside
from mq_django.errors import NotSupported, TestKitError, UnknownQueue, UnknownTopic
from mq_django.stores import open_store
from mq_django.stores.base import Settlement
from mq_django.testing import looking
from mq_django.testing.looking import DeadLetter, Queued, dead, delayed, messages, results, streamed, topic
from mq_django.transport.connections import open_transport
from tests.seeding import add_to_stream
from tests.testapp import tasks

HOUR = timedelta(hours=1)
DUE = datetime(2100, 1, 1, tzinfo=UTC)
#: The admin replaces such a value.
DATA = {"user_id": 7, "password": "hunter2"}
CONSUMER = "c1"

#: A queue of each kind; the last is a group of a topic.
KINDS = ("emails", "sms", "jobs", "orders:billing")


@pytest.fixture(autouse=True)
def configured(mq_settings, namespace):
    mq_settings(
        QUEUES={
            "default": {},
            "emails": {},
            "sms": {"CONCURRENCY": {"key": 1}},
            "jobs": {"STORE": "rsmq", "NAMESPACE": namespace},
        },
        TOPICS={"orders": {}},
    )


def store(queue):
    found = open_store(get_config().queue(queue), open_transport("produce"))
    found.create_groups()
    return found


def take(queue, count=100):
    return store(queue).take(CONSUMER, count=count)


def settle(queue, outcome, *, delay_ms=0):
    """Take all messages of a queue, and settle them with an outcome."""
    settlements = [
        Settlement(delivery, outcome, delay_ms, 1000, keeps_result=isinstance(delivery, Delivery))
        for delivery in take(queue)
    ]
    assert store(queue).settle(CONSUMER, settlements) == []


def content(found):
    return [(each.message.name, each.message.data, each.state) for each in found]


@pytest.mark.parametrize("queue", KINDS)
def test_a_message_is_found_in_each_of_its_states_without_redaction(queue):
    assert messages(queue) == []
    message_id = queues[queue].publish("welcome", DATA)
    assert content(messages(queue, "ready")) == content(messages(queue)) == [("welcome", DATA, "ready")]
    (taken,) = take(queue)
    (pending,) = messages(queue)
    assert (pending.state, pending.message.id, pending.message.data) == ("pending", message_id, DATA)
    assert (pending.due, pending.delay, pending.problem) == (None, None, "")

    store(queue).settle(CONSUMER, [Settlement(taken, Retry(error="no"), 3_600_000)])
    (waiting,) = delayed(queue)
    assert messages(queue) == [waiting]
    assert content([waiting]) == [("welcome", DATA, "delayed")]
    assert abs(waiting.delay - HOUR) < timedelta(minutes=10)
    assert abs(waiting.due - datetime.now(UTC) - HOUR) < timedelta(minutes=10)
    assert [messages(queue, state) for state in ("ready", "pending", "unhandled", "parked", "dead")] == [[]] * 5


@pytest.mark.parametrize("queue", KINDS)
def test_a_message_without_a_handler_and_a_dead_letter_are_found(queue):
    queues[queue].publish("unknown", 1)
    settle(queue, SetAside())
    assert content(messages(queue)) == [("unknown", 1, "unhandled")]
    queues[queue].publish("welcome", DATA, key="user:7")
    settle(queue, Bury(error="ValueError: no", traceback="Traceback ...", reason="attempts"))
    (letter,) = dead(queue)
    assert (letter.message.name, letter.message.data, letter.message.key) == ("welcome", DATA, "user:7")
    assert letter == DeadLetter(
        queue=queue, message=letter.message, error="ValueError: no", reason="attempts", attempts=1
    )
    assert letter.traceback == "Traceback ..."
    assert messages(queue, "dead") == [Queued(message=letter.message, state="dead")]
    assert [each.state for each in messages(queue)] == ["unhandled", "dead"]


def test_what_a_limit_holds_back_is_parked():
    queues["sms"].publish_many([("welcome", n) for n in range(3)], key="a")
    take("sms")
    found = messages("sms")
    assert [each.state for each in found] == ["pending", "parked", "parked"]
    assert content(messages("sms", "parked")) == [("welcome", 1, "parked"), ("welcome", 2, "parked")]


def test_delayed_messages_of_all_queues_are_found_with_their_time():
    queues["jobs"].publish("resize", 1, deliver_at=DUE)
    queues["emails"].publish("remind", 2, deliver_at=DUE)
    queues["emails"].publish("remind", 1, delay=60)
    queues["orders:billing"].publish("retry", 1, deliver_at=DUE)
    store("orders:billing")
    found = delayed()
    assert [(each.message.queue, each.message.data) for each in found] == [
        *[("emails", 1), ("emails", 2), ("jobs", 1), ("orders:billing", 1)]
    ]
    assert [each.due for each in found[1:]] == [DUE] * 3
    assert delayed("emails") == found[:2]


def test_dead_letters_of_all_queues_are_found_the_oldest_first():
    for queue, name in (("jobs", "resize"), ("emails", "first"), ("emails", "second"), ("orders:billing", "paid")):
        queues[queue].publish(name, 1)
        settle(queue, Bury(error="no", reason="error"))
    assert [(each.message.queue, each.message.name) for each in dead()] == [
        *[("emails", "first"), ("emails", "second"), ("jobs", "resize"), ("orders:billing", "paid")]
    ]


def test_what_is_not_a_message_is_shown_with_the_reason(redis_client):
    redis_client.xadd(get_config().queue("emails").keys.ready, {"type": "welcome", "data": "{"})
    (found,) = messages("emails")
    assert (found.message, found.state) == (None, "ready")
    assert found.problem
    settle("emails", Bury(error="there is no field data", reason="undecodable"))
    (letter,) = dead("emails")
    assert (letter.message, letter.reason) == (None, "undecodable")
    assert messages("emails") == [Queued(message=None, state="dead", problem="there is no field data")]


@pytest.mark.parametrize("queue", ["emails", "jobs"])
def test_many_messages_are_read_page_by_page_up_to_the_limit(queue, monkeypatch):
    monkeypatch.setattr(looking, "BATCH", 10)
    numbers = list(range(30))
    queues[queue].publish_many([("welcome", n) for n in numbers])
    queues[queue].publish_many([("remind", n) for n in numbers], deliver_at=DUE)
    assert sorted(each.message.data for each in messages(queue, "ready")) == numbers
    assert sorted(each.message.data for each in messages(queue, "delayed")) == numbers
    take(queue)
    assert sorted(each.message.data for each in messages(queue, "pending")) == numbers
    settle(queue, Bury(error="no"))
    monkeypatch.setattr(looking, "LIMIT", 29)
    for state in ("pending", "delayed"):
        with pytest.raises(
            TestKitError, match=f"Queue '{queue}' has {state} messages: more than 29, which is the most"
        ):
            messages(queue, state)


def test_many_dead_letters_are_read_page_by_page_up_to_the_limit(monkeypatch):
    monkeypatch.setattr(looking, "BATCH", 10)
    queues["emails"].publish_many([("welcome", n) for n in range(30)])
    settle("emails", Bury(error="no"))
    assert [each.message.data for each in dead("emails")] == list(range(30))
    monkeypatch.setattr(looking, "LIMIT", 29)
    with pytest.raises(TestKitError, match="has dead letters: more than 29"):
        dead()


def test_the_results_of_a_task_or_a_queue_are_those_of_djangos_task_api():
    first = tasks.send_receipt.enqueue(7)
    settle("emails", Ack(result=b'{"order":7}'))
    second = tasks.send_receipt.enqueue(8)
    settle("emails", Bury(error="ValueError: no", traceback="Traceback ...\nValueError: no"))
    third = tasks.send_receipt.enqueue(9)
    other = tasks.note.using(queue_name="emails").enqueue(1)
    elsewhere = tasks.note.enqueue(2)
    found = results(tasks.send_receipt)
    assert [each.id for each in found] == [first.id, second.id, third.id]
    assert [each.status.name for each in found] == ["SUCCESSFUL", "FAILED", "READY"]
    assert found[0].return_value == {"order": 7}
    assert [error.exception_class for error in found[1].errors] == [ValueError]
    assert results(tasks.send_receipt.module_path) == found
    assert {each.id for each in results("emails")} == {first.id, second.id, third.id, other.id}
    assert {each.id for each in results(tasks.note)} == {other.id, elsewhere.id}
    assert [each.id for each in results("default")] == [elsewhere.id]
    assert results("jobs") == []


def test_what_was_streamed_is_found_by_a_result_or_an_id(mq_settings, namespace, monkeypatch):
    kinds = {"emails": {"STREAM": True, "PARTITIONS": 2}, "jobs": {"STORE": "rsmq", "NAMESPACE": namespace}}
    mq_settings(QUEUES={"default": {}, **kinds}, TOPICS={"orders": {"STREAM": True}})
    result = tasks.note.using(queue_name="emails").enqueue(1)
    assert streamed(result) == []
    part = get_config().queue("emails").partitions_for_id(result.id)[0].name
    monkeypatch.setattr(looking, "BATCH", 2)
    add_to_stream(part, result.id, *[("text", str(number)) for number in range(5)], ("end", '{"outcome":"handled"}'))
    found = streamed(result)
    assert [chunk.value for chunk in found] == ["0", "1", "2", "3", "4", None]
    assert streamed(result.id) == streamed(result.id, "emails") == found
    assert streamed("unknown") == []
    add_to_stream("orders:billing", "m1", ("log", "billed"))
    assert [chunk.value for chunk in streamed("m1", "orders:billing")] == ["billed"]
    monkeypatch.setattr(looking, "LIMIT", 5)
    with pytest.raises(TestKitError, match="more than 5"):
        streamed(result)


def test_what_cannot_have_streamed_is_an_error():
    with pytest.raises(NotSupported, match="Queue 'emails' keeps no streams: set STREAM"):
        streamed("m1", "emails")
    with pytest.raises(TestKitError, match="a result or the id of a message, not 7"):
        streamed(7)
    with pytest.raises(UnknownQueue):
        streamed("m1", "nope")


def test_a_topic_has_its_messages_in_order_and_the_lag_of_its_groups():
    assert (topic("orders").messages, topic("orders").groups) == ([], {})
    for group in ("billing", "search"):
        topics["orders"].group(group).subscribe()
    topics["orders"].publish_many([("paid", DATA), ("sent", 2)])
    settle("orders:billing", Ack())
    found = topic("orders")
    assert [(message.queue, message.name, message.data) for message in found.messages] == [
        *[("orders", "paid", DATA), ("orders", "sent", 2)]
    ]
    assert found.groups == {"billing": 0, "search": 2}
    assert content(messages("orders:search")) == [("paid", DATA, "ready"), ("sent", 2, "ready")]


def test_a_name_that_is_not_configured_is_an_error():
    for read in (messages, delayed, dead, results):
        with pytest.raises(UnknownQueue, match="No queue 'email' in"):
            read("email")
    with pytest.raises(UnknownQueue, match=r"No queue 'tests\.testapp\.tasks\.missing' in"):
        results("tests.testapp.tasks.missing")
    with pytest.raises(UnknownQueue, match="is a topic: use"):
        messages("orders")
    with pytest.raises(UnknownTopic, match="No topic 'emails'"):
        topic("emails")
    with pytest.raises(
        TestKitError, match="state= is one of ready, pending, delayed, unhandled, parked, dead, not 'red"
    ):
        messages("emails", "redy")
