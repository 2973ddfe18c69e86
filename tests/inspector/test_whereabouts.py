"""A message is found wherever it is, in any queue."""

import pytest

from mq_django import topics
from mq_django.conf import get_config
from mq_django.core.messages import ACK, Bury, Expire
from mq_django.inspector import dead_letters, message_lists
from mq_django.inspector import stream_reader as scanning
from mq_django.inspector.message_lists import find_everywhere
from mq_django.inspector.queues import all_configs
from mq_django.rsmq import RSMQ
from mq_django.stores.base import Settlement
from tests import on_cluster
from tests.seeding import CONSUMER, handle, publish, publish_many, settle, store, take

pytestmark = pytest.mark.cluster

TOPICS = {"orders": {}}


@pytest.fixture(autouse=True)
def configured(mq_settings, namespace):
    mq_settings(
        QUEUES={
            "default": {},
            "emails": {},
            "limited": {"CONCURRENCY": {"key": 1}},
            "shared": {"STORE": "rsmq", "NAMESPACE": f"{namespace}:r"},
        },
        TOPICS=TOPICS,
    )


def found(message_id, **options):
    search = find_everywhere(message_id, **{"seconds": 30, **options})
    assert (search.not_searched, search.errors) == ([], {})
    return [(one.queue, one.state) for one in search.found]


def test_ready_and_pending_messages_are_found_by_a_scan():
    publish_many("default", [("other", n) for n in range(20)])
    ids = publish_many("emails", [("welcome", n) for n in range(20)])
    take("emails", 3)
    assert found(ids[1]) == [("emails", "pending")]
    assert found(ids[19]) == [("emails", "ready")]
    assert found(publish("emails", "welcome", 1, priority=5)) == [("emails", "ready")]


def test_what_was_handled_expired_or_replaced_is_found():
    assert found(handle("emails", message_id="done")) == [("emails", "handled")]
    expired = publish("emails", "welcome", 1)
    settle("emails", take("emails", 1), Expire())
    assert found(expired) == [("emails", "expired")]
    replaced = publish("emails", "welcome", 1, delay=60, unique="cart:7")
    publish("emails", "welcome", 2, delay=60, unique="cart:7", on_conflict="replace")
    assert found(replaced) == [("emails", "replaced")]


def test_what_was_buried_and_redriven_is_found_where_it_is_now():
    message_id = handle("emails", message_id="again", outcome=Bury("no"))
    assert found(message_id) == [("emails", "dead"), ("emails", "handled")]
    dead_letters.redrive_messages("emails", [message_id])
    assert found(message_id) == [("emails", "ready"), ("emails", "handled")]


def test_the_end_of_a_task_is_found_by_its_result():
    message_id = publish("emails", "shop.tasks.send", {"args": [], "kwargs": {}})
    settlements = [Settlement(one, ACK, micros=1500, keeps_result=True) for one in take("emails", 1)]
    store("emails").settle(CONSUMER, settlements)
    (one,) = find_everywhere(message_id, seconds=30).found
    assert (one.state, one.view.name, one.view.status) == ("result", "shop.tasks.send", "SUCCESSFUL")


def test_a_message_of_an_rsmq_queue_is_found(namespace):
    rsmq = RSMQ(on_cluster.tag(f"{namespace}:r"))
    rsmq.create_queue("shared")
    message_id = rsmq.send("shared", "hello")
    assert found(message_id) == [("shared", "ready")]
    late = rsmq.send("shared", "hello", delay=60)
    assert found(late) == [("shared", "delayed")]


def test_a_message_of_a_topic_is_found_in_its_log_and_where_a_group_holds_it():
    topics["orders"].group("billing").subscribe()
    message_id = topics["orders"].publish("order.paid", {"order": 1}, on_commit=False)
    assert ("orders", "log") in found(message_id)


def test_what_nobody_knows_is_found_nowhere():
    publish("emails", "welcome", 1)
    assert found("nope") == found("\udcff") == found("") == []


def test_a_search_without_time_says_what_it_has_not_searched(monkeypatch):
    monkeypatch.setattr(scanning, "MAX_SCANNED", 5)
    publish_many("emails", [("welcome", n) for n in range(20)])
    search = find_everywhere("nope", seconds=0)
    assert (search.found, search.not_searched) == ([], ["emails"])


def test_a_queue_that_cannot_be_read_is_named_and_hides_no_other(redis_client):
    redis_client.set(get_config().queue("default").keys.due, "x")
    message_id = publish("emails", "welcome", 1, delay=60)
    search = find_everywhere(message_id, seconds=30)
    assert [(one.queue, one.state) for one in search.found] == [("emails", "delayed")]
    assert list(search.errors) == ["default"]


def test_all_indexes_are_asked_in_one_round_trip(monkeypatch):
    asked = []
    real = message_lists.fan_out
    monkeypatch.setattr(
        message_lists,
        "fan_out",
        lambda transports, pipelines: asked.append(len(pipelines)) or real(transports, pipelines),
    )
    assert find_everywhere("nope", seconds=30).found == []
    assert asked == [len(all_configs())]
