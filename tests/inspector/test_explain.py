"""Why a message does not run: each cause once."""

import json
import time
from datetime import timedelta

import pytest

from mq_django import inspect, inspector
from mq_django.conf import get_config
from mq_django.core.filters import Filter
from mq_django.core.messages import ACK, Park
from mq_django.inspector import actions, explain, message_lists
from mq_django.inspector.explain import cause_of
from mq_django.stores.base import Settlement
from mq_django.stores.members import Members
from mq_django.transport.connections import open_transport
from tests.seeding import CONSUMER, beat, keep, opened, publish, publish_many, set_aside, take

pytestmark = pytest.mark.usefixtures("mq_settings")


def why(message_id):
    queue = inspector.queue("emails")
    for state in ("ready", "pending", "delayed", "unhandled", "parked"):
        for view in message_lists.messages("emails", state, Filter(id=message_id), limit=1).rows:
            return cause_of(view, queue)
    raise LookupError(message_id)


def sentence(cause):
    return explain.why(cause, name="welcome", can_see_data=True)


def test_the_queue_is_paused():
    beat("emails")
    message_id = publish("emails", "welcome", 1)
    actions.pause("emails")

    assert why(message_id).kind == "paused"


def test_it_is_due(redis_client):
    beat("emails")
    message_id = publish("emails", "welcome", 1, delay=60)
    redis_client.zadd(get_config().queue("emails").keys.due, {message_id: time.time() * 1000 - 5000})

    assert why(message_id).kind == "due"


def test_no_consumer_has_its_handler():
    beat("emails")

    assert why(set_aside("emails", "nobody.knows")).kind == "unhandled"


def test_other_programs_handle_its_queue(mq_settings, redis_client):
    mq_settings(QUEUES={"emails": {"EXTERNAL": True}})
    aside = set_aside("emails", "nobody.knows")
    publish("emails", "welcome", 0)
    ready, due = publish("emails", "welcome", 1), publish("emails", "welcome", 2, delay=60)
    redis_client.zadd(get_config().queue("emails").keys.due, {due: 1})

    assert [why(message_id).kind for message_id in (aside, ready, due)] == ["unannounced", "elsewhere", "unattended"]
    assert sentence(why(ready)) == (
        "Other programs handle this queue, and none of them is known to run. 1 message is before it."
    )
    keep("emails")
    assert why(due).kind == "due"


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


def test_a_consumer_holds_it(redis_client):
    """Whether it has started is known only of consumers that list what they run."""
    message_id = publish("emails", "welcome", 1)
    take("emails", 1)
    for more, kind in (({}, "held"), ({"running": []}, "fetched"), ({"running": [[0, "1-1", 1]] * 20}, "held")):
        told = json.dumps({"supervisor": "s1", **more})
        redis_client.hset(get_config().queue("emails").keys.consumers, f"consumer:{CONSUMER}", told)
        beat("emails", "s1")

        cause = why(message_id)

        assert (cause.kind, cause.consumer) == (kind, CONSUMER)


def test_a_consumer_runs_it_for_as_long_as_its_heartbeat_says():
    """Its lease, which is extended all the time, is younger."""
    message_id = publish("emails", "welcome", 1)
    (delivery,) = take("emails", 1)
    running = [[delivery.stream, delivery.entry.decode(), 47_000]]
    members = Members(get_config().queue("emails"), open_transport("produce"))
    members.beat("s1", {}, {CONSUMER: {"supervisor": "s1", "running": running}})

    cause = why(message_id)

    assert (cause.kind, cause.consumer) == ("running", CONSUMER)
    assert 47_000 <= cause.ms < 600_000


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


@pytest.fixture
def limited(mq_settings):
    """Configure limits, and return what takes as a consumer with them does."""

    def configure(**limits):
        mq_settings(QUEUES={"emails": limits})
        beat("emails")
        return opened("emails")

    return configure


def test_as_many_of_its_key_are_handled_as_may_be(limited):
    store = limited(CONCURRENCY={"key": 2})
    ids = [publish("emails", "welcome", n, key="user:7") for n in range(5)]
    held = store.take("c1", count=10)

    cause = why(ids[-1])

    assert (cause.kind, cause.key, cause.most, cause.count) == ("parked", "user:7", 2, 2)
    store.settle("c1", [Settlement(item, ACK) for item in held])
    assert why(ids[-1]).kind in ("due", "parked")


def test_of_its_key_were_so_many_as_may_be_in_a_time(limited):
    store = limited(RATE_LIMIT={"key": "2/h"})
    ids = [publish("emails", "welcome", n, key="user:7") for n in range(4)]
    store.take("c1", count=10)

    cause = why(ids[-1])

    assert (cause.kind, cause.key, cause.most, cause.count) == ("throttled", "user:7", 2, 1)
    assert cause.window == timedelta(hours=1)
    assert 3_000_000 < cause.ms <= 3_600_001


def test_a_parked_message_of_a_paused_queue_waits_for_that_first(limited):
    store = limited(CONCURRENCY={"key": 1})
    ids = [publish("emails", "welcome", n, key="user:7") for n in range(2)]
    store.take("c1", count=10)
    actions.pause("emails")

    assert why(ids[-1]).kind == "paused"


def test_as_many_of_the_queue_are_handled_as_may_be(limited):
    store = limited(CONCURRENCY=2)
    ids = publish_many("emails", [("welcome", n) for n in range(4)])
    store.take("c1", count=10)

    cause = why(ids[2])

    assert (cause.kind, cause.most, cause.count) == ("full", 2, 0)
    behind = why(ids[3])
    assert (behind.kind, behind.count) == ("full", 1)
    assert sentence(behind) == "The limit of the queue is reached: 2 at once. 1 message is before it."


def test_of_the_queue_were_so_many_as_may_be_in_a_time(limited):
    store = limited(RATE_LIMIT="2/h")
    ids = publish_many("emails", [("welcome", n) for n in range(3)])
    assert why(ids[0]).kind == "next"
    store.take("c1", count=10)

    cause = why(ids[2])

    assert (cause.kind, cause.most) == ("rate", 2)
    assert 3_000_000 < cause.ms <= 3_600_001


def test_limits_are_those_that_were_changed(limited):
    store = limited(RATE_LIMIT={"queue": "9/m", "key": "9/m"}, CONCURRENCY={"queue": 9, "key": 9})
    inspect.set_limits("emails", key_concurrency=1)
    ids = [publish("emails", "welcome", n, key="c1") for n in range(2)]
    assert len(store.take("c1", count=10)) == 1
    assert (why(ids[1]).kind, why(ids[1]).most) == ("parked", 1)

    inspect.set_limits("emails", concurrency=1)
    other = publish("emails", "welcome", 1)
    assert (why(other).kind, why(other).most) == ("full", 1)
    inspect.set_limits("emails", concurrency="none", rate="1/h")
    assert (why(other).kind, why(other).most) == ("rate", 1)
    assert why(other).ms > 3_000_000
    inspect.set_limits("emails", rate="none")
    assert why(other).kind == "next"


def park(subject):
    publish("emails", "welcome", 1, key="c1")
    (taken,) = take("emails", 1)
    assert opened("emails").settle(CONSUMER, [Settlement(taken, Park(subject))]) == []
    return taken.message.id


def test_it_is_held_by_people_also_while_the_queue_is_paused():
    held, keyed = park("name:welcome"), park("key:c1")
    inspect.hold("emails", name="welcome", who="ada", reason="it burns", lasts=3600)
    inspect.hold("emails", key="c1")
    actions.pause("emails")

    assert (why(held).kind, why(keyed).kind) == ("on hold", "on hold")
    assert sentence(why(held)).startswith("Messages of its name are held. Held by ada since 20")
    assert "Until 20" in sentence(why(held))
    assert sentence(why(held)).endswith("Reason: it burns")
    assert sentence(why(keyed)).startswith("Messages of its key are held. Held since 20")


def test_it_waits_for_a_breaker():
    held = park("queue:")
    inspect.open_breaker("emails", who="ada", reason="the printer is away", probe=60)

    said = sentence(why(held))
    assert said.startswith("It waits for its partner since 20")
    assert "opened by ada (the printer is away); next probe in " in said


def test_what_held_it_has_ended():
    held = park("name:welcome")
    inspect.hold("emails", name="welcome")
    inspect.end_hold("emails", name="welcome")

    assert sentence(why(held)) == "What held it has ended: it is about to be ready."


def test_it_is_ready_and_held():
    inspect.hold("emails", key="c1", who="ada")
    held, other = publish("emails", "welcome", 1, key="c1"), publish("emails", "welcome", 1, key="c2")
    beat("emails")

    assert (why(held).kind, why(other).kind) == ("to be parked", "behind")
    said = sentence(why(held))
    assert said.startswith("Messages of its key are held. It is ready, and will be parked until then. Held by ada")
