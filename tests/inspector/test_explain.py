"""Why a message does not run: each cause once."""

import time

import pytest

from mq_django import inspector
from mq_django.conf import get_config
from mq_django.core.filters import Filter
from mq_django.inspector import actions, entries
from mq_django.inspector.explain import why_entry, why_waiting
from mq_django.inspector.messages import find_waiting
from tests.seeding import CONSUMER, beat, publish, publish_many, set_aside, take

pytestmark = pytest.mark.usefixtures("mq_settings")


def why(message_id):
    queue = inspector.queue("emails")
    waiting = find_waiting("emails", message_id.encode())
    if waiting is not None:
        return why_waiting(waiting, queue)
    for read in (entries.ready, entries.pending):
        for view in read("emails", Filter(id=message_id), limit=1).rows:
            return why_entry(view, queue)
    raise LookupError(message_id)


def test_nobody_consumes_the_queue():
    assert why(publish("emails", "welcome", 1)).kind == "unconsumed"


def test_the_queue_is_paused():
    beat("emails")
    message_id = publish("emails", "welcome", 1)
    actions.pause("emails")

    assert why(message_id).kind == "paused"


def test_its_due_time_is_to_come():
    cause = why(publish("emails", "welcome", 1, delay=60))

    assert cause.kind == "delayed"
    assert 50_000 < cause.ms <= 60_001  # Redis rounds its clock down, and so do we


def test_it_is_due(redis_client):
    beat("emails")
    message_id = publish("emails", "welcome", 1, delay=60)
    redis_client.zadd(get_config().queue("emails").keys.due, {message_id: time.time() * 1000 - 5000})

    assert why(message_id).kind == "due"


def test_no_consumer_has_its_handler():
    beat("emails")

    assert why(set_aside("emails", "nobody.knows")).kind == "unhandled"


def test_others_stand_before_it():
    beat("emails")
    publish("emails", "welcome", 1, priority=9)
    take("emails", 1)
    found = publish_many("emails", [("welcome", n) for n in range(4)])
    publish("emails", "welcome", 1, priority=9)
    low = publish("emails", "welcome", 1, priority=-9)

    assert (why(found[3]).kind, why(found[3]).count) == ("behind", 4)
    assert why(low).count == 5
    take("emails", 3)
    assert why(found[3]).count == 1


def test_very_many_stand_before_it():
    beat("emails")
    *_, last = publish_many("emails", [("welcome", n) for n in range(1200)])

    cause = why(last)

    assert (cause.count, cause.at_least) == (1000, True)


def test_nothing_stands_in_its_way():
    beat("emails")

    assert why(publish("emails", "welcome", 1)).kind == "next"


def test_a_consumer_holds_it(redis_client):
    message_id = publish("emails", "welcome", 1)
    take("emails", 1)
    redis_client.hset(get_config().queue("emails").keys.consumers, f"consumer:{CONSUMER}", '{"supervisor": "s1"}')
    beat("emails", "s1")

    cause = why(message_id)

    assert (cause.kind, cause.consumer) == ("held", CONSUMER)


def test_its_consumer_is_gone():
    message_id = publish("emails", "welcome", 1)
    take("emails", 1)

    assert why(message_id).kind == "abandoned"


def test_it_is_no_message(redis_client):
    beat("emails")
    keys = get_config().queue("emails").keys
    redis_client.xadd(keys.ready, {"x": "1", "id": "odd"})
    redis_client.zadd(keys.due, {"empty": 2**50})

    assert why("odd").kind == "broken"
    assert why("empty").kind == "broken"
