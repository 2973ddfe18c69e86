"""Recording what is published, and finding it again."""

from datetime import UTC, datetime, timedelta
from threading import Thread
from unittest.mock import ANY
from uuid import UUID

import pytest

from mq_django import queues, schedules, topics
from mq_django.errors import InvalidMessage, UnknownQueue
from mq_django.testing.published import Published
from mq_django.testing.recording import Recorder
from mq_django.testing.transactions import commit
from tests.testapp import tasks

HOUR = timedelta(hours=1)
DUE = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def configured(mq_settings, namespace):
    mq_settings(
        QUEUES={"default": {}, "emails": {}, "jobs": {"STORE": "rsmq", "NAMESPACE": namespace}},
        TOPICS={"orders": {}},
    )


@pytest.fixture
def recorder():
    with Recorder() as active:
        yield active


def failure(check, *args, **options):
    with pytest.raises(AssertionError) as caught:
        check(*args, **options)
    return str(caught.value)


def test_what_is_published_is_recorded_in_order_with_what_it_was_given(recorder):
    queues["emails"].publish(
        "welcome", {"user_id": 7}, key="user:7", unique="w7", delay=60, priority=5, headers={"tenant": "a"}
    )
    queues["jobs"].publish("resize", [1], deliver_at=DUE)
    topics["orders"].publish("paid", 1)
    message_id = queues["default"].publish("bye", None, expires=HOUR)
    found = recorder.published()
    assert found == [
        Published(
            "emails",
            "welcome",
            {"user_id": 7},
            key="user:7",
            unique="w7",
            headers={"tenant": "a"},
            priority=5,
            delay=timedelta(minutes=1),
        ),
        Published("jobs", "resize", [1], deliver_at=DUE),
        Published("orders", "paid", 1),
        Published("default", "bye"),
    ]
    assert found[3].id == message_id
    assert abs(found[3].expires - datetime.now(UTC) - HOUR) < timedelta(minutes=10)
    assert [record.expires for record in found[:3]] == [None, None, None]


def test_data_is_as_a_handler_receives_it(recorder):
    given = {"id": UUID(int=7), "pair": (1, 2)}
    queues["emails"].publish("welcome", given)
    given["id"] = None
    (record,) = recorder.published()
    assert record.data == {"id": str(UUID(int=7)), "pair": [1, 2]}
    assert recorder.published(data={"id": UUID(int=7), "pair": (1, 2)})
    assert recorder.published(data={"id": ANY, "pair": [1, 2]})
    assert not recorder.published(data={"id": ANY})


def test_values_beside_those_that_are_only_compared_are_in_their_form_in_json(recorder):
    queues["emails"].publish("welcome", {"id": 5, "due": DUE, 7: [{"day": DUE.date(), "pair": (1, 2)}]})
    assert recorder.published(data={"id": ANY, "due": DUE, 7: [{"day": DUE.date(), "pair": (1, 2)}]})
    assert recorder.published(data={"id": 5, "due": DUE, 7: ({"day": DUE.date(), "pair": (ANY, 2)},)})
    assert not recorder.published(data={"id": ANY, "due": DUE, 7: [{"day": DUE.date(), "pair": (ANY, 3)}]})
    assert not recorder.published(data={"id": ANY, (1, 2): 5})


def test_a_task_is_recorded_with_its_path_and_its_arguments(recorder):
    tasks.send_receipt.enqueue(7, copies=2)
    tasks.note.enqueue_many([[1], {"word": "x"}])
    queues["emails"].publish("welcome", {"args": [7], "kwargs": {}})
    path = tasks.send_receipt.module_path
    (found,) = recorder.published(task=tasks.send_receipt)
    assert (found.queue, found.name, found.task, found.args, found.kwargs) == ("emails", path, path, [7], {"copies": 2})
    assert recorder.published(task=path) == [found]
    assert recorder.published("emails", path, args=(7,), kwargs={"copies": 2}) == [found]
    assert [record.args or record.kwargs for record in recorder.published(task=tasks.note)] == [[1], {"word": "x"}]
    assert recorder.published(name="welcome")[0].task == ""


def test_records_are_found_by_what_they_have(recorder, subtests):
    queues["emails"].publish("welcome", {"n": 1}, key="a", priority=5)
    queues["emails"].publish("remind", {"n": 2}, delay=HOUR)
    queues["default"].publish("remind", {"n": 3}, deliver_at=DUE)
    for criteria, count in [
        ({}, 3),
        ({"queue": "emails"}, 2),
        ({"name": "remind"}, 2),
        ({"queue": "emails", "name": "remind"}, 1),
        ({"data": {"n": 2}}, 1),
        ({"key": "a"}, 1),
        ({"key": None}, 2),
        ({"delay": HOUR}, 1),
        ({"delay": 3600}, 1),
        ({"delay": None}, 2),
        ({"deliver_at": DUE}, 1),
        ({"deliver_at": DUE, "delay": HOUR}, 0),
        ({"priority": 5, "headers": {}, "unique": None}, 1),
        ({"task": tasks.note}, 0),
    ]:
        with subtests.test(criteria=criteria, count=count):
            assert len(recorder.published(**criteria)) == count


def test_only_what_was_written_is_recorded(recorder):
    emails = queues["emails"]
    first = emails.publish("remind", 1, delay=HOUR, unique="u")
    assert emails.publish("remind", 2, delay=HOUR, unique="u", on_conflict="keep") == first
    for _ in range(2):
        topics["orders"].publish("paid", 1, message_id="paid-1")
    assert [record.data for record in recorder.published("emails")] == [1]
    assert [record.id for record in recorder.published("orders")] == ["paid-1"]


def test_all_threads_are_recorded(recorder):
    threads = [Thread(target=queues["emails"].publish, args=("welcome", n)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(record.data for record in recorder.published("emails")) == list(range(8))


def test_the_message_of_a_schedule_is_recorded(recorder):
    schedules.create("clean", queue="emails", every=HOUR, message="clean", data=[1])
    schedules.fire("clean", queue="emails")
    assert recorder.published() == [Published("emails", "clean", [1])]


def test_a_recorder_that_is_paused_records_nothing_meanwhile(recorder):
    queues["emails"].publish("before", 1)
    with recorder._paused():
        queues["emails"].publish("meanwhile", 2)
    queues["emails"].publish("after", 3)
    assert [record.name for record in recorder.published()] == ["before", "after"]


def test_the_text_has_one_record_a_line(recorder):
    queues["emails"].publish("welcome", {"user_id": 7}, key="user:7")
    tasks.send_receipt.enqueue(7)
    assert repr(recorder.published()) == (
        "[\n"
        "  Published(queue='emails', name='welcome', data={'user_id': 7}, key='user:7')\n"
        "  Published(queue='emails', priority=5, args=[7], task='tests.testapp.tasks.send_receipt')\n"
        "]"
    )


def test_the_text_of_no_record_tells_what_was_published(recorder):
    assert repr(recorder.published("emails")) == "[]: nothing was published"
    queues["default"].publish("bye", 1)
    assert repr(recorder.published("emails", "welcome")) == (
        "[]: no message has queue='emails', name='welcome'; published were\n"
        "  Published(queue='default', name='bye', data=1)"
    )


@pytest.mark.django_db
def test_the_text_of_no_record_tells_what_waits_for_the_commit(recorder):
    queues["emails"].publish("welcome", 1)
    assert repr(recorder.published("emails")) == (
        "[]: 1 message waits for the commit: call mq.commit()\n  Published(queue='emails', name='welcome', data=1)"
    )
    queues["emails"].publish("welcome", 2)
    text = failure(recorder.assert_published, "emails", "welcome")
    assert "found 0: []: 2 messages wait for the commit: call mq.commit()\n" in text
    assert "but 2 will be at the commit" in failure(recorder.assert_nothing_published)
    recorder.assert_nothing_published("default")
    commit()
    recorder.assert_published("emails", "welcome", count=2)
    queues["emails"].publish("welcome", 3)
    assert "1 message waits for the commit" in failure(recorder.assert_published, "emails", "welcome", count=3)


def test_a_failed_check_compares_with_the_most_similar_message(recorder):
    for n in (1, 7):
        queues["emails"].publish("welcome", {"user_id": n, "language": "de"})
    queues["emails"].publish("remind", {"user_id": 8, "language": "en"})
    expected = {"user_id": 7, "language": "en"}
    text = failure(recorder.assert_published, "emails", "welcome", data=expected, key="user:7")
    assert text.startswith(f"expected at least one message with queue='emails', name='welcome', data={expected!r}, key")
    _, _, compared = text.partition("the most similar message is ")
    assert compared == (
        "Published(queue='emails', name='welcome', data={'user_id': 7, 'language': 'de'}); - expected, + published:\n"
        "data:\n"
        "   {\n"
        '  -  "language": "en",\n'
        '  +  "language": "de",\n'
        '     "user_id": 7\n'
        "   }\n"
        "key:\n"
        '  -"user:7"\n'
        "  +null"
    )


def test_a_check_may_count(recorder):
    for n in range(2):
        queues["emails"].publish("welcome", n)
    recorder.assert_published("emails", "welcome")
    recorder.assert_published("emails", "welcome", count=2)
    recorder.assert_published("emails", "remind", count=0)
    text = failure(recorder.assert_published, "emails", "welcome", count=1)
    assert text.startswith("expected 1 message with queue='emails', name='welcome', found 2: [\n  Published(")
    assert "found 2:\n  Published(" in failure(recorder.assert_nothing_published)
    recorder.assert_nothing_published("default")


def test_a_mistake_in_a_question_is_an_error(recorder):
    for ask in (recorder.published, recorder.assert_published, recorder.assert_nothing_published):
        with pytest.raises(UnknownQueue, match="No queue 'email' in"):
            ask("email")
    with pytest.raises(InvalidMessage, match="delay must be"):
        recorder.published(delay="1h")
    with pytest.raises(TypeError, match="'dat' is no criterion; there are data, key"):
        recorder.published(dat=1)
    assert recorder.published("orders") == recorder.published("orders:billing") == []
