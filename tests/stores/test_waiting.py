import threading
from concurrent.futures import ThreadPoolExecutor

from mq_django.core.messages import CancelResult, LookupState, Retry, SetAside
from mq_django.stores.base import Settlement
from tests import places
from tests.stores.acts import make_due, take_all


def test_what_is_due_becomes_ready_in_the_order_of_its_due_times(emails, keys, store, redis_client):
    now = places.now_ms(redis_client)
    ids = [emails.publish("remind", n, delay=60) for n in range(3)]
    redis_client.zadd(keys.due, {ids[0]: now - 10, ids[1]: now - 30, ids[2]: now - 20})
    promoted = store.promote(limit=500)
    assert (promoted.moved, promoted.next_us, promoted.paused, promoted.unhandled) == (3, None, False, 0)
    assert [message["id"] for message in places.ready(redis_client, keys)] == [ids[1], ids[2], ids[0]]
    assert not redis_client.exists(keys.due, keys.waiting)


def test_a_promoted_message_is_what_was_published(emails, keys, store, redis_client):
    message_id = emails.publish("remind", {"a": [], "n": 2**60}, delay=60, key="user:7", headers={"source": "shop"})
    make_due(redis_client, keys, message_id)
    store.promote(limit=500)
    (taken,) = take_all(store)
    message = taken.message
    assert (message.id, message.name, message.data, message.key) == (
        message_id,
        "remind",
        {"a": [], "n": 2**60},
        "user:7",
    )
    assert (dict(message.headers), message.attempt) == ({"source": "shop"}, 1)
    assert abs(message.published_ms - places.now_ms(redis_client)) < 60_000


def test_what_one_call_makes_ready_is_bounded_in_bytes(keys, store, redis_client):
    """A megabyte takes 10 ms, in which nobody else is served."""
    body = '{"type":"remind","data":"' + "x" * 2**20 + '"}'
    for number in range(10):
        redis_client.hset(keys.waiting, f"m{number}", body)
        redis_client.zadd(keys.due, {f"m{number}": 1})
        redis_client.hset(keys.waiting, f"u{number}", body)
        redis_client.zadd(keys.unhandled, {f"u{number}": 1})
    assert [store.promote(limit=500).moved for _ in range(5)] == [3, 3, 3, 1, 0]
    assert [store.release_unhandled(None, limit=500) for _ in range(5)] == [3, 3, 3, 1, 0]
    # One that is larger than that is made ready all the same.
    redis_client.hset(keys.waiting, "large", body[:-2] + "x" * 2**22 + '"}')
    redis_client.zadd(keys.due, {"large": 1})
    assert store.promote(limit=500).moved == 1


def test_what_one_call_makes_ready_is_bounded_in_time(keys, store, redis_client):
    """So many take every machine several times as long, also small ones."""
    names = [f"m{number}" for number in range(5000)]
    redis_client.hset(keys.waiting, mapping=dict.fromkeys(names, '{"type":"remind","data":1}'))
    redis_client.zadd(keys.due, dict.fromkeys(names, 1))
    moved = store.promote(limit=5000).moved
    assert 0 < moved < 5000
    assert redis_client.xlen(keys.ready) == moved
    assert redis_client.zcard(keys.due) == redis_client.hlen(keys.waiting) == 5000 - moved


def test_an_earlier_due_time_is_told_to_whoever_sleeps_and_a_later_one_is_not(emails, keys, redis_client):
    with redis_client.pubsub() as heard:
        heard.subscribe(keys.wake)
        assert heard.get_message(timeout=5)["type"] == "subscribe"
        first = emails.publish("remind", 1, delay=60)
        told = heard.get_message(timeout=5)["data"]
        assert told == b"due %d" % redis_client.zscore(keys.due, first)
        emails.publish("remind", 2, delay=120)
        emails.publish("remind", 3, delay=30)
        assert int(heard.get_message(timeout=5)["data"].split()[1]) < int(told.split()[1])
        emails.reschedule(first, delay=10)
        assert heard.get_message(timeout=5) is not None
        assert heard.get_message(timeout=0.01) is None


def test_no_place_to_wait_costs_a_message_whose_id_another_has(emails, keys, store, redis_client):
    for delay in (60, 60, None, None):
        emails.publish("remind", f"{delay}", delay=delay, message_id="same")
    for priority in (0, 5, 5, -5):
        emails.publish("remind", priority, priority=priority, message_id="same")
    first, second = store.take("c1", count=2)
    assert store.settle("c1", [Settlement(first, Retry(), 60_000), Settlement(second, SetAside())]) == []
    assert len(places.delayed(redis_client, keys)) == 3
    assert emails.find("same").state is LookupState.DELAYED
    assert emails.reschedule("same", delay=1)
    make_due(redis_client, keys, *redis_client.zrange(keys.due, 0, -1))
    assert store.promote(limit=10).moved == 3
    assert store.release_unhandled(["remind"], limit=10) == 1
    messages = [item.message for item in take_all(store)]
    assert {message.id for message in messages} == {"same"}
    assert sorted(str(message.data) for message in messages) == sorted(
        ["60", "60", "None", "None", "0", "5", "5", "-5"]
    )
    assert not redis_client.exists(keys.due, keys.waiting, keys.priority, keys.unhandled)


def test_a_body_that_is_no_message_does_not_stop_the_promotion_of_others(emails, keys, store, redis_client):
    redis_client.hset(keys.waiting, mapping={"a1": b"\xff" * 10, "a2": "[" * 100_000, "a3": ""})
    redis_client.zadd(keys.due, {"a1": 1, "a2": 2, "a3": 3})
    make_due(redis_client, keys, emails.publish("remind", 4, delay=60))
    assert store.promote(limit=500).moved == 4
    assert redis_client.xlen(keys.ready) == 4


def test_a_message_is_either_cancelled_or_promoted_however_they_race(emails, keys, store, redis_client):
    ids = emails.publish_many([("remind", n) for n in range(400)], delay=0)
    start = threading.Barrier(3)

    def cancel(some):
        start.wait()
        return {message_id for message_id in some if emails.cancel(message_id)}

    def promote():
        start.wait()
        while store.promote(limit=7).moved:
            pass

    with ThreadPoolExecutor(3) as pool:
        promoting = pool.submit(promote)
        # From the end, so that the two meet.
        cancelled = set().union(*pool.map(cancel, [ids[::-2], ids[-2::-2]]))
        promoting.result()
    promoted = [message["id"] for message in places.ready(redis_client, keys)]
    assert sorted([*cancelled, *promoted]) == sorted(ids)
    assert not redis_client.exists(keys.due, keys.waiting)


def test_a_due_time_is_never_before_the_delay_has_passed_by_the_server_s_clock(
    emails, keys, redis_client, subtests, forget
):
    for delay in (0.0001, 0.001, 0.0123456, 1.5, 60):
        with subtests.test(delay=delay):
            forget()
            for _ in range(20):
                seconds, micros = redis_client.time()
                message_id = emails.publish("remind", 1, delay=delay)
                due_us = redis_client.zscore(keys.due, message_id) * 1000
                assert due_us >= seconds * 1_000_000 + micros + delay * 1_000_000 - 0.001


def test_an_unhandled_message_can_be_found_and_cancelled(emails, keys, store, redis_client):
    redis_client.zadd(keys.unhandled, {"a1": 7})
    redis_client.hset(keys.waiting, "a1", '{"type":"remind","data":1}')
    assert emails.find("a1").state is LookupState.UNHANDLED
    assert emails.cancel("a1") is CancelResult.CANCELLED
    assert not redis_client.exists(keys.unhandled, keys.waiting)
