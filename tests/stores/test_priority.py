import random
import threading

import pytest

from mq_django import queues
from mq_django.core.messages import ACK, HandBack, LookupState, Retry
from mq_django.stores import open_store
from mq_django.stores.base import Settlement
from mq_django.stores.waiting import name_score
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled, Session
from tests.stores.acts import make_due, settle, take_all
from tests.waiting import wait_until


@pytest.fixture
def ranked(emails, store):
    """A queue whose readers know of priorities: it has had one."""
    emails.publish("first", 0, priority=1)
    settle(store, ACK)


def order(store, count=1):
    """Take and ack everything, some at a time, and return the data in the order they came."""
    found = []
    while taken := store.take("c1", count=count):
        found += [item.message.data for item in taken]
        assert store.settle("c1", [Settlement(item, ACK) for item in taken]) == []
    return found


def test_the_order_is_that_of_the_priorities_and_within_one_that_of_arrival(emails, store, subtests, forget):
    for count in (1, 3, 100):
        for seed in range(5):
            with subtests.test(count=count, seed=seed):
                forget()
                store.create_groups()
                rand = random.Random(seed)
                # Those without one come between positive and negative ones.
                levels = [rand.choice([-100, -1, 0, 0, 1, 100, rand.randint(-100, 100)]) for _ in range(18)]
                for number, level in enumerate(levels):
                    emails.publish("welcome", [level, number], priority=level)
                assert order(store, count) == sorted(
                    ([level, n] for n, level in enumerate(levels)), key=lambda it: (-it[0], it[1])
                )


def test_a_queue_with_limits_keeps_the_same_order(mq_settings, subtests, forget):
    for count in (1, 3, 100):
        with subtests.test(count=count):
            forget()
            mq_settings(QUEUES={"emails": {"RATE_LIMIT": "1000/s", "CONCURRENCY": {"key": 5}}})
            limited = open_store(queues["emails"].config, Pooled(get_client("consume")))
            limited.create_groups()
            for level in (-1, 0, 1, 0, -100, 100):
                queues["emails"].publish("welcome", level, priority=level, key=str(level))
            assert order(limited, count) == [100, 1, 0, 0, -1, -100]


def test_what_was_handed_back_is_first_of_a_batch(emails, store, ranked):
    emails.publish("welcome", "held")
    (held,) = store.take("c1", count=1)
    for level in (0, -5, 5):
        emails.publish("welcome", level, priority=level)
    store.settle("c1", [Settlement(held, HandBack())])
    assert order(store, 100) == ["held", 5, 0, -5]


def test_delayed_messages_keep_their_priority_when_they_are_due(emails, keys, store, redis_client, ranked):
    emails.publish("welcome", "ready")
    ids = [emails.publish("remind", level, delay=60, priority=level) for level in (0, -5, 5, 7)]
    unique = emails.publish("remind", 6, delay=60, priority=6, unique="cart:7")
    make_due(redis_client, keys, *ids, "u:cart:7")
    assert store.promote(limit=500).moved == 5
    assert emails.find(unique).state is LookupState.PRIORITY
    assert order(store) == [7, 6, 5, "ready", 0, -5]


def test_a_message_keeps_its_priority_when_it_is_tried_again_and_when_it_is_handed_back(
    emails, keys, store, redis_client, ranked
):
    emails.publish("welcome", "important", priority=50)
    settle(store, HandBack())
    settle(store, Retry(), delay_ms=60_000)
    make_due(redis_client, keys, *(member.decode() for member in redis_client.zrange(keys.due, 0, -1)))
    emails.publish("welcome", "plain")
    store.promote(limit=500)
    again, plain = settle(store, ACK)
    assert (again.data, again.priority, again.attempt, plain.data) == ("important", 50, 2, "plain")


def test_unhandled_messages_keep_their_priority(emails, keys, store, redis_client, ranked):
    emails.publish("welcome", "plain")
    redis_client.zadd(keys.unhandled, {"a1": name_score("x"), "a2": name_score("x")})
    redis_client.hset(keys.waiting, "a1", '{"priority":"-5","type":"x","data":"low"}')
    redis_client.hset(keys.waiting, "a2", '{"priority":"5","type":"x","data":"high"}')
    assert store.release_unhandled(["x"], limit=10) == 2
    assert order(store) == ["high", "plain", "low"]


def test_the_first_priority_a_queue_ever_had_goes_before_what_is_ready(emails, store):
    emails.publish_many([("welcome", n) for n in range(3)])
    emails.publish("welcome", "important", priority=1)
    assert order(store) == ["important", 0, 1, 2]


class Reader:
    """A consumer that waits for a message and keeps what it gets, as one that has no more room."""

    def __init__(self, config, name):
        self.session = Session(get_client("consume"))
        self.store = open_store(config, self.session)
        self.name, self.got = name, []
        self.thread = threading.Thread(target=self.read)

    def read(self):
        assert self.store.take(self.name, count=1) == []
        self.got = self.store.fetch(self.name, count=1, block_ms=200_000)
        self.session.release()


def blocked(client):
    return client.info("clients")["blocked_clients"]


@pytest.fixture
def readers(emails, redis_client, store):
    found = [Reader(emails.config, f"c{n}") for n in range(3)]
    before = blocked(redis_client)
    for reader in found:
        reader.thread.start()
    wait_until(lambda: blocked(redis_client) == before + 3)
    yield found
    for reader in found:
        reader.session.interrupt()
        reader.thread.join(5)


def got(readers):
    for reader in readers:
        reader.thread.join()
    return sorted(item.message.data for reader in readers for item in reader.got)


def test_blocked_readers_get_prioritised_messages_at_once_though_the_queue_never_had_one(emails, readers):
    for level in (5, -5, 7):
        emails.publish("welcome", level, priority=level)
    assert got(readers) == [-5, 5, 7]


def test_a_batch_wakes_every_blocked_reader_of_a_queue_that_never_had_a_priority(emails, readers):
    emails.publish_many([("welcome", 1), ("welcome", 2), ("welcome", 3)], priority=5)
    assert got(readers) == [1, 2, 3]


def test_a_batch_wakes_every_blocked_reader_one_after_another(emails, store, ranked, readers):
    emails.publish_many([("welcome", n) for n in (1, 2, 3)], priority=5)
    assert got(readers) == [1, 2, 3]


def test_a_promotion_wakes_every_blocked_reader(emails, keys, store, redis_client, ranked, readers):
    for level in (5, 0, 7):
        emails.publish("remind", level, priority=level, delay=0)
    store.promote(limit=500)
    assert got(readers) == [0, 5, 7]


@pytest.mark.parametrize("starving", [0, -50, 50])
def test_nothing_starves_beside_a_flood_of_higher_ones(emails, store, ranked, starving):
    emails.publish("welcome", "starving", priority=starving)
    emails.publish_many([("low", n) for n in range(10)], priority=-100)
    found = []
    for _ in range(100):
        emails.publish_many([("high", n) for n in range(2)], priority=100)
        (taken,) = store.take("c1", count=1)
        store.settle("c1", [Settlement(taken, ACK)])
        found.append(taken.message.data)
        if taken.message.data == "starving":
            return
    raise AssertionError(f"never came: {found}")


def test_the_lowest_do_not_starve_either(emails, store, ranked):
    emails.publish("low", "starving", priority=-100)
    for level in range(-99, 101):
        emails.publish("high", level, priority=level)
        emails.publish("high", level, priority=level)
        (taken,) = store.take("c1", count=1)
        store.settle("c1", [Settlement(taken, ACK)])
        if taken.message.data == "starving":
            return
    raise AssertionError("never came")


def test_a_queue_that_never_had_a_priority_pays_nothing_for_them(emails, store, redis_client):
    emails.publish("welcome", 1)
    redis_client.config_resetstat()
    settle(store, ACK)
    used = set(redis_client.info("commandstats"))
    assert not used & {f"cmdstat_{name}" for name in ("zcard", "zrangebyscore", "xinfo|groups", "xrange")}


def test_readers_of_a_queue_without_priorities_send_one_command(emails, store):
    sent = []
    pipeline = store._transport.pipeline
    store._transport.pipeline = lambda commands: sent.append(commands) or pipeline(commands)
    store.take("c1", count=1)
    store.fetch("c1", count=1, block_ms=1)
    assert [len(commands) for commands in sent] == [1, 1]


def wait_under(redis_client, keys, **bodies):
    """Let messages wait as other programs write them: bodies by member."""
    redis_client.hset(keys.waiting, mapping=bodies)
    redis_client.zadd(keys.due, dict.fromkeys(bodies, 0))


LARGE = '[{"priority":9,"a\\\\":"\\\\\\"priority\\":9}"},' + '"priority",' * 2000 + "{}]"


#: Objects as other programs write them, with the priority 5: it stands anywhere, as a number or a text.
URGENT = (
    '{"priority":"5","type":"x","data":1}',
    '{"priority":5,"type":"x","data":1}',
    '{"type":"x","priority":5,"data":1}',
    '{"type":"x","data":1,"priority":"5"}',
    ' {\n  "type": "priority",\n  "data": {"priority": 99},\n  "priority" : 5\n}\n',
    '{"type":"x","data":1,"priority":5.0,"partitionkey":"{"}',
    '{"priority":5,"type":"x","data":' + LARGE + "}",
    '{"type":"x","data":' + LARGE + ',"priority":5,"partitionkey":"a"}',
    '{"type":"x","data":"' + "\\\\n" * 5000 + '","priority":5}',
)
#: And without one: that of the data is none of the message.
PLAIN = (
    '{"type":"x","data":{"priority":5}}',
    '{"type":"x","data":[{"priority":5}]}',
    r'{"type":"priority","data":"\\,\"priority\":5}"}',
    '{"type":"x","priority":null,"data":1}',
    '{"type":"x","data":' + LARGE + "}",
    '{"type":"x","data":[' + LARGE + ',{"priority":5}]}',
    '{"type":"x","data":' + LARGE[:-3] + '{"a":1,"priority":5}]}',
    '{"type":"x","data":{"a":[' + "[],{}," * 2000 + '1],"priority":5}}',
)


def test_the_priority_of_another_program_counts_and_one_in_its_data_does_not(
    emails, keys, store, redis_client, ranked, subtests, forget
):
    for body, priority in [*((body, 5) for body in URGENT), *((body, 0) for body in PLAIN)]:
        with subtests.test(body=body):
            forget()
            store.create_groups()
            emails.publish("first", 0, priority=1)
            settle(store, ACK)
            emails.publish("welcome", "plain")
            wait_under(redis_client, keys, a1=body)
            store.promote(limit=500)
            assert (emails.find("a1").state is LookupState.PRIORITY) == bool(priority)
            taken = [(item.message.id, item.message.priority) for item in take_all(store)]
            assert len(taken) == 2
            assert taken[0 if priority else 1] == ("a1", priority)


def test_a_priority_that_is_none_is_buried_with_the_reason(keys, store, redis_client):
    wait_under(redis_client, keys, a1='{"priority":"999","type":"x","data":2}')
    store.promote(limit=500)
    (found,) = store.take("c1", count=9)
    assert "priority is not a whole number from -100 to 100: '999'" in found.reason


def test_an_object_may_end_with_white_space_though_its_id_is_taken(keys, store, redis_client, ranked):
    wait_under(redis_client, keys, a1='{"priority":"5","type":"x","data":1}\n')
    store.promote(limit=500)
    assert redis_client.xlen(keys.ready) == 1
    redis_client.hset(keys.waiting, "a1", '{"type":"x","data":2}')
    # The fetch moves it to `priority`, where it needs another member.
    assert [(item.message.id, item.message.data) for item in take_all(store)] == [("a1", 1)]


def test_what_was_taken_is_delivered_though_the_other_stream_lost_its_group(emails, keys, store, redis_client, ranked):
    emails.publish("welcome", "plain")
    emails.publish("welcome", "important", priority=5)
    redis_client.delete(keys.ready)
    assert [item.message.data for item in store.take("c1", count=10)] == ["important"]
    assert store.take("c1", count=10) == []
    emails.publish("welcome", "next")
    assert [item.message.data for item in store.take("c1", count=10)] == ["next"]
