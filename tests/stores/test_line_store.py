"""Limits on a real Redis: permits, windows, and what waits for them."""

import threading
import time
from contextlib import contextmanager

import pytest

from mq_django import queues
from mq_django.conf import get_config
from mq_django.core.limits import key_hash
from mq_django.core.messages import ACK, Bury, CancelResult, HandBack, LookupState, Retry
from mq_django.errors import AlreadyPublished
from mq_django.inspector.plans import limit_uses
from mq_django.stores.base import Settlement
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Session
from tests.purging import purge
from tests.stores.contracts.frozen import NOW_MS, freeze
from tests.waiting import wait_until


def publish(*keys, **options):
    return [queues["emails"].publish("sms", key, key=key, **options) for key in keys]


def data(deliveries):
    return [item.message.data for item in deliveries]


def ack(store, deliveries, consumer="c1", outcome=ACK):
    assert store.settle(consumer, [Settlement(item, outcome) for item in deliveries]) == []


def keys():
    return get_config().queue("emails").keys


def log(client, field="r"):
    text = (client.hget(keys().limits, field) or b"").decode()
    return [tuple(map(int, word.split(":"))) for word in text.split()]


@contextmanager
def reading(client, *stores):
    """Let consumers wait at Redis for a message each, and at the end wait until they have it; yield what they get."""
    before, got = client.info("clients")["blocked_clients"], []
    threads = [
        threading.Thread(target=lambda n=n, store=store: got.extend(store.fetch(f"c{n}", count=1, block_ms=200_000)))
        for n, store in enumerate(stores, 1)
    ]
    for thread in threads:
        thread.start()
    wait_until(lambda: client.info("clients")["blocked_clients"] == before + len(stores))
    yield got
    for thread in threads:
        thread.join()


def now_us(client):
    seconds, micros = client.time()
    return seconds * 1_000_000 + micros


def test_no_more_than_the_rate_is_taken_and_the_rest_waits_where_it_is(open_queue, redis_client):
    store = open_queue(RATE_LIMIT="3/m")
    publish("a", "b", "c", "d", "e")
    assert data(store.take("c1", count=10)) == ["a", "b", "c"]
    assert store.take("c1", count=10) == []
    assert 0 < store.rest() <= 5
    assert sum(count for _, count in log(redis_client)) == 3
    assert store.depths().ready == 2


def test_a_window_that_is_past_gives_its_grants_again(open_queue, redis_client, monkeypatch):
    freeze(monkeypatch)
    store = open_queue(RATE_LIMIT="3/m")
    publish("a", "b", "c", "d")
    now = NOW_MS * 1000
    redis_client.hset(keys().limits, "r", f"{now - 61_000_000}:2 {now - 57_000_000}:1")
    assert data(store.take("c1", count=10)) == ["a", "b"]
    before = time.monotonic()
    assert store.take("c1", count=10) == []
    assert 3 - (time.monotonic() - before) <= store.rest() + 0.01 <= 3.01


def test_a_log_that_strangers_or_a_clock_set_back_wrote_stops_nothing(open_queue, redis_client, subtests, forget):
    spaces = " " * 20_000
    for word in ("{digits}:{digits}", "{ahead}:1000", "{ahead}:{digits}", "0:{digits}", "{past}:3" + spaces):
        for field in ("r", "r:a"):
            with subtests.test(word=word, field=field):
                forget()
                store = open_queue(RATE_LIMIT={"queue": "3/m", "key": "3/m"})
                publish("a", "b")
                now = now_us(redis_client)
                text = word.format(digits="9" * 5000, ahead=now + 20_000_000, past=now - 1_000_000)
                redis_client.hset(keys().limits, field, text)
                assert data(store.take("c1", count=10)) == ["a", "b"]
                assert store.rest() == 0.0
                assert redis_client.hstrlen(keys().limits, field) < 1000


def test_eight_consumers_never_take_more_in_any_window(open_queue, redis_client):
    stores, seen = open_queue(8, RATE_LIMIT="10/s"), []
    queues["emails"].publish_many([("sms", n) for n in range(100)])

    def consume(number, store):
        for _ in range(20):
            seen.append(log(redis_client))
            ack(store, store.take(f"c{number}", count=5), f"c{number}")

    threads = [threading.Thread(target=consume, args=pair) for pair in enumerate(stores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen.append(log(redis_client))
    handled = 100 - stores[0].depths().ready
    assert handled >= 10
    grants = sorted(at for at, count in {grant for each in seen for grant in each} for _ in range(count))
    assert all(last - first > 1_000_000 for first, last in zip(grants, grants[10:], strict=False))


def test_a_retry_that_waits_in_a_line_keeps_the_time_of_its_publication(open_queue):
    store = open_queue(CONCURRENCY={"key": 1})
    publish("a")
    first = store.take("c1", count=1)
    ack(store, first, outcome=Retry())
    publish("a")
    second = store.take("c1", count=1)
    store.promote(limit=9)
    assert store.take("c1", count=9) == []
    ack(store, second)
    again = store.take("c1", count=9)
    assert [item.message.published_ms for item in again] == [first[0].message.published_ms]


def test_every_way_to_settle_gives_the_permit_back(open_queue, redis_client, subtests, forget):
    for outcome in (ACK, Retry(), HandBack(), Bury("no")):
        with subtests.test(outcome=outcome):
            forget()
            store = open_queue(CONCURRENCY={"queue": 1, "key": 1})
            publish("a", "b")
            held = store.take("c1", count=10)
            assert len(held) == 1
            ack(store, held, outcome=outcome)
            assert len(store.take("c1", count=10)) == 1


def test_permits_that_come_back_together_wake_all_who_wait(open_queue, redis_client):
    stores = open_queue(4, CONCURRENCY=3)
    publish(*"abcdef")
    held = stores[0].take("c0", count=10)
    for number, store in enumerate(stores[1:], 1):
        assert store.take(f"c{number}", count=1) == []
    with reading(redis_client, *stores[1:]) as got:
        ack(stores[0], held, "c0")
    assert sorted(data(got)) == ["d", "e", "f"]


def test_a_new_message_reaches_who_waits_for_one(open_queue, redis_client):
    store = open_queue(RATE_LIMIT={"queue": "10/s", "key": "5/s"}, CONCURRENCY={"queue": 5, "key": 2})
    assert store.take("c1", count=10) == []
    with reading(redis_client, store) as got:
        publish("a")
    assert data(got) == ["a"]
    assert sum(count for _, count in log(redis_client)) == 1


def test_what_a_blocked_read_brings_over_the_limit_goes_back_uncharged(open_queue, redis_client):
    first, second = open_queue(2, CONCURRENCY=1)
    for number, store in ((1, first), (2, second)):
        assert store.take(f"c{number}", count=1) == []
    publish("a", "b")
    assert data(first.fetch("c1", count=1, block_ms=1000)) == ["a"]
    assert second.fetch("c2", count=1, block_ms=1000) == []
    assert first.depths().pending == 1
    assert first.depths().ready == 1


def test_over_the_limit_of_its_key_a_message_is_parked_once_and_others_go_on(open_queue, redis_client):
    store = open_queue(CONCURRENCY={"key": 1})
    ids = publish("a", "a", "a", "b", "c")
    held = store.take("c1", count=10)
    assert data(held) == ["a", "b", "c"]
    assert store.depths().parked == 2
    assert queues["emails"].find(ids[1]).state is LookupState.PARKED
    assert queues["emails"].find(ids[1]).message.attempt == 1
    redis_client.config_resetstat()
    for _ in range(3):
        assert store.take("c1", count=10) == []
    assert "cmdstat_zadd" not in redis_client.info("commandstats")


def test_parked_messages_come_back_one_by_one_in_their_order_with_their_attempt(open_queue, redis_client):
    store = open_queue(CONCURRENCY={"key": 1})
    ids = publish(*"aaaa")
    order = []
    for _ in range(4):
        (held,) = store.take("c1", count=10)
        assert held.message.attempt == 1
        order.append(held.message.id)
        ack(store, [held])
    assert order == ids
    assert store.take("c1", count=10) == []
    assert not redis_client.exists(
        *(getattr(keys(), kind) for kind in ("parked", "next_checks", "permits", "waiting", "unique"))
    )


def test_a_released_permit_of_a_key_reaches_a_blocked_reader(open_queue, redis_client):
    first, second = open_queue(2, CONCURRENCY={"key": 1})
    publish("a", "a")
    held = first.take("c2", count=10)
    assert second.take("c1", count=10) == []
    with reading(redis_client, second) as got:
        ack(first, held, "c2")
    assert data(got) == ["a"]


def test_a_rate_of_each_key_holds_for_each_and_parks_the_rest(open_queue, redis_client):
    store = open_queue(RATE_LIMIT={"key": "2/m"})
    publish("a", "a", "a", "b", "b", "b", "c")
    assert data(store.take("c1", count=10)) == ["a", "a", "b", "b", "c"]
    assert store.depths().parked == 2
    now = now_us(redis_client)
    redis_client.hset(keys().limits, "r:a", f"{now - 61_000_000}:2")
    redis_client.zadd(keys().next_checks, {key_hash("a"): 1})
    assert data(store.take("c1", count=10)) == ["a"]
    assert store.take("c1", count=10) == []


def test_the_turn_of_a_parked_key_is_met_without_a_new_message(open_queue, redis_client):
    store = open_queue(RATE_LIMIT={"key": "5/s"})
    publish(*["a"] * 6)
    began, got = time.monotonic(), []
    while len(got) < 6:
        if rest := store.rest():
            threading.Event().wait(rest)
            continue
        found = store.take("c1", count=10) or store.fetch("c1", count=10, block_ms=60_000)
        got += [(time.monotonic() - began, item) for item in found]
        ack(store, found)
    # A read would block for a minute.
    assert 1.0 <= got[-1][0] < 50


def test_a_parked_message_can_be_cancelled_and_purged(open_queue, redis_client):
    store = open_queue(CONCURRENCY={"key": 1})
    ids = publish("a", "a", "a")
    held = store.take("c1", count=10)
    assert queues["emails"].cancel(ids[1]) is CancelResult.CANCELLED
    assert store.depths().parked == 1
    purge(store.config)
    ack(store, held)
    assert store.take("c1", count=10) == []
    assert not redis_client.exists(keys().parked, keys().next_checks, keys().waiting, keys().unique)


def test_logs_of_many_keys_do_not_pile_up(open_queue, redis_client):
    store = open_queue(RATE_LIMIT={"key": "5/s"})
    for at in range(0, 3000, 500):
        past = [f"key-{n}" for n in range(at, at + 500)]
        redis_client.hset(keys().limits, mapping=dict.fromkeys((f"r:{key}" for key in past), "1:5"))
        redis_client.zadd(keys().rates, dict.fromkeys(past, 1))
    for _ in range(2):
        # Those that come in a batch take more along than they bring, and so does every look at an idle queue.
        publish(*(f"new-{n}" for n in range(300)))
        ack(store, store.take("c1", count=300))
    assert redis_client.zcard(keys().rates) <= 3000 + 600 - 2 * 600
    for _ in range(10):
        assert store.take("c1", count=10) == []
    assert redis_client.zcount(keys().rates, "-inf", 1) == 0
    # The other field tells that a consumer waits.
    assert redis_client.hlen(keys().limits) == redis_client.zcard(keys().rates) + 1


def test_what_was_parked_is_ready_again_when_the_limit_is_taken_away(open_queue, redis_client):
    store = open_queue(CONCURRENCY={"key": 1})
    publish("a", "a", "a")
    ack(store, store.take("c1", count=1))
    held = store.take("c1", count=10)
    free = open_queue()
    assert free.depths().parked == 1
    promoted = free.promote(limit=500)
    assert promoted.moved == 1
    assert data(free.take("c2", count=10)) == ["a"]
    assert not redis_client.exists(keys().parked, keys().waiting, keys().unique)
    ack(free, held)


def test_members_that_other_programs_write_stop_nothing(open_queue, redis_client, subtests, forget):
    for kind in ("next_checks", "tags", "permits", "parked"):
        for options in ({"ORDERED": True}, {"FAIR": True}, {"CONCURRENCY": {"key": 1}}):
            with subtests.test(kind=kind, options=options):
                forget()
                store = open_queue(**options)
                strange = {
                    b"\xff": "-inf",
                    "a b": 0,
                    "nan": 1,
                    "-5": 2,
                    "1e3": 3,
                    "9" * 40: 4,
                    "": 5,
                    "p:9": "inf",
                    "7": "inf",
                }
                redis_client.zadd(getattr(keys(), kind), strange)
                for number in range(6):
                    queues["emails"].publish("sms", number, key="ab"[number % 2])
                assert limit_uses([store.config], [Session(get_client("consume"))])[0].now_ms
                seen = []
                for _ in range(30):
                    held = store.take("c1", count=10)
                    seen += data(held)
                    ack(store, held)
                assert sorted(seen) == list(range(6))


def test_a_count_of_places_that_another_program_resets_loses_no_message(open_queue, redis_client, subtests, forget):
    for count in ("0", "x", "", None):
        with subtests.test(count=count):
            forget()
            store = open_queue(CONCURRENCY={"key": 1})
            ids = publish(*"aaaa")
            held = store.take("c1", count=10)
            redis_client.hdel(keys().control, "line-places")
            if count is not None:
                redis_client.hset(keys().control, "line-places", count)
            ids += publish(*"aaaa")
            order = []
            while held:
                order += [item.message.id for item in held]
                ack(store, held)
                held = store.take("c1", count=10)
            assert order == ids


def test_a_body_that_another_program_has_broken_is_delivered_to_be_buried(open_queue, redis_client, subtests, forget):
    for body in (b"", b"4:type", b"{broken", b"\xff", b"9" * 100):
        with subtests.test(body=body):
            forget()
            store = open_queue(CONCURRENCY={"key": 1})
            publish("a", "a", "a")
            held = store.take("c1", count=10)
            (first, _) = redis_client.zrange(keys().parked, 0, -1)
            redis_client.hset(keys().waiting, first, body)
            ack(store, held)
            (broken,) = store.take("c1", count=1)
            assert broken.fields[2:] == [b"message", body]
            ack(store, [broken], outcome=Bury("undecodable"))
            assert data(wait_until(lambda store=store: store.take("c1", count=10))) == ["a"]


def test_deliveries_that_came_unseen_go_back_and_then_need_a_permit_of_their_key(open_queue, redis_client):
    store = open_queue(CONCURRENCY={"key": 1})
    publish("a", "a")
    redis_client.xreadgroup("mq", "c1", {keys().ready: ">"}, count=10)
    assert store.admit("c1", store.held_by("c1", limit=10)) == []
    held = store.take("c1", count=10)
    assert data(held) == ["a"]
    assert data(store.admit("c1", store.held_by("c1", limit=10))) == ["a"]
    assert store.depths().parked == 1


def test_a_message_with_a_key_that_is_handled_releases_its_unique_key(open_queue, redis_client):
    store = open_queue(ORDERED=True)
    publish("a", unique="once", unique_for="handled")
    with pytest.raises(AlreadyPublished):
        publish("a", unique="once", unique_for="handled")
    ack(store, store.take("c1", count=1))
    assert redis_client.exists(keys().claims) == 0
    publish("a", unique="once", unique_for="handled")
