"""Priorities that age: what a step is worth, to the millisecond by the clock of Redis, and what becomes of settings."""

import random

import pytest

from mq_django import queues
from mq_django.core.messages import ACK, HandBack
from mq_django.inspector.message_lists import messages
from mq_django.inspector.readers import open_reader
from mq_django.stores import open_store
from mq_django.stores.base import Settlement
from mq_django.transport import scripts
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled

pytestmark = pytest.mark.single_server(why="the clock of the scripts is in a key of its own")

#: When each test begins, ms since 1970. A step is worth a second.
START = 2_000_000_000_000
STEP = 1000


@pytest.fixture
def at(monkeypatch, mq_settings, redis_client):
    """Let the clock of Redis stand at a time in ms after the start."""
    monkeypatch.setattr(scripts, "_prelude", "")
    scripts.use_moved_clock()
    set_at = lambda ms: redis_client.set(scripts.MOVED_CLOCK, f"={START + ms}")  # noqa: E731
    set_at(0)
    yield set_at
    redis_client.delete(scripts.MOVED_CLOCK)
    monkeypatch.undo()
    scripts.load.cache_clear()


@pytest.fixture
def configure(mq_settings):
    """Configure the queue, and return its store as a consumer opens it."""

    def configure(**options):
        mq_settings(QUEUES={"emails": options})
        store = open_store(queues["emails"].config, Pooled(get_client("consume")))
        store.create_groups()
        return store

    return configure


@pytest.fixture
def store(at, configure):
    return configure(PRIORITY_AGEING=STEP / 1000)


def publish(name, priority=0, **options):
    return queues["emails"].publish("note", name, priority=priority, **options)


def taken(store, count=1):
    """Take and ack messages, and return their data."""
    found = store.take("c1", count=count)
    assert store.settle("c1", [Settlement(item, ACK) for item in found]) == []
    return [item.message.data for item in found]


def order(store, count=1):
    """Take and ack everything, some at a time."""
    found = []
    while more := taken(store, count):
        found += more
    return found


@pytest.mark.parametrize("low", [-7, 0, 9])
def test_beside_a_steady_stream_a_lower_one_is_taken_after_its_steps_and_not_before(at, store, low):
    high = 10
    at(0)
    publish("low", low)
    first = {}
    # Ten new ones each step, of which a consumer takes nine.
    for ms in range(0, 25 * STEP, STEP // 10):
        at(ms)
        publish(ms, high)
        if ms % STEP:
            (first[ms],) = taken(store)
    came = next(ms for ms, name in first.items() if name == "low")
    # When it was taken, the next of the stream had come as many steps after it as their priorities differ, or more.
    behind = next(name for ms, name in first.items() if ms > came)
    before = [name for ms, name in first.items() if ms < came]
    assert behind >= (high - low) * STEP >= max(before)
    assert before == sorted(before)


def test_a_step_is_worth_its_time_to_the_millisecond(at, store, subtests):
    begin = 0
    for level, other in ((0, 1), (-100, 100), (-1, 0), (5, 7), (99, 100)):
        for late in (-1, 1):
            with subtests.test(level=level, other=other, late=late):
                begin += 1_000_000
                at(begin)
                publish("others wait for this one", 100)
                publish("older", level)
                at(begin + (other - level) * STEP + late)
                publish("newer", other)
                assert order(store)[1:] == (["newer", "older"] if late < 0 else ["older", "newer"])


@pytest.mark.parametrize("count", [1, 7, 100])
@pytest.mark.parametrize("seed", range(2))
def test_the_order_of_batches_is_that_of_single_messages(at, store, count, seed):
    rand = random.Random(seed)
    given = []
    for number in range(60):
        # No two are of one time, whatever their levels.
        at(number * 701)
        level = rand.choice([-3, -1, 0, 0, 0, 1, 4])
        publish(number, level)
        given.append((number * 701 - level * STEP, number))
    at(100_000)
    assert order(store, count) == [number for _, number in sorted(given)]


def test_those_of_one_call_keep_their_order(at, store):
    publish("first")
    queues["emails"].publish_many([("note", n) for n in range(50)], priority=5)
    queues["emails"].publish_many([("note", n) for n in range(50, 100)], priority=5)
    assert order(store, 7) == [*range(100), "first"]


def test_delayed_ones_wait_from_when_they_are_due(at, store):
    publish("delayed", 5, delay=60)
    for ms, name in ((55_000, "older"), (57_000, "newer")):
        at(ms)
        publish(name)
    at(61_000)
    assert store.promote(limit=10).moved == 1
    assert order(store) == ["older", "delayed", "newer"]


def test_what_is_handed_back_goes_first(at, store):
    publish("low", -100)
    (held,) = store.take("c1", count=1)
    publish("high", 100)
    store.settle("c1", [Settlement(held, HandBack())])
    assert order(store) == ["low", "high"]


def test_one_that_woke_a_reader_keeps_the_time_that_it_has_waited(at, store, redis_client):
    publish("plain")
    publish("low", -1)
    publish("lower", -2)
    assert taken(store) == ["plain"]
    at(1500)
    # As a reader does that was woken: what is left is for the next one, and nobody waits.
    store.fetch("c1", count=1, block_ms=1)
    assert redis_client.xlen(queues["emails"].config.keys.ready) == 1
    at(1600)
    publish("newer")
    assert order(store) == ["low", "newer", "lower"]


def test_the_first_priority_of_a_queue_ages_though_no_consumer_was_there(at, mq_settings, configure):
    configure(PRIORITY_AGEING=1)
    publish("plain")
    publish("low", -1)
    at(5000)
    publish("newer")
    publish("high", 1)
    assert order(configure(PRIORITY_AGEING=1)) == ["plain", "low", "high", "newer"]


def test_claims_and_limits_by_key_age_too(at, configure):
    store = configure(PRIORITY_AGEING=1, CONCURRENCY={"key": 5}, RATE_LIMIT="1000/s")
    publish("first", 1, key="a")
    publish("low", -1, key="a", unique="u", unique_for="handled")
    at(5000)
    publish("newer", key="b")
    publish("high", 1, key="b")
    assert order(store, 100) == ["first", "low", "high", "newer"]


def test_the_option_can_be_set_and_removed_while_messages_wait(at, configure, redis_client):
    keys = queues["emails"].config.keys
    strict = configure()
    publish("plain")
    for level in (-2, 2, -2, 2):
        publish(f"strict {level}", level)
    at(1000)
    # Those wait from now on.
    aged = configure(PRIORITY_AGEING=1)
    assert taken(strict) == ["strict 2"]
    assert taken(aged) == ["strict 2"]
    at(10_000)
    publish("plain again")
    publish("high", 3)
    publish("low", -9)
    assert taken(aged, 2) == ["plain", "high"]

    strict = configure()
    assert taken(strict) == ["plain again"]
    publish("strict 1", 1)
    publish("strict -1", -1)
    assert order(strict) == ["strict 1", "strict -2", "strict -2", "low", "strict -1"]
    publish("plain")
    publish("low", -1)
    publish("high", 1)
    assert order(strict) == ["high", "plain", "low"]
    assert not redis_client.hexists(keys.control, "ageing")


def test_another_value_counts_for_what_comes_then(at, configure):
    slow = configure(PRIORITY_AGEING=10)
    publish("plain")
    publish("slow", -1)
    fast = configure(PRIORITY_AGEING=1)
    assert (taken(slow), taken(fast)) == (["plain"], ["slow"])
    publish("plain")
    publish("low", -1)
    at(1500)
    publish("newer")
    assert order(fast) == ["plain", "low", "newer"]


def test_where_a_message_stands_is_said_by_its_age(at, store):
    publish("first")
    ids = {"low": publish("low", -1), "lowest": publish("lowest", -60)}
    at(5000)
    ids |= {"newer": publish("newer"), "high": publish("high", 10), "newest": publish("newest")}
    assert order_by_places(ids) == ["high", "low", "newer", "newest", "lowest"]
    assert order(store) == ["high", "first", "low", "newer", "newest", "lowest"]


def order_by_places(ids):
    """Return the names by how many messages are said to be before each."""
    reader, rows = open_reader("emails"), messages("emails", "ready", limit=50).rows
    found = {view.id: reader.before(view.ref) for view in rows}
    return sorted(ids, key=lambda name: found[ids[name]])
