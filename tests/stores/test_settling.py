"""Outcomes become script calls in one round trip, whatever store the deliveries are of."""

from collections import Counter

import pytest
from redis.exceptions import ResponseError

from mq_django.core.keys import LOG, READY, URGENT, GroupKeys
from mq_django.core.messages import Delivery, Message, Undecodable
from mq_django.core.outcomes import ACK, Bury, Expire, HandBack, Retry
from mq_django.errors import WrongKeyType
from mq_django.stores.base import Settlement
from mq_django.stores.settling import BATCH, Settling, log_receipts, stream_receipts
from mq_django.transport import scripts
from mq_django.transport.sessions import Pooled

KEYS = GroupKeys("mq", "orders", subscriber="billing")
ME, OTHER = "host-1-me", "host-2-other"


class Wire:
    """Keeps what it is sent, and answers each command alike."""

    def __init__(self, reply=()):
        self.trips = []
        self.reply = list(reply) if isinstance(reply, tuple) else reply

    def trip(self, commands):
        self.trips.append(commands)
        return [self.reply for _ in commands]


def settling(wire):
    own = [stream_receipts(KEYS, KEYS.ready), stream_receipts(KEYS, KEYS.urgent)]
    return Settling(wire, [*own, log_receipts(KEYS)])


def delivery(number, stream=READY, **attributes):
    message = Message(f"m{number}", "welcome", {}, "orders:billing", **attributes)
    return Delivery(message, stream, b"%d-0" % number, b"{}")


def called(command):
    return scripts._by_sha[command[1]].name


def test_a_call_has_one_kind_of_outcome_and_deliveries_of_one_place():
    wire = Wire()
    outcomes = [ACK, Retry(), ACK, HandBack(), Expire(), Bury()]
    batch = [
        Settlement(delivery(stream * 10 + number, stream), outcome)
        for stream in (READY, URGENT, LOG)
        for number, outcome in enumerate(outcomes)
    ]
    assert settling(wire).settle(ME, batch) == ([], [])
    (commands,) = wire.trips
    verbs = ["ack", "ack", "bury", "hand_back", "retry"]
    assert sorted(map(called, commands)) == sorted(
        [*(f"stream_{verb}" for verb in verbs * 2), *(f"topic_{verb}" for verb in verbs), *["expired_add"] * 3]
    )
    assert {command[3] for command in commands} == {KEYS.ready, KEYS.urgent, KEYS.topic.log, KEYS.expired}


def test_a_large_batch_is_several_calls_of_one_trip():
    wire = Wire()
    settling(wire).settle(ME, [Settlement(delivery(number), ACK) for number in range(BATCH + 1)])
    ((first, second),) = wire.trips
    # The entries are followed by the counters: two slots, one run of deliveries, and their number.
    assert [len(first), len(second)] == [8 + BATCH + 6, 8 + 1 + 6]


def test_deliveries_are_counted_by_name_and_handling_time_with_their_settling():
    wire = Wire()
    batch = [
        Settlement(delivery(1), ACK, micros=50),
        Settlement(delivery(2)._replace(message=Message("m2", "report", {}, "orders:billing")), ACK, micros=50),
        Settlement(delivery(3), ACK),
        Settlement(delivery(4), ACK, micros=50),
        Settlement(Undecodable(READY, b"5-0", (), "deleted"), ACK),
    ]
    settling(wire).settle(ME, batch)
    ((command,),) = wire.trips
    *counters, size = command[13:]
    assert command[8:13] == (b"1-0", b"4-0", b"2-0", b"3-0", b"5-0")
    assert counters[2:] == [2, "welcome", "handled t0", 1, "report", "handled t0", 1, "welcome", "handled", 1, "-", ""]
    assert size == len(counters)


def test_the_keys_of_counters_follow_the_clock(monkeypatch):
    wire, hour = Wire(), 3600.0
    one = settling(wire)
    for now in (5 * hour, 6 * hour, 6 * hour + 60):
        monkeypatch.setattr("mq_django.core.clock.now", lambda now=now: now)
        one.settle(ME, [Settlement(delivery(1), ACK)])
    assert [command[4] for (command,) in wire.trips] == [KEYS.minutes(5), KEYS.minutes(6), KEYS.minutes(6)]
    assert [command[-6] for (command,) in wire.trips] == [0, 0, 1]


def test_other_commands_run_before_and_behind():
    wire = Wire()
    batch = [Settlement(delivery(1), ACK)]
    assert settling(wire).settle(ME, batch, also=[("PING", 1)], then=[("PING", 2), ("PING", 3)]) == ([], [[], []])
    ((first, ack, *others),) = wire.trips
    assert (first, called(ack), others) == (("PING", 1), "stream_ack", [("PING", 2), ("PING", 3)])


def test_what_a_call_begins_with_is_put_together_once(monkeypatch):
    made, command = Counter(), scripts.command

    def counted(name, **arguments):
        made[name] += 1
        return command(name, **arguments)

    monkeypatch.setattr(scripts, "command", counted)
    one = settling(Wire())
    for number in range(5):
        one.settle(ME, [Settlement(delivery(number), ACK), Settlement(delivery(number, LOG), ACK)])
    assert made == {"stream_ack": 1, "topic_ack": 1}


def test_unique_keys_are_released_before_their_messages_leave():
    wire = Wire()
    claims = delivery(1, claims=True)
    undecodable = Undecodable(READY, b"3-0", [b"x"], "no message")
    batch = [Settlement(each, Bury()) for each in (claims, delivery(2), undecodable)]
    settling(wire).settle(ME, [*batch, Settlement(delivery(4, claims=True), Retry())])
    ((unclaim, *others),) = wire.trips
    assert called(unclaim) == "waiting_unclaim"
    assert unclaim[2:] == (2, KEYS.ready, KEYS.claims, "billing", ME, b"1-0", "m1")
    assert list(map(called, others)) == ["stream_bury", "stream_retry"]


@pytest.mark.parametrize("stream", [READY, LOG])
def test_what_the_consumer_no_longer_holds_is_returned(stream):
    batch = [Settlement(delivery(number, stream), ACK) for number in (1, 2, 3)]
    receipts = [(stream, settlement.delivery.entry) for settlement in batch]
    lost = settling(Wire((b"2-0",)))
    assert lost.settle(ME, batch)[0] == ["m2"]
    assert lost.reassign(ME, OTHER, receipts) == [(stream, b"2-0")]
    # Without its group a stream has no deliveries left.
    gone = settling(Wire(ResponseError("NOGROUP No such key")))
    assert gone.settle(ME, batch)[0] == ["m1", "m2", "m3"]
    assert gone.reassign(ME, OTHER, receipts) == receipts
    broken = settling(Wire(ResponseError("WRONGTYPE Operation against a key")))
    with pytest.raises(WrongKeyType):
        broken.settle(ME, batch)
    with pytest.raises(WrongKeyType):
        broken.reassign(ME, OTHER, receipts)


def test_deliveries_of_all_streams_are_passed_on_in_one_trip():
    wire = Wire()
    receipts = [(stream, b"%d-0" % number) for number in range(BATCH + 1) for stream in (LOG, READY)]
    assert settling(wire).reassign(ME, OTHER, receipts) == []
    (commands,) = wire.trips
    assert list(map(called, commands)) == ["topic_reassign"] * 2 + ["stream_reassign"] * 2
    assert commands[-1][4:] == ("billing", ME, OTHER, b"%d-0" % BATCH)
    assert settling(wire).reassign(ME, OTHER, []) == []
    assert len(wire.trips) == 1


def test_a_refused_outcome_leaves_no_note(namespace, redis_client):
    """Neither for outboxes, nor for who looks for what has expired: another consumer may still handle it."""
    keys = GroupKeys(namespace, "orders", subscriber="billing")
    own = [stream_receipts(keys, each, keeps_rows=True) for each in (keys.ready, keys.urgent)]
    found = Settling(Pooled(redis_client), [*own, log_receipts(keys)])
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
