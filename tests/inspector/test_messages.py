"""Messages as people see them."""

from collections import defaultdict

import pytest

from mq_django import inspector
from mq_django.conf import get_config
from mq_django.inspector.message_lists import find_handled, messages
from tests.seeding import bury, bury_garbage, bury_many, handle, publish, publish_many, set_aside, take

pytestmark = pytest.mark.usefixtures("mq_settings")


def test_what_waits_and_is_no_message_is_shown_as_that(redis_client):
    keys = get_config().queue("emails").keys
    redis_client.zadd(keys.due, {"bare": 1, "broken": 2})
    redis_client.hset(keys.waiting, "broken", b"\xff{")

    bare, broken = messages("emails", "delayed", limit=10).rows

    assert "no body" in bare.problem
    assert "not JSON" in broken.problem
    assert not broken.has_data


def test_the_size_is_that_of_the_data_in_each_state(mq_settings, subtests):
    mq_settings(QUEUES={"emails": {"HISTORY": {"AGE": 60, "COUNT": 10}}})
    data, headers = {"text": "ä"}, {"of": "more than the data"}
    publish("emails", "a", data, headers=headers)
    take("emails", 1)
    handle("emails", "a", data, headers=headers)
    bury("emails", "a", data, headers=headers)
    set_aside("emails", "nobody.knows", data)
    for more in ({}, {"priority": 5}, {"delay": 60}):
        publish("emails", "a", data, headers=headers, **more)
    for state, count in {"ready": 2, "pending": 1, "delayed": 1, "unhandled": 1, "dead": 1, "handled": 2}.items():
        with subtests.test(state=state):
            found = messages("emails", state, limit=10).rows
            assert [view.size for view in found] == [len(b'{"text":"\xc3\xa4"}')] * count


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


def test_a_history_of_another_program_has_no_message(redis_client):
    redis_client.set(get_config().queue("emails").keys.handled_ids, "x")
    assert find_handled("emails", "m1") is None
