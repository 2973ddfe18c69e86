"""The stores of a partition: what makes messages ready wakes consumers that sleep, and a closed one accepts none."""

from pathlib import Path

import pytest

from mq_django.conf import get_config
from mq_django.core.messages import HandBack
from mq_django.errors import QueueClosed
from mq_django.inspector import actions
from mq_django.producers import queues
from mq_django.stores import open_store
from mq_django.stores.base import Settlement
from mq_django.stores.partition_transport import FETCH, PUBLISH, WAKE, PartitionTransport
from mq_django.transport import scripts
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled

LUA = Path(scripts.__file__).parent / "lua"
#: Scripts of queues that make nothing ready: they read, settle, delay, or their callers run another one that wakes.
QUIET = {
    *("breakers_count", "cancels_ask", "stacks_ask", "holds_change", "clock_read", "counters_add", "counters_totals"),
    *("dead_list", "entries_before", "entries_pending", "entries_read", "entries_ready"),
    *(
        "handled_trim",
        "jobs_begin",
        "jobs_claim",
        "jobs_end",
        "lines_begin",
    ),
    *("limits_change", "lines_read", "lines_usage", "lines_wake"),
    *("members_ask", "members_claim", "members_evict", "members_heartbeat", "members_leave", "queue_stats"),
    *("reports_begin", "reports_read", "reports_save", "results_cancel", "results_running"),
    *("streams_append", "streams_end"),
    *("results_watch", "steps_forget", "steps_left"),
    *("stream_subscribe", "waiting_find"),
    *("waiting_page", "waiting_reschedule"),
    # What becomes ready by it is known of each outcome.
    *("settle", "reassign"),
    # They close partitions, and open them.
    *("repartition_close", "repartition_copy", "repartition_open", "repartition_put", "repartition_state"),
    *("repartition_take", "shares_ask"),
    # Of schedules and workflows, which are not in partitions, and of the queue as a whole.
    *("schedules_define", "schedules_delete", "schedules_override", "schedules_pause", "schedules_read"),
    *("schedules_skip", "workflows_advance", "workflows_left"),
    "partitions_record",
    # What publishes rows of outboxes runs a script that wakes; these refuse rows, and end claims.
    *("outbox_end", "outbox_refuse", "ended_add", "ended_read", "ended_done"),
    # Of groups: consumers that create one fetch, and what is read has been published before.
    *("topic_alarm", "topic_claim_check", "topic_count", "topic_groups", "topic_page"),
    *("topic_recount", "topic_stats", "topic_subscribe"),
    *("topic_trim", "topic_unsubscribe"),
}


@pytest.fixture
def part(mq_settings):
    mq_settings(QUEUES={"default": {"PARTITIONS": 4}})
    return get_config().queue("default.2")


@pytest.fixture
def ordered(mq_settings):
    mq_settings(QUEUES={"default": {"PARTITIONS": 4, "ORDERED": True}})
    return get_config().queue("default.2")


class Notifications:
    """The notifications of a partition."""

    def __init__(self, client, part):
        self._client = client
        self._pubsub = client.pubsub()
        self._pubsub.subscribe(part.keys.arrivals, "end")
        for _ in range(2):
            assert self._pubsub.get_message(timeout=10)["type"] == "subscribe"

    def count(self):
        """Return how many there were since the last call."""
        self._client.publish("end", "")
        found = 0
        while (message := self._pubsub.get_message(timeout=10))["channel"] != b"end":
            found += message["type"] == "message"
        return found


@pytest.fixture
def notifications(redis_client, part):
    return Notifications(redis_client, part)


def opened(part, *, sleeps=False):
    transport = PartitionTransport(part, Pooled(get_client("produce")))
    transport.sleeps = sleeps
    store = open_store(part, transport)
    store.create_groups()
    return store


def key_of(part):
    """Return a key whose messages are in a partition."""
    whole = get_config().queue("default")
    return next(str(number) for number in range(1000) if whole.partition_for(key=str(number)) == part)


def publish(part, **options):
    return queues["default"].publish("act", 1, key=key_of(part), **options)


def test_it_is_known_of_each_script_whether_it_wakes():
    of_queues = {path.stem for path in LUA.glob("*.lua") if not path.stem.startswith("rsmq_")}
    assert of_queues == PUBLISH | WAKE | FETCH | QUIET
    assert len(PUBLISH) + len(WAKE) + len(FETCH) + len(QUIET) == len(of_queues)


def test_only_the_first_message_after_a_fetch_that_found_nothing_wakes(part, notifications, redis_client):
    store = opened(part, sleeps=True)
    publish(part)
    assert notifications.count() == 0
    assert len(store.take("c", count=5)) == 1
    assert store.take("c", count=5) == []
    assert 0 < redis_client.pttl(part.keys.asleep) <= 30_000
    publish(part)
    publish(part)
    assert notifications.count() == 1
    assert not redis_client.exists(part.keys.asleep)


def test_a_delayed_message_wakes_when_it_is_promoted(part, notifications, redis_client):
    store = opened(part, sleeps=True)
    assert store.take("c", count=1) == []
    publish(part, delay=60)
    store.promote(limit=10)
    assert notifications.count() == 0
    redis_client.zadd(part.keys.due, dict.fromkeys(redis_client.zrange(part.keys.due, 0, -1), 1))
    store.promote(limit=10)
    assert notifications.count() == 1
    assert len(store.take("c", count=1)) == 1


def test_a_message_that_is_handed_back_and_a_queue_that_is_resumed_wake(part, notifications):
    store = opened(part, sleeps=True)
    publish(part)
    taken = store.take("c", count=1)
    assert store.take("d", count=1) == []
    assert store.settle("c", [Settlement(taken[0], HandBack())]) == []
    assert notifications.count() == 1
    actions.pause(part.name)
    assert store.take("d", count=1) == []
    actions.resume(part.name)
    assert notifications.count() == 1


def test_the_next_message_of_a_key_wakes(ordered, redis_client):
    store, notifications = opened(ordered, sleeps=True), Notifications(redis_client, ordered)
    publish(ordered)
    publish(ordered)
    (first,) = store.take("c", count=5)
    assert store.take("d", count=5) == []
    assert store.settle("c", [Settlement(first, HandBack())]) == []
    assert notifications.count() == 1
    (again,) = store.take("d", count=5)
    assert again.message.id == first.message.id


def test_what_is_closed_accepts_nothing(part, redis_client):
    store = opened(part)
    redis_client.hset(part.keys.control, "partitions", "closed")
    for options in ({}, {"delay": 5}, {"priority": 3}, {"unique": "u", "unique_for": 5}):
        with pytest.raises(QueueClosed, match="accepts no messages while its number of partitions is changed"):
            publish(part, **options)
    for written, shown in (("8", "8"), ("", "''")):
        redis_client.hset(part.keys.control, "partitions", written)
        with pytest.raises(QueueClosed, match=f"^Queue 'default' has {shown} partitions in Redis, and PARTITIONS is 4"):
            publish(part)
    assert sum(vars_of(store.depths())) == 0
    redis_client.hset(part.keys.control, "partitions", "4")
    publish(part)
    assert store.depths().ready == 1


def vars_of(depths):
    return [depths.ready, depths.parked, depths.pending, depths.delayed]
