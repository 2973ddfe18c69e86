"""Messages as people see them."""

from collections import defaultdict

import pytest

from mq_django import inspector
from mq_django.conf import get_config
from mq_django.inspector.messages import find_waiting, search_waiting, waiting
from tests.seeding import bury, bury_garbage, bury_many, publish, publish_many, set_aside, take

pytestmark = pytest.mark.usefixtures("mq_settings")


def test_a_delayed_message_says_all_it_is():
    publish("emails", "welcome", {"user": 7, "token": "x"}, delay=60, message_id="m1", key="user:7")

    (view,) = waiting("emails", "delayed", start=0, limit=10).waiting

    assert view.member == b"m1"
    assert view.room == "delayed"
    assert view.due_ms > 0
    message = view.message
    assert (message.id, message.name, message.key, message.attempt) == ("m1", "welcome", "user:7", 1)
    assert message.data == {"user": 7, "token": "[redacted]"}
    assert message.published_ms <= view.due_ms


def test_a_page_of_many_counts_all_and_reads_a_few():
    for n in range(30):
        publish("emails", "welcome", n, delay=60 + n)

    page = waiting("emails", "delayed", start=10, limit=5)

    assert page.total == 30
    assert [view.message.data for view in page.waiting] == [10, 11, 12, 13, 14]


def test_long_data_is_left_out_of_a_page_and_there_on_its_own():
    publish("emails", "welcome", "x" * 100_000, delay=60, message_id="m1")

    (listed,) = waiting("emails", "delayed", start=0, limit=1).waiting

    assert not listed.message.has_data
    assert listed.message.size > 100_000
    assert find_waiting("emails", b"m1").message.data == "x" * 100_000


def test_a_message_is_found_by_id_by_unique_key_and_in_either_room():
    publish("emails", "remind", 1, delay=60, unique="cart:7")
    unhandled = set_aside("emails", "nobody.knows")

    assert search_waiting("emails", "cart:7").message.unique == "cart:7"
    assert search_waiting("emails", unhandled).room == "unhandled"
    assert search_waiting("emails", "nope") is None


def test_what_waits_and_is_no_message_is_shown_as_that(redis_client):
    keys = get_config().queue("emails").keys
    redis_client.zadd(keys.due, {"bare": 1, "broken": 2})
    redis_client.hset(keys.waiting, "broken", b"\xff{")

    bare, broken = (view.message for view in waiting("emails", "delayed", start=0, limit=10).waiting)

    assert "no body" in bare.error
    assert "not JSON" in broken.error
    assert not broken.has_data


def test_all_ids_of_a_queue_by_place(redis_client):
    dead = bury_many("emails", 3)
    garbage = bury_garbage(redis_client, "emails", {"x": "y"})
    unhandled = set_aside("emails", "nobody.knows")
    delayed = [publish("emails", "a", 1, delay=60), publish("emails", "a", 1, delay=60, unique="u")]
    ready = publish_many("emails", [("a", n) for n in range(700)])
    pending = [delivery.message.id for delivery in take("emails", 10)]

    places = defaultdict(list)
    for place, ids in inspector.ids("emails"):
        assert len(ids) <= 500
        places[place] += ids

    assert sorted(places["dead"]) == sorted([*dead, garbage])
    assert places["unhandled"] == [unhandled]
    assert sorted(places["delayed"]) == sorted(delayed)
    assert places["pending"] == pending == ready[:10]
    assert places["ready"] == ready[10:]


def test_an_empty_queue_has_no_ids():
    assert list(inspector.ids("emails")) == []


def test_ids_of_a_queue_that_only_has_dead_letters():
    message_id = bury("emails")

    assert list(inspector.ids("emails")) == [("dead", [message_id])]
