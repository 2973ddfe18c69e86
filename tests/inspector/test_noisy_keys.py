"""The keys with the most messages of an hour: what a fetch notes, in how little space, and what is shown of it."""

import pytest

from mq_django import queues
from mq_django.conf import get_config
from mq_django.core import clock
from mq_django.core.limits import key_hash
from mq_django.core.outcomes import ACK
from mq_django.inspector.key_lines import noisy_command, noisy_keys
from mq_django.inspector.plans import limit_use
from mq_django.stores.base import Settlement
from mq_django.transport.connections import open_wire
from tests import seeding


@pytest.fixture(autouse=True)
def one_hour(monkeypatch):
    """Let the hour not end during a test."""
    now = clock.now_ms()
    monkeypatch.setattr(clock, "now_ms", lambda: now)
    return now // 3_600_000


@pytest.fixture
def opened(mq_settings):
    def open_with(**options):
        mq_settings(QUEUES={"emails": options})
        return seeding.opened("emails")

    return open_with


LINES = pytest.mark.parametrize(
    "options", [{"ORDERED": True}, {"FAIR": True}, {"CONCURRENCY": {"key": 5}}, {"RATE_LIMIT": {"key": "9000/s"}}]
)


def handle(store, keys):
    """Handle messages of these keys, one by one."""
    for key in keys:
        queues["emails"].publish("sms", 1, key=key, on_commit=False)
        for item in store.take("c1", count=1):
            assert store.settle("c1", [Settlement(item, ACK)]) == []


def shares():
    config = get_config().queue("emails")
    (reply,) = open_wire("inspect").trip([noisy_command(config)])
    return {found.key: round(found.share, 2) for found in noisy_keys(reply)}


@LINES
def test_the_shares_of_keys_are_noted(opened, options, one_hour, redis_client):
    store = opened(**options)
    handle(store, [*"aaab", None] * 4)
    assert shares() == {"a": 0.6, "b": 0.2}
    key = store.keys.noisy(one_hour)
    assert 7100 < redis_client.ttl(key) <= 7200
    assert redis_client.hgetall(key) == {
        b"n": b"20",
        b"f": b"20",
        b"%d" % key_hash("a"): b"12 0 a",
        b"%d" % key_hash("b"): b"4 0 b",
    }


def test_one_message_stands_for_its_fetch(opened, one_hour, redis_client):
    store = opened(CONCURRENCY={"key": 50})
    for _ in range(20):
        queues["emails"].publish("sms", 1, key="a", on_commit=False)
    assert len(store.take("c1", count=20)) == 20
    assert redis_client.hgetall(store.keys.noisy(one_hour)) == {
        b"n": b"20",
        b"f": b"1",
        b"%d" % key_hash("a"): b"20 0 a",
    }
    # A share by one fetch says nothing.
    assert shares() == {}


def test_a_queue_without_lines_notes_nothing(opened, one_hour, redis_client, subtests):
    for options in [{}, {"CONCURRENCY": 5}, {"RATE_LIMIT": "9000/s"}]:
        with subtests.test(options=options):
            store = opened(**options)
            handle(store, "aaa")
            assert not redis_client.exists(store.keys.noisy(one_hour))
            assert shares() == {}


def test_at_most_a_hundred_keys_are_noted_and_the_noisy_ones_stay(opened, one_hour, redis_client):
    store = opened(CONCURRENCY={"key": 5})
    for n in range(150):
        handle(store, ["a", f"k{n}", "a"])
    assert redis_client.hlen(store.keys.noisy(one_hour)) == 103
    assert shares() == {"a": 0.67}


def test_a_new_key_inherits_the_lowest_count(opened, one_hour, redis_client):
    store = opened(CONCURRENCY={"key": 5})
    key = store.keys.noisy(one_hour)
    fields = {str(key_hash(f"k{n}")): f"{n + 5} 0 k{n}" for n in range(100)}
    redis_client.hset(key, mapping={"n": 1000, "f": 1000, **fields})
    handle(store, ["new"])
    assert redis_client.hget(key, str(key_hash("new"))) == b"6 5 new"
    assert not redis_client.hexists(key, str(key_hash("k0")))
    assert redis_client.hlen(key) == 103


def test_the_keys_with_the_lowest_count_go_first_one_by_one(opened, one_hour, redis_client):
    """Exactly those, though not each fetch scans all: a key whose count has grown since stays."""
    store = opened(CONCURRENCY={"key": 5})
    key = store.keys.noisy(one_hour)
    low = [str(key_hash(f"k{n}")).encode() for n in range(40)]
    fields = {str(key_hash(f"k{n}")): f"{1 if n < 40 else 7} 0 k{n}" for n in range(100)}
    redis_client.hset(key, mapping={"n": 1000, "f": 1000, **fields})
    handle(store, ["new0"])
    listed = redis_client.hget(key, "l").split()[1:]
    assert 0 < len(listed) < 20
    assert set(listed) < set(low)
    handle(store, ["k5", *(f"new{n}" for n in range(1, 39))])
    left = redis_client.hgetall(key)
    assert [name for name in low if name in left] == [low[5]]
    assert left[low[5]] == b"2 0 k5"
    assert sum(int(value.split()[0]) for name, value in left.items() if len(name) > 1) == 40 + 60 * 7 + 40


def test_a_long_key_is_shortened(opened, one_hour, redis_client):
    store = opened(ORDERED=True)
    redis_client.xadd(store.keys.ready, {"type": "sms", "data": "1", "partitionkey": "x" * 5000})
    assert len(store.take("c1", count=1)) == 1
    assert redis_client.hget(store.keys.noisy(one_hour), str(key_hash("x" * 5000))) == b"1 0 " + b"x" * 255


def test_what_other_programs_write_there_does_no_harm(opened, one_hour, redis_client, subtests):
    for put in [
        lambda client, key: client.set(key, "mine"),
        lambda client, key: client.hset(key, "n", "x"),
        lambda client, key: client.hset(key, str(key_hash("a")), "nonsense"),
        lambda client, key: client.hset(key, mapping={f"f{n}": "x" for n in range(150)}),
        lambda client, key: client.hset(key, mapping={f"f{n}": "x" for n in range(500)}),
        lambda client, key: client.hset(key, mapping={"l": "x y", **{f"f{n}": "x" for n in range(120)}}),
        lambda client, key: client.hset(key, mapping={"l": "5 " * 9000, **{f"f{n}": "x" for n in range(120)}}),
        lambda client, key: client.hset(key, mapping={"n": 2**62, str(key_hash("a")): f"{2**62} {2**62} \x1b"}),
    ]:
        with subtests.test(put=put):
            store = opened(ORDERED=True)
            put(redis_client, store.keys.noisy(one_hour))
            handle(store, "aab")
            assert store.depths().ready == 0
            if redis_client.type(store.keys.noisy(one_hour)) == b"hash":
                assert all(0 <= share <= 1 for share in shares().values())
            redis_client.delete(store.keys.noisy(one_hour))


def test_the_use_of_limits_has_them(opened):
    store = opened(ORDERED=True)
    handle(store, "aab" * 7)
    use = limit_use(store.config, open_wire("inspect"))
    assert [(found.key, found.hash) for found in use.noisiest] == [("a", key_hash("a")), ("b", key_hash("b"))]


def test_limits_can_be_seen_while_the_sketch_is_broken(opened, one_hour, redis_client):
    store = opened(ORDERED=True)
    redis_client.set(store.keys.noisy(one_hour), "mine")
    assert limit_use(store.config, open_wire("inspect")).noisiest == ()
