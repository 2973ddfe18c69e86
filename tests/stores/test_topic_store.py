import asyncio
import random
import re
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from importlib.resources import files

import pytest

from mq_django import queues, registry, topics
from mq_django.conf import get_config
from mq_django.core.messages import ACK, Bury, HandBack, Retry, SetAside
from mq_django.core.offsets import before
from mq_django.errors import ConfigurationError, InvalidOffset, UnknownGroup
from mq_django.stores.base import Settlement
from mq_django.stores.log import Log, TopicStore
from mq_django.transport.connections import get_client
from mq_django.transport.private_server import PrivateServer
from mq_django.transport.sessions import Session
from tests.stores.cases import outgoing
from tests.waiting import moment_between, wait_until

ME = "host-1-me"


@pytest.fixture
def topic(mq_settings):
    def configure(**options):
        mq_settings(QUEUES={}, TOPICS={"orders": options})
        return Log(get_config().topic("orders"), Session(get_client("produce")))

    return configure


@pytest.fixture
def log(topic):
    return topic()


def group(name="billing", start="beginning"):
    """Return a group that is subscribed."""
    store = TopicStore(get_config().topic("orders").group(name), Session(get_client("consume")), start=start)
    store.create_groups()
    return store


def publish(log, *numbers, **attributes):
    log.publish([outgoing(data=number, **attributes) for number in numbers])


def numbers(deliveries):
    return [delivery.message.data for delivery in deliveries]


def settle(store, *deliveries, outcome=ACK, delay_ms=0):
    return store.settle(ME, [Settlement(delivery, outcome, delay_ms) for delivery in deliveries])


def partition_for(log, name="billing"):
    return next(found for found in log.groups() if found.name == name)


def old_entries(redis_client, log, count, *, age):
    """Put entries into the log that were published some seconds ago."""
    first = round((time.time() - age) * 1000)
    for number in range(count):
        redis_client.xadd(log.keys.log, {"type": "old", "data": str(number)}, id=f"{first}-{number + 1}")


def test_every_group_gets_every_message_and_settles_for_itself(log):
    billing, stock = group("billing"), group("stock")
    publish(log, 1, 2)
    first, second = billing.take(ME, count=10)
    assert numbers(stock.take(ME, count=10)) == [1, 2]
    settle(billing, first, outcome=Retry(), delay_ms=60_000)
    settle(billing, second, outcome=Bury("no"))
    assert (billing.depths().delayed, billing.depths().dead, billing.depths().pending) == (1, 1, 0)
    assert (stock.depths().delayed, stock.depths().dead, stock.depths().pending) == (0, 0, 2)
    assert numbers(stock.held_by(ME, limit=10)) == [1, 2]


def test_the_log_keeps_what_is_settled(log, redis_client):
    billing = group()
    publish(log, *range(5))
    taken = billing.take(ME, count=5)
    for delivery, outcome in zip(taken, [ACK, Retry(), Bury("no"), HandBack(), SetAside()], strict=True):
        settle(billing, delivery, outcome=outcome)
    assert redis_client.xlen(log.keys.log) == 5
    assert redis_client.xpending(log.keys.log, "billing")["pending"] == 0


def test_a_new_group_starts_where_its_subscriber_says(log, redis_client):
    publish(log, 1)
    moment = moment_between(redis_client)
    publish(log, 2)
    stores = {start: group(f"g{number}", start) for number, start in enumerate(["beginning", moment, "end"])}
    publish(log, 3)
    assert {start: numbers(store.take(ME, count=10)) for start, store in stores.items()} == {
        "beginning": [1, 2, 3],
        moment: [2, 3],
        "end": [3],
    }


def test_a_log_that_was_flushed_is_read_from_its_beginning(log, redis_client):
    store = group(start="end")
    redis_client.delete(log.keys.log, log.keys.control, store.keys.control, store.keys.ready)
    publish(log, 1)
    assert store.take(ME, count=10) == []
    assert numbers(store.take(ME, count=10)) == [1]


def test_a_group_that_somebody_removed_starts_at_the_beginning_wherever_its_subscriber_says(log, redis_client, caplog):
    publish(log, 1)
    store = group(start="end")
    publish(log, 2)
    redis_client.xgroup_destroy(log.keys.log, "billing")
    assert store.take(ME, count=10) == []
    assert numbers(store.take(ME, count=10)) == [1, 2]
    assert "Group billing of topic orders, or its log, has gone: suspected data loss" in caplog.text


@pytest.mark.parametrize("lose", ["log", "group"])
def test_without_its_log_a_group_takes_what_it_keeps_itself(log, redis_client, lose):
    store = group()
    publish(log, 1, 2)
    assert settle(store, *store.take(ME, count=2), outcome=HandBack()) == []
    (first,) = store.take(ME, count=1)
    if lose == "log":
        redis_client.delete(log.keys.log)
    else:
        redis_client.xgroup_destroy(log.keys.log, "billing")
    (second,) = store.take(ME, count=10)
    assert numbers([first, second]) == [1, 2]
    # Nothing more is there: now it makes itself anew.
    assert store.take(ME, count=10) == []
    assert settle(store, first, second) == []
    publish(log, 3)
    assert 3 in numbers(store.take(ME, count=10))


def test_a_place_in_the_log_is_exact(log, redis_client):
    for entry in ["5-0", "5-1", "5-2", "7-0"]:
        redis_client.xadd(log.keys.log, {"type": "t", "data": f'"{entry}"'}, id=entry)
    store = group()
    for place, found in {
        "beginning": ["5-0", "5-1", "5-2", "7-0"],
        "0-0": ["5-0", "5-1", "5-2", "7-0"],
        "5-1": ["5-1", "5-2", "7-0"],
        "5-0": ["5-0", "5-1", "5-2", "7-0"],
        "6-3": ["7-0"],
        datetime.fromtimestamp(0.006, UTC): ["7-0"],
        "end": [],
    }.items():
        log.seek("billing", place)
        assert numbers(store.take(ME, count=10)) == found, place
    for nonsense in ["", "x", "1-2-3", "99999999999999999999", "-1"]:
        with pytest.raises(InvalidOffset):
            log.seek("billing", nonsense)
    assert before("5-18446744073709551615") == "5-18446744073709551614"


def test_after_a_seek_redis_tells_the_lag_where_it_can(log, redis_client):
    store = group()
    publish(log, *range(50))
    entries = [entry for entry, _ in redis_client.xrange(log.keys.log)]
    # Out of the way of what is counted: before the place, and long gone.
    redis_client.xdel(log.keys.log, entries[3])
    redis_client.xtrim(log.keys.log, maxlen=45, approximate=False)
    log.seek("billing", entries[20].decode())
    (seen,) = redis_client.xinfo_groups(log.keys.log)
    assert seen["lag"] == partition_for(log).lag == 30
    settle(store, *store.take(ME, count=10))
    publish(log, 1)
    (seen,) = redis_client.xinfo_groups(log.keys.log)
    assert seen["lag"] == partition_for(log).lag == 21


def test_a_seek_of_a_group_that_is_not_there_is_an_error(log):
    with pytest.raises(UnknownGroup):
        log.seek("nobody", "beginning")
    publish(log, 1)
    with pytest.raises(UnknownGroup):
        log.seek("nobody", "beginning")


def test_a_late_settle_of_the_first_pass_changes_nothing_in_the_second(log, subtests, forget):
    for outcome in (ACK, Retry(), HandBack(), Bury("no"), SetAside()):
        with subtests.test(outcome=outcome):
            forget()
            store = group()
            publish(log, 1)
            (first,) = store.take(ME, count=10)
            log.seek("billing", "beginning")
            (second,) = store.take(ME, count=10)
            # The same consumer holds the same entry, delivered once: only the generation tells them apart.
            assert (first.stream, first.message) == (second.stream, second.message)
            assert settle(store, first, outcome=outcome) == [first.message.id]
            assert numbers(store.held_by(ME, limit=10)) == [1]
            assert (store.depths().delayed, store.depths().dead, store.depths().unhandled) == (0, 0, 0)
            assert settle(store, second) == []
            assert store.depths().pending == 0


def late_and_early(store, me, seen, end):
    """Take and settle for a while, now and then much later than was taken."""
    rng, held = random.Random(me), []
    while held or not end.is_set():
        if not end.is_set():
            held += store.take(me, count=rng.randint(1, 9))
        rng.shuffle(held)
        # One by one: of a batch, ids are told back, and two passes may have given the same message.
        for delivery in [held.pop() for _ in range(rng.randint(0, len(held)))]:
            seen.append((delivery.entry, settle_as(store, me, delivery) == []))
        end.wait(0.001)


def settle_as(store, me, delivery):
    return store.settle(me, [Settlement(delivery, ACK)])


def test_seeks_while_consumers_work_leave_each_pass_whole(log):
    publish(log, *range(200))
    store = group()
    seen, end = [], threading.Event()
    consumers = [threading.Thread(target=late_and_early, args=(group(), f"c{n}", seen, end)) for n in range(3)]
    for consumer in consumers:
        consumer.start()
    for _ in range(15):
        passed = len(seen)
        wait_until(lambda passed=passed: len(seen) > passed, message="a pass has begun")
        log.seek("billing", "beginning")
    wait_until(lambda: partition_for(log).lag == 0 and partition_for(log).pending == 0, timeout=20)
    end.set()
    for consumer in consumers:
        consumer.join(20)
    settled = Counter(entry for entry, held in seen if held)
    # Nothing was settled twice in one pass, and some of each earlier one was too late.
    assert max(settled.values()) == 1
    assert any(not held for _, held in seen)
    generation = str(partition_for(log).generation).encode()
    last = [entry for entry in settled if entry.endswith(b"@" + generation)]
    assert len(last) == 200
    assert store.depths() == (0, 0, 0, 0, 0, 0)


def test_what_waits_for_another_attempt_outlives_a_seek(log):
    store = group()
    publish(log, 1, 2)
    first, second = store.take(ME, count=10)
    settle(store, first, outcome=Retry())
    settle(store, second)
    log.seek("billing", "end")
    wait_until(lambda: store.promote(limit=10).moved)
    (again,) = store.take(ME, count=10)
    assert (again.message.data, again.message.attempt) == (1, 2)
    assert settle(store, again) == []


def test_a_seek_reaches_a_consumer_that_waits(log):
    store, other = group(), Log(log.config, Session(get_client("produce")))
    publish(log, 1)
    settle(store, *store.take(ME, count=10))
    timer = threading.Timer(0.2, lambda: other.seek("billing", "beginning"))
    timer.start()
    began = time.monotonic()
    again = wait_until(lambda: store.fetch(ME, count=10, block_ms=60_000))
    assert time.monotonic() - began < 50
    assert numbers(again) == [1]
    # Its receipt is of the new generation: it can be settled.
    assert settle(store, *again) == []
    assert store.held_by(ME, limit=10) == []
    timer.join()


def test_the_same_message_is_published_once_within_the_window(topic, redis_client):
    log = topic(DUPLICATE_WINDOW=600)
    store = group()
    some = outgoing(data=1, id="payment-7", once=True)
    assert log.publish([some, some]) == ["payment-7", None]
    assert log.publish([some, outgoing(data=2, id="payment-8", once=True)]) == [None, "payment-8"]
    assert numbers(store.take(ME, count=10)) == [1, 2]
    redis_client.zincrby(log.keys.published, -601_000, "payment-7")
    assert log.publish([some]) == ["payment-7"]
    assert numbers(store.take(ME, count=10)) == [1]


def test_lag_is_true_after_deletions_seeks_and_trims(log, redis_client):
    store = group()
    found = partition_for(log)
    assert (found.pending, found.lag, found.lag_ms) == (0, 0, 0)
    publish(log, *range(10))
    assert partition_for(log).lag == 10
    entries = [entry for entry, _ in redis_client.xrange(log.keys.log)]
    settle(store, *store.take(ME, count=4))
    assert partition_for(log).lag == 6
    redis_client.xdel(log.keys.log, entries[0], entries[6])
    assert partition_for(log).lag == 5
    log.seek("billing", entries[2].decode())
    assert partition_for(log).lag == 7
    settle(store, *store.take(ME, count=1))
    assert partition_for(log).lag == 6
    redis_client.xtrim(log.keys.log, maxlen=4, approximate=False)
    assert partition_for(log).lag == 4
    log.seek("billing", "end")
    assert partition_for(log).lag == 0
    publish(log, 1)
    assert partition_for(log).lag == 1
    log.seek("billing", "beginning")
    assert partition_for(log).lag == 5


def test_after_a_restart_the_lag_is_not_by_a_count_of_an_earlier_time(mq_settings, tmp_path):
    settings = {"appendfsync": "always"}
    with PrivateServer(directory=tmp_path, append_only=True, settings=settings, tcp=True) as server:
        mq_settings(CONNECTION=server.url, QUEUES={}, TOPICS={"orders": {}})
        log = Log(get_config().topic("orders"), Session(get_client("produce")))
        store = group()
        publish(log, *range(100))
        # The file of Redis has this count, and not those of later reads.
        log.seek("billing", [*log.read("beginning", "end")][10].entry.decode())
        settle(store, *store.take(ME, count=30))
        log.recount()
        assert partition_for(log).lag == 60
        server.kill()
        server.start()
        get_client("produce").connection_pool.disconnect()
        log = Log(get_config().topic("orders"), Session(get_client("produce")))
        assert partition_for(log).lag == 90
        log.recount()
        assert partition_for(log).lag == 60
        settle(group(), *group().take(ME, count=60))
        publish(log, 1)
        assert partition_for(log).lag == 1


def test_a_long_lag_is_counted_in_pages(log, redis_client):
    store = group()
    for at in range(0, 12_000, 1000):
        log.publish([outgoing(data=n) for n in range(at, at + 1000)])
    settle(store, *store.take(ME, count=10))
    redis_client.xdel(log.keys.log, redis_client.xrange(log.keys.log, count=20)[-1][0])
    assert partition_for(log).lag == 12_000 - 10 - 1


def test_lag_in_time_is_the_age_of_the_oldest_unread_message(log, redis_client):
    store = group()
    old_entries(redis_client, log, 3, age=100)
    assert 99_000 < partition_for(log).lag_ms < 105_000
    settle(store, *store.take(ME, count=3))
    assert partition_for(log).lag_ms == 0
    publish(log, 1)
    assert partition_for(log).lag_ms < 5000


def test_retention_by_age_takes_what_is_too_old(topic, redis_client):
    log = topic(RETENTION=50)
    old_entries(redis_client, log, 450, age=100)
    publish(log, *range(100))
    store = group()
    settle(store, *store.take(ME, count=500))
    assert log.trim().removed >= 400
    # Node by node, so up to a node of a hundred more stays.
    assert 100 <= redis_client.xlen(log.keys.log) <= 200
    assert numbers(entry for entry in log.read("beginning", "end"))[-100:] == list(range(100))
    assert log.trim().removed == 0


def test_retention_by_bytes_takes_the_oldest(topic, redis_client):
    log = topic(RETENTION=None, RETENTION_BYTES=100_000)
    log.publish([outgoing(data="x" * 1000) for _ in range(500)])
    while log.trim().more:
        pass
    used = redis_client.memory_usage(log.keys.log)
    assert 80_000 < used < 125_000


def test_nothing_that_is_pending_is_trimmed(topic, redis_client):
    log = topic(RETENTION=None, RETENTION_COUNT=100)
    store, fast = group(), group("fast")
    publish(log, *range(1000))
    settle(fast, *fast.take(ME, count=1000))
    held = store.take(ME, count=250)
    settle(store, *held[:200])
    for _ in range(10):
        trimmed = log.trim()
    assert (trimmed.removed, trimmed.held) == (0, True)
    assert numbers(store.held_by(ME, limit=100)) == list(range(200, 250))
    assert settle(store, *held[200:]) == []
    while log.trim().more:
        pass
    assert redis_client.xlen(log.keys.log) < 200


def test_what_a_group_lost_unread_is_counted_and_told(topic, redis_client):
    log = topic(RETENTION=None, RETENTION_COUNT=100)
    slow, fast = group("slow"), group("fast")
    publish(log, *range(1000))
    settle(fast, *fast.take(ME, count=1000))
    settle(slow, *slow.take(ME, count=250))
    lost = {}
    while True:
        trimmed = log.trim()
        for name, count in trimmed.lost.items():
            lost[name] = lost.get(name, 0) + count
        if not trimmed.more:
            break
    left = redis_client.xlen(log.keys.log)
    assert lost == {"slow": 750 - left}
    assert int(redis_client.hget(slow.keys.control, "lost")) == 750 - left
    assert redis_client.hget(fast.keys.control, "lost") is None
    assert partition_for(log, "slow").lag == left
    settle(slow, *slow.take(ME, count=10))
    assert partition_for(log, "slow").lag == left - 10


def test_the_share_of_the_retention_is_the_worst_of_the_three(topic, redis_client):
    log = topic(RETENTION=1000, RETENTION_COUNT=100)
    group()
    publish(log, *range(50))
    assert partition_for(log).share == pytest.approx(0.5, abs=0.01)
    log = topic(RETENTION=200_000, RETENTION_COUNT=1_000_000)
    redis_client.delete(log.keys.log)
    old_entries(redis_client, log, 1, age=100_000)
    group()
    assert partition_for(log).share == pytest.approx(0.5, abs=0.05)
    assert partition_for(topic(RETENTION=None)).share is None


def test_what_is_pending_counts_against_the_retention_because_it_holds_up_the_trimming(topic, redis_client):
    log = topic(RETENTION=200_000, RETENTION_COUNT=100)
    store = group()
    old_entries(redis_client, log, 2, age=150_000)
    publish(log, *range(70))
    taken = store.take(ME, count=71)
    settle(store, *taken[1:])
    found = partition_for(log)
    assert (found.lag, found.pending, found.behind) == (1, 1, 72)
    assert 149_999_000 < found.behind_ms < 151_000_000
    assert found.share == pytest.approx(0.75, abs=0.05)
    settle(store, taken[0])
    found = partition_for(log)
    assert (found.behind, found.share) == (1, pytest.approx(0.01, abs=0.05))


def test_an_alarm_is_raised_and_cleared_once_and_goes_with_its_group(log, redis_client):
    store = group()
    assert log.set_alarm("billing", None) == "SAME"
    assert log.set_alarm("billing", 85) == "RAISED"
    assert log.set_alarm("billing", 90) == "SAME"
    assert redis_client.hget(store.keys.control, "alarm") == b"90"
    assert log.set_alarm("billing", None) == "CLEARED"
    assert log.set_alarm("billing", 85) == "RAISED"
    log.unsubscribe("billing", now=time.time())
    assert log.set_alarm("billing", 90) == "MISSING"
    assert not redis_client.exists(store.keys.control)


def test_unsubscribing_removes_every_key_of_the_group_and_nothing_else(log, redis_client, namespace):
    billing, stock = group("billing"), group("stock")
    publish(log, *range(6))
    for store in (billing, stock):
        taken = store.take(ME, count=6)
        outcomes = [Retry(), Bury("no"), SetAside(), HandBack()]
        for delivery, outcome in zip(taken, outcomes, strict=False):
            settle(store, delivery, outcome=outcome, delay_ms=60_000)
        redis_client.hset(store.keys.consumers, "beat:s", 1)
        redis_client.hset(store.keys.minutes(int(time.time()) // 3600), "1|handled|x", 1)
    before_that = {key.decode() for key in redis_client.scan_iter(match=f"{namespace}:*")}
    assert sum(":g:billing:" in key for key in before_that) >= 9
    assert log.unsubscribe("billing", now=time.time())
    left = {key.decode() for key in redis_client.scan_iter(match=f"{namespace}:*")}
    assert left == {key for key in before_that if ":g:billing:" not in key}
    assert [found.name for found in log.groups()] == ["stock"]
    assert stock.depths().pending == 2
    assert not log.unsubscribe("billing", now=time.time())


def test_subscribing_again_starts_where_the_subscriber_says_and_old_receipts_are_void(log):
    store = group()
    publish(log, 1)
    (first,) = store.take(ME, count=10)
    log.unsubscribe("billing", now=time.time())
    assert store.take(ME, count=10) == []
    (again,) = store.take(ME, count=10)
    assert again.message == first.message
    assert settle(store, first) == [first.message.id]
    assert settle(store, again) == []


def test_no_script_trims_exactly():
    for path in files("mq_django.transport").joinpath("lua").iterdir():
        if path.name.endswith(".lua"):
            text = re.sub(r"--.*", "", path.read_text(encoding="utf-8"))
            assert not re.search(r"'minid'(?!, '~')", text), path.name


@pytest.fixture
def forget_subscribers(monkeypatch):
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))
    monkeypatch.setattr(registry, "_starts", dict(registry._starts))


def test_a_group_starts_and_handles_as_its_subscribers_say(forget_subscribers):
    @registry.subscriber("events", group="a", name="order.paid", start="end")
    def paid(message): ...

    assert registry.find("events:a", "order.paid").call is paid
    # Its subscribers asked for one name only, so it passes over the rest.
    assert registry.find("events:a", "order.sent").call("message") is None
    assert registry.find("events:b", "order.sent") is None
    assert registry.start_of("events:a") == "end"
    assert registry.groups("events") == ["events:a"]
    assert "events:a" in registry.groups()

    @registry.subscriber("events", group="a", start="end", timeout=5)
    async def every(message): ...

    found = registry.find("events:a", "order.sent")
    assert (found.call, found.is_async, found.timeout) == (every, True, timedelta(seconds=5))
    assert registry.find("events:a", "order.paid").call is paid


def test_a_topic_publishes_and_moves_its_groups(log, forget_subscribers):
    seen = []

    @registry.subscriber("orders", group="billing", start="end")
    def bill(message):
        seen.append((message.data, message.queue))
        if message.data == 2:
            raise ValueError("no")

    orders = topics["orders"]
    first = orders.publish("order.paid", 1, key="order:1")
    orders.publish_many([("order.paid", 2), ("order.paid", 3)])
    billing = orders.group("billing")
    with pytest.raises(UnknownGroup):
        billing.status()
    assert billing.subscribe()
    assert not billing.subscribe()
    assert billing.status().position.lag == 0
    billing.seek("beginning")
    assert billing.status().position.lag == 3
    assert [message.data for message in billing.messages()] == [1, 2, 3]
    dry = billing.replay(dry=True)
    assert ([message.data for message in dry.handled], seen) == ([1, 2, 3], [])
    assert next(iter(dry.handled)).id == first
    real = billing.replay()
    assert seen == [(1, "orders:billing"), (2, "orders:billing"), (3, "orders:billing")]
    assert [message.data for message in real.handled] == [1, 3]
    assert [(message.data, error) for message, error in real.failed] == [(2, "ValueError: no")]
    for handler in (5, "shop.bill", asyncio.sleep):
        with pytest.raises(ConfigurationError, match="replay"):
            billing.replay(handler)
    chosen = []
    billing.replay(lambda message: chosen.append(message.data), since=datetime.now(UTC) - timedelta(hours=1))
    assert chosen == [1, 2, 3]
    assert billing.status().position.lag == 3
    assert billing.unsubscribe()
    assert orders.groups() == []


def test_a_priority_that_a_stranger_gave_holds_nothing_up(log, redis_client):
    store = group()
    for number in range(3):
        redis_client.xadd(log.keys.log, {"type": "t", "data": str(number), "priority": "50"})
    for delivery in store.take(ME, count=3):
        settle(store, delivery, outcome=Retry())
    found = []
    wait_until(lambda: store.promote(limit=10).moved or store.depths().delayed == 0)
    wait_until(lambda: found.extend(numbers(store.take(ME, count=10))) or len(found) == 3)
    assert sorted(found) == [0, 1, 2]


def test_a_message_can_be_for_one_group_alone_and_later(log):
    billing, stock = group("billing"), group("stock")
    queues["orders:billing"].publish("order.paid", 1, delay=0.01)
    queues["orders:billing"].publish("order.paid", 2)
    assert numbers(billing.take(ME, count=10)) == [2]
    wait_until(lambda: billing.promote(limit=10).moved)
    assert numbers(billing.take(ME, count=10)) == [1]
    assert stock.take(ME, count=10) == []
    assert not stock.promote(limit=10).moved
