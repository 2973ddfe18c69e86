"""The default store on a real Redis: each transition, its fence, and what strangers leave in its keys."""

import pytest
from redis.exceptions import ResponseError

from mq_django.conf import get_config
from mq_django.core.keys import FRONT, GROUP, READY
from mq_django.core.messages import Ack, Bury, Delivery, Expire, HandBack, Retry, SetAside, Undecodable
from mq_django.stores import open_store
from mq_django.stores.base import Settlement
from mq_django.stores.stream_store import FULL
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Session
from tests.stores.cases import outgoing

OUTCOMES = [Ack(), Retry(), HandBack(), Bury(), SetAside(), Expire()]


@pytest.fixture
def store(mq_settings):
    session = Session(get_client("consume"))
    yield open_store(get_config().queue("default"), session)
    session.release()


def publish(store, *datas, **attributes):
    return store.publish([outgoing("n", data, **attributes) for data in datas])


def take(store, consumer, count=100):
    """Take what is there; the first look at a queue makes its group."""
    return store.take(consumer, count=count) or store.take(consumer, count=count)


def settle(store, consumer, deliveries, outcome, **more):
    return store.settle(consumer, [Settlement(delivery, outcome, **more) for delivery in deliveries])


def where(store):
    depths = store.depths()
    return {name: count for name, count in depths._asdict().items() if count}


def test_a_blocked_read_makes_the_group_it_misses(store):
    publish(store, 1)
    assert store.fetch("a", count=1, block_ms=1) == []
    assert [d.message.data for d in store.fetch("a", count=1, block_ms=1)] == [1]


def test_a_batch_of_every_outcome_is_one_round_trip(store, monkeypatch):
    publish(store, *range(6))
    taken = take(store, "a")
    pipelines, pipeline = [], Session.pipeline
    monkeypatch.setattr(
        Session, "pipeline", lambda session, commands: pipelines.append(commands) or pipeline(session, commands)
    )
    store.settle("a", [Settlement(d, outcome) for d, outcome in zip(taken, OUTCOMES, strict=True)])
    assert len(pipelines) == 1
    assert len(pipelines[0]) == len(OUTCOMES)


def test_a_strangers_message_keeps_its_id_and_time_when_handed_back(store, redis_client):
    for fields in (
        {"type": "n", "data": "1"},
        {"type": "n", "data": "1", "id": "mine"},
        {"message": '{"type":"n","data":1}'},
        {"message": '{"type":"n","data":1,"id":"inside"}'},
        {"id": "beside", "message": '{"type":"n","data":1,"time":"2026-01-01T00:00:00Z"}'},
    ):
        redis_client.xadd(store.keys.ready, fields)
        (first,) = take(store, "a")
        settle(store, "a", [first], HandBack())
        (again,) = store.take("b", count=1)
        assert again.message == first.message, fields


def test_another_group_of_the_stream_does_not_decide_where_a_message_goes_back(store, redis_client):
    publish(store, 1)
    taken = take(store, "a")
    redis_client.xgroup_create(store.keys.ready, "audit", id="0")
    settle(store, "a", taken, HandBack())
    assert store.fetch("b", count=1, block_ms=1)


@pytest.mark.parametrize(("lost", "left"), [("stream", [1]), ("group", [1, 2])])
def test_a_message_goes_back_to_a_stream_that_is_not_there_or_has_no_group(store, redis_client, lost, left):
    publish(store, 1, 2)
    settle(store, "a", take(store, "a", count=1), HandBack())
    (held,) = store.take("a", count=1)
    assert held.stream == FRONT
    if lost == "stream":
        redis_client.delete(store.keys.ready)
    else:
        redis_client.xgroup_destroy(store.keys.ready, GROUP)
    assert settle(store, "a", [held], HandBack()) == []
    # The group is made anew when a fetch finds that it is missing.
    assert sorted(d.message.data for _ in range(2) for d in take(store, "b")) == left


def test_a_stream_for_what_goes_first_that_a_stranger_made_gets_its_group(store, redis_client):
    redis_client.xadd(store.keys.front, {"type": "n", "data": "1"})
    assert [d.message.data for d in take(store, "a")] == [1]


def test_held_by_tells_both_homes_without_touching_anything(store, redis_client):
    ids = publish(store, 1, 2, 3)
    settle(store, "a", take(store, "a", count=1), HandBack())
    store.take("b", count=2)
    before = redis_client.xpending_range(store.keys.ready, GROUP, "-", "+", 10)
    held = store.held_by("b", limit=10)
    assert sorted(d.message.id for d in held) == sorted(ids[:2])
    assert {d.stream for d in held} == {READY, FRONT}
    after = redis_client.xpending_range(store.keys.ready, GROUP, "-", "+", 10)
    assert [row["times_delivered"] for row in before] == [row["times_delivered"] for row in after]
    assert len(store.held_by("b", limit=1)) == 1


def test_held_by_reads_more_than_one_trip_holds(store):
    publish(store, *range(250))
    take(store, "a", count=250)
    assert [d.message.data for d in store.held_by("a", limit=1000)] == list(range(250))


def test_an_entry_deleted_behind_our_back_still_leaves_the_pending_list(store, redis_client):
    publish(store, 1, 2)
    redis_client.xdel(store.keys.ready, take(store, "a")[0].entry)
    held = store.held_by("a", limit=10)
    assert isinstance(held[0], Undecodable)
    assert held[0].fields == []
    assert isinstance(held[1], Delivery)
    assert settle(store, "a", held, Ack()) == []
    assert where(store) == {}


def test_settling_what_was_deleted_behind_our_back_leaves_nothing_pending(store, redis_client):
    for outcome in OUTCOMES:
        publish(store, 1)
        taken = take(store, "a")
        redis_client.xtrim(store.keys.ready, maxlen=0, approximate=False)
        assert settle(store, "a", taken, outcome) == [], outcome
        assert redis_client.xpending(store.keys.ready, GROUP)["pending"] == 0, outcome
        redis_client.delete(store.keys.ready, store.keys.front)


def test_a_buried_message_tells_why_and_what_it_was(store, redis_client):
    publish(store, {"a": 1}, headers={"deadreason": "x", "source": "y"})
    settle(store, "a", take(store, "a"), Bury("E: broke\ud800", "trace", reason="error"))
    ((_, fields),) = redis_client.xrange(store.keys.dead)
    assert fields[b"deadreason"] == b"error"
    assert fields[b"deaderror"] == b"E: broke?"
    assert fields[b"source"] == b"y"


def test_what_cannot_be_decoded_is_buried_with_its_bytes_cut_at_a_bound(store, redis_client):
    redis_client.xadd(store.keys.ready, {b"\xff": b"x" * 3_000_000})
    (item,) = take(store, "a")
    assert isinstance(item, Undecodable)
    settle(store, "a", [item], Bury(item.reason, reason="undecodable"))
    ((_, fields),) = redis_client.xrange(store.keys.dead)
    assert fields[b"deadraw"].startswith(b"\xff\nxxx")
    assert len(fields[b"deadraw"]) == 64 * 1024


def test_a_foreign_consumer_group_name_is_not_needed_to_read_depths(store, redis_client):
    redis_client.xadd(store.keys.ready, {"type": "n", "data": "1"})
    with pytest.raises(ResponseError):
        redis_client.xpending(store.keys.ready, GROUP)
    assert where(store) == {"ready": 1}


def test_in_a_queue_that_flows_what_goes_first_comes_at_most_a_batch_late(store):
    publish(store, *range(300))
    store.create_groups()
    first, *_ = held = take(store, "a", count=FULL)
    settle(store, "a", [first], HandBack())
    late = take(store, "a", count=FULL)
    again = take(store, "a", count=FULL)
    found = [item.message.data for item in (*held, *late, *again)]
    assert sorted(found) == [0, *range(3 * FULL - 1)]
    assert found.index(0, 1) <= 2 * FULL


def test_what_was_handed_back_while_a_queue_ran_dry_is_taken(store, redis_client):
    publish(store, *range(FULL + 1))
    store.create_groups()
    held = take(store, "a", count=FULL)
    # Undelivered messages stand in `ready`, so these go where only the script looks ...
    settle(store, "a", held, HandBack())
    # ... and then somebody else takes the last of `ready`.
    redis_client.xreadgroup(GROUP, "b", {store.keys.ready: ">"})
    assert len(take(store, "a", count=FULL)) == FULL


def test_a_queue_that_flows_notices_a_pause(store, redis_client):
    publish(store, *range(300))
    store.create_groups()
    take(store, "a", count=FULL)
    redis_client.hset(store.keys.control, "paused", "1")
    take(store, "a", count=FULL)
    assert take(store, "a", count=FULL) == []


def test_a_large_batch_is_fenced_message_by_message(store):
    publish(store, *range(60))
    mine, theirs = take(store, "a", count=50), take(store, "b", count=5)
    # The newest of what is held, backwards, and what is not held among them.
    batch = [*mine[:9:-1], *theirs]
    assert settle(store, "a", batch, Ack()) == [item.message.id for item in theirs]
    assert [item.message.data for item in store.held_by("a", limit=100)] == list(range(10))
    assert [item.message.data for item in store.held_by("b", limit=100)] == list(range(50, 55))
    assert where(store) == {"ready": 5, "pending": 15}
    assert settle(store, "a", [*mine, *theirs], Ack()) == [item.message.id for item in (*mine[10:], *theirs)]
