"""A test of a project sees a queue with partitions as any other. Most of it is in `project/`: see test_kit.py."""

import pytest

from mq_django import Bury, handler, queues, subscriber, topics
from mq_django.core import partitions
from mq_django.core.partitions import number_in, partition_of
from mq_django.testing import looking
from mq_django.testing.published import message_for
from mq_django.testing.recording import run_supervised
from mq_django.testing.runs import run
from mq_django.testing.time_travel import next_due_ms
from tests.testapp import tasks

PARTITIONS = 8

pytestmark = pytest.mark.usefixtures("handlers")


@pytest.fixture(autouse=True)
def queue(mq_settings):
    mq_settings(QUEUES={"default": {"PARTITIONS": PARTITIONS}, "emails": {}})
    partitions.end_turns()
    yield queues["default"]
    partitions.begin_turns()


def test_messages_without_a_key_are_handled_in_their_order(queue):
    seen = []
    handler("default", "note")(lambda message: seen.append((message.queue, message.data)))
    for number in range(5):
        queue.publish("note", number)
    queue.publish_many([("note", 5), ("note", 6)])
    assert [found.message.data for found in looking.messages("default", "ready")] == list(range(7))
    assert [found.message.data for found in run("default")] == list(range(7))
    assert seen == [("default", number) for number in range(7)]
    assert looking.messages("default") == []


def test_messages_of_all_partitions_are_seen_under_the_name_of_the_queue(queue):
    keys = [f"k{number}" for number in range(20)]
    for number, key in enumerate(keys):
        queue.publish("note", key, key=key, delay=100 - number)
    due = looking.delayed()
    assert [found.message.data for found in due] == keys[::-1]
    assert {found.message.queue for found in due} == {"default"}
    assert next_due_ms(["default"]) > 0
    assert {found.message.data for found in looking.messages("default.3")} == {
        key for key in keys if partition_of(key, PARTITIONS) == 3
    }


def test_dead_letters_are_those_of_all_partitions(queue):
    handler("default", "bad")(lambda message: Bury(f"no {message.data}"))
    for number in range(6):
        queue.publish("bad", number, key=f"k{number}")
    run()
    letters = looking.dead("default")
    assert {(each.queue, each.message.queue, each.error) for each in letters} == {
        ("default", "default", f"no {number}") for number in range(6)
    }
    assert [found.state for found in looking.messages("default", "dead")] == ["dead"] * 6


def test_results_of_tasks_are_those_of_all_partitions():
    sent = [tasks.shout.using(key=f"k{number}").enqueue(str(number)) for number in range(6)]
    run("default")
    assert [each.return_value for each in looking.results(tasks.shout)] == [str(number) for number in range(6)]
    assert {each.id for each in looking.results("default")} == {each.id for each in sent}


def test_a_message_of_a_function_is_in_its_partition():
    @handler("default", "keyed")
    def keyed(message):
        """Do nothing."""

    made = message_for(keyed, {"n": 1})
    made.publish()
    assert made.config.name == "default.0"
    assert message_for(tasks.shout, ["x"]).config.name == "default.0"
    assert [found.message.data for found in looking.messages("default")] == [{"n": 1}]


def test_there_is_nothing_left_to_do_for_workflows():
    assert run_supervised() == 0


def test_turns_begin_again_after_a_test(queue):
    partitions.begin_turns()
    assert {number_in(queue.publish("note", None)) for _ in range(PARTITIONS)} == set(range(PARTITIONS))


@pytest.fixture
def orders(mq_settings):
    mq_settings(QUEUES={}, TOPICS={"orders": {"PARTITIONS": PARTITIONS}})
    return topics["orders"]


def test_a_topic_with_partitions_is_one_log(orders):
    seen = []
    subscriber("orders", group="billing", name="placed")(lambda message: seen.append((message.queue, message.data)))
    orders.publish_many([("placed", number) for number in range(3)])
    for number in range(3, 6):
        orders.publish("placed", number, key=f"k{number}")
    assert sorted(message.data for message in looking.topic("orders").messages) == list(range(6))
    assert sorted(found.message.data for found in run()) == list(range(6))
    assert sorted(seen) == [("orders:billing", number) for number in range(6)]
    assert looking.topic("orders").groups == {"billing": 0}
