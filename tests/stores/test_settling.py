"""Outcomes become script calls in one round trip, whatever store the deliveries are of."""

from typing import NamedTuple

import pytest
from redis.exceptions import ResponseError

from mq_django.conf import QueueConfig
from mq_django.core.keys import LOG, READY, GroupKeys
from mq_django.core.messages import ACK, Delivery, Expire, Message, Undecodable
from mq_django.errors import WrongKeyType
from mq_django.stores.base import Settlement
from mq_django.stores.settling import BATCH, Settling, log_receipts, stream_receipts
from mq_django.transport import scripts
from mq_django.transport.sessions import Pooled

CONFIG = QueueConfig(name="orders")
KEYS = GroupKeys("mq", "orders", subscriber="billing")
ME, OTHER = "host-1-me", "host-2-other"


class Transport:
    """Keeps what it is sent, and answers each command alike."""

    def __init__(self, reply=()):
        self.pipelines = []
        self.reply = list(reply) if isinstance(reply, tuple) else reply

    def pipeline(self, commands):
        self.pipelines.append(commands)
        return [self.reply for _ in commands]


def settling(transport):
    own = [stream_receipts(KEYS, KEYS.ready), stream_receipts(KEYS, KEYS.front)]
    return Settling(transport, CONFIG, [*own, log_receipts(KEYS)])


def delivery(number, stream=READY, **attributes):
    message = Message(f"m{number}", "welcome", {}, "orders:billing", **attributes)
    return Delivery(message, stream, b"%d-0" % number, b"{}")


class Call(NamedTuple):
    """A call of the script that settles, taken apart."""

    outcome: str
    keys: dict
    consumer: str
    receipts: tuple
    lists: dict

    @classmethod
    def of(cls, command):
        assert scripts.name_of(command) == "settle"
        count = command[2]
        keys, (outcome, names, _group, consumer, size, *rest) = command[3 : 3 + count], command[3 + count :]
        receipts, rest, lists = tuple(rest[:size]), rest[size:], {}
        while rest:
            name, size, *rest = rest
            lists[name], rest = rest[:size], rest[size:]
        return cls(outcome, dict(zip(names.split(), keys, strict=True)), consumer, receipts, lists)


def test_deliveries_are_counted_by_name_and_handling_time_with_their_settling():
    transport = Transport()
    batch = [
        Settlement(delivery(1), ACK, micros=50),
        Settlement(delivery(2)._replace(message=Message("m2", "report", {}, "orders:billing")), ACK, micros=50),
        Settlement(delivery(3), ACK),
        Settlement(delivery(4), ACK, micros=50),
        Settlement(Undecodable(READY, b"5-0", (), "deleted"), ACK),
    ]
    settling(transport).settle(ME, batch)
    ((command,),) = transport.pipelines
    call = Call.of(command)
    assert call.receipts == (b"1-0", b"4-0", b"2-0", b"3-0", b"5-0")
    runs = [2, "welcome", "handled t0", 1, "report", "handled t0", 1, "welcome", "handled", 1, "-", ""]
    assert call.lists["counters"][2:] == runs
    assert list(call.lists) == ["counters"]


def test_the_keys_of_counters_follow_the_clock(monkeypatch):
    transport, hour = Transport(), 3600.0
    one = settling(transport)
    for now in (5 * hour, 6 * hour, 6 * hour + 60):
        monkeypatch.setattr("mq_django.core.clock.now", lambda now=now: now)
        one.settle(ME, [Settlement(delivery(1), ACK)])
    calls = [Call.of(command) for (command,) in transport.pipelines]
    assert [call.keys["minutes"] for call in calls] == [KEYS.minutes(5), KEYS.minutes(6), KEYS.minutes(6)]
    assert [call.lists["counters"][0] for call in calls] == [0, 0, 1]


@pytest.mark.parametrize("stream", [READY, LOG])
def test_what_the_consumer_no_longer_holds_is_returned(stream):
    batch = [Settlement(delivery(number, stream), ACK) for number in (1, 2, 3)]
    receipts = [(stream, settlement.delivery.entry) for settlement in batch]
    lost = settling(Transport((b"2-0",)))
    assert lost.settle(ME, batch)[0] == ["m2"]
    assert lost.reassign(ME, OTHER, receipts) == [(stream, b"2-0")]
    # Without its group a stream has no deliveries left.
    gone = settling(Transport(ResponseError("NOGROUP No such key")))
    assert gone.settle(ME, batch)[0] == ["m1", "m2", "m3"]
    assert gone.reassign(ME, OTHER, receipts) == receipts
    broken = settling(Transport(ResponseError("WRONGTYPE Operation against a key")))
    with pytest.raises(WrongKeyType):
        broken.settle(ME, batch)
    with pytest.raises(WrongKeyType):
        broken.reassign(ME, OTHER, receipts)


def test_deliveries_of_all_streams_are_passed_on_in_one_trip():
    transport = Transport()
    receipts = [(stream, b"%d-0" % number) for number in range(BATCH + 1) for stream in (LOG, READY)]
    assert settling(transport).reassign(ME, OTHER, receipts) == []
    (commands,) = transport.pipelines
    assert [scripts.name_of(command) for command in commands] == ["reassign"] * 4
    assert [command[3] for command in commands] == [KEYS.topic.log] * 2 + [KEYS.ready] * 2
    assert commands[-1][4:] == ("stream", "billing", ME, OTHER, 0, b"%d-0" % BATCH)
    assert settling(transport).reassign(ME, OTHER, []) == []
    assert len(transport.pipelines) == 1


def test_a_refused_outcome_leaves_no_note(namespace, redis_client):
    """Neither for outboxes, nor for who looks for what has expired: another consumer may still handle it."""
    keys = GroupKeys(namespace, "orders", subscriber="billing")
    own = [stream_receipts(keys, each, keeps_rows=True) for each in (keys.ready, keys.front)]
    found = Settling(Pooled(redis_client), CONFIG, [*own, log_receipts(keys)])
    batch = []
    for stream, key, first in ((READY, keys.ready, 1), (LOG, keys.topic.log, 5)):
        redis_client.xgroup_create(key, keys.group, "0", mkstream=True)
        for number in range(first, first + 4):
            redis_client.xadd(key, {"a": "b"}, id=f"{number}-0")
            known = delivery(number, stream)._replace(entry=b"%d-0%b" % (number, b"@" if stream == LOG else b""))
            batch.append(Settlement(known, ACK if number % 2 else Expire()))
        for consumer in (ME, OTHER):
            redis_client.xreadgroup(keys.group, consumer, {key: ">"}, count=2)

    stale, _ = found.settle(ME, batch)

    assert sorted(stale) == ["m3", "m4", "m7", "m8"]
    assert redis_client.zrange(keys.expired, 0, -1) == [b"m2", b"m6"]
    ended = [known for _, fields in redis_client.xrange(keys.ended) for known in fields]
    assert sorted(ended) == [b"m1", b"m2"]
