"""The history of a queue: what became of its messages."""

import json
from datetime import timedelta

import pytest

from mq_django.core.messages import ACK, Ack, Bury, Expire, HandBack, Retry, SetAside
from mq_django.stores.base import Settlement
from mq_django.stores.handled import MAX_DATA, MessageHistory, read_handled
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Session
from tests.seeding import opened
from tests.stores.cases import outgoing
from tests.stores.everything import ME, OTHER

DAY = timedelta(days=1)


@pytest.fixture
def keep(mq_settings):
    """Return a function that makes a queue with a history, and returns its store."""

    def make(**options):
        mq_settings(QUEUES={"emails": {"HISTORY": DAY, **options}})
        return opened("emails")

    return make


def history(store):
    return MessageHistory(store.config, Session(get_client("inspect")))


def taken(store, *items):
    store.publish(items)
    return store.take(ME, count=len(items))


def settle(store, deliveries, outcome=ACK, *, micros=1500, consumer=ME):
    settlements = [Settlement(delivery, outcome, micros=micros) for delivery in deliveries]
    return store.settle(consumer, settlements)


def newest(store, *, after="", limit=1000):
    return [found for _, found in history(store).newest(after=after, limit=limit)]


def test_a_handled_message_is_kept_with_its_times(keep, redis_client):
    store = keep()
    settle(store, taken(store, outgoing("welcome", {"user": 7}, id="m1", key="user:7", unique="u7", priority=3)))
    (found,) = newest(store)
    assert (found.id, found.name, found.key, found.unique, found.priority) == ("m1", "welcome", "user:7", "u7", 3)
    assert (found.ending, found.attempt, found.consumer, found.micros) == ("handled", 1, ME, 1500)
    assert found.finished_ms - found.started_ms == 1
    assert found.size == len('{"user":7}')
    assert history(store).find("m1") == found
    assert history(store).get(found.entry, "m1") == found
    for key in (store.keys.handled, store.keys.handled_ids):
        assert 0 < redis_client.pttl(key) <= DAY.total_seconds() * 1000


def test_what_ends_a_message_is_kept(keep, subtests, forget):
    for outcome, ending in (
        (ACK, "handled"),
        (Ack(b"1"), "handled"),
        (Expire(), "expired"),
        (Bury("no"), "buried"),
        (Retry(), None),
        (HandBack(), None),
        (SetAside(), None),
    ):
        with subtests.test(outcome=outcome, ending=ending):
            forget()
            store = keep()
            settle(store, taken(store, outgoing(id="m1")), outcome)
            assert [found.ending for found in newest(store)] == ([ending] if ending else [])


def test_data_is_written_only_if_asked_for(keep, redis_client):
    store = keep()
    settle(store, taken(store, outgoing(data={"text": "only here"}, id="m1")))
    assert not newest(store)[0].has_data
    assert b"only here" not in b"".join(redis_client.xrange(store.keys.handled)[0][1].values())


def test_data_is_written_without_secrets(keep, redis_client):
    store = keep(HISTORY={"AGE": DAY, "DATA": True})
    data = {"user": 7, "password": "hunter2", "text": "token=abc123"}
    settle(store, taken(store, outgoing(data=data, id="m1", key="sk_live_4eC39HqLyjWDarjtT1zdp7dc")))
    (found,) = newest(store)
    assert found.data == {"user": 7, "password": "[redacted]", "text": "token=[redacted]"}
    assert found.key == "[redacted]"
    written = b"".join(redis_client.xrange(store.keys.handled)[0][1].values())
    assert b"hunter2" not in written
    assert b"abc123" not in written
    assert b"sk_live" not in written


def test_headers_are_kept_with_the_data_only_and_without_secrets(keep, redis_client):
    sent = {"tenant": "t1", "accesstoken": "hunter2"}
    store = keep()
    settle(store, taken(store, outgoing(id="m1", headers=sent)))
    assert newest(store)[0].headers == {}
    store = keep(HISTORY={"AGE": DAY, "DATA": True})
    settle(store, taken(store, outgoing(id="m2", headers=sent), outgoing(id="m3")))
    bare, found = newest(store)[:2]
    assert (found.headers, bare.headers) == ({"tenant": "t1", "accesstoken": "[redacted]"}, {})
    written = b"".join(b"".join(fields.values()) for _, fields in redis_client.xrange(store.keys.handled))
    assert b"hunter2" not in written
    assert written.count(b"headers") == 1


def test_data_is_that_of_the_message_also_if_the_handler_changed_it(keep):
    store = keep(HISTORY={"AGE": DAY, "DATA": True})
    (delivery,) = taken(store, outgoing(data={"n": 1}, id="m1"))
    delivery.message.data["n"] = object()
    settle(store, [delivery])
    assert newest(store)[0].data == {"n": 1}


def test_long_data_is_left_out(keep):
    store = keep(HISTORY={"AGE": DAY, "DATA": True})
    settle(store, taken(store, outgoing(data="x" * (MAX_DATA - 1), id="long"), outgoing(data=None, id="none")))
    none, long = newest(store)
    assert (none.has_data, none.data) == (True, None)
    assert (long.has_data, long.size) == (False, MAX_DATA + 1)


def test_data_whose_headers_are_too_long_is_left_out_with_them(keep):
    store = keep(HISTORY={"AGE": DAY, "DATA": True})
    fitting = MAX_DATA - len('1{"note":""}')
    for number, size in enumerate((fitting, fitting + 1, MAX_DATA)):
        settle(store, taken(store, outgoing(data=1, id=f"m{number}", headers={"note": "x" * size})))
    assert [(found.has_data, len(found.headers)) for found in newest(store)] == [(False, 0), (False, 0), (True, 1)]


def test_a_delivery_that_is_no_longer_held_is_left_out(keep):
    store = keep()
    mine, lost = taken(store, outgoing(id="mine"), outgoing(id="lost"))
    store.reassign(ME, OTHER, [(lost.stream, lost.entry)])
    assert settle(store, [mine, lost]) == ["lost"]
    assert [found.id for found in newest(store)] == ["mine"]
    settle(store, [lost], Bury("no"), consumer=OTHER)
    assert [(found.id, found.ending) for found in newest(store)] == [("lost", "buried"), ("mine", "handled")]


def test_messages_that_are_settled_together_are_in_few_entries(keep, redis_client):
    store = keep()
    ids = [f"m{number}" for number in range(201)]
    settle(store, taken(store, *(outgoing(id=each) for each in ids)))
    assert redis_client.xlen(store.keys.handled) == 3
    assert redis_client.hget(store.keys.handled_ids, "total") == b"201"
    assert [found.id for found in newest(store)] == ids[::-1]


def test_urgent_messages_are_kept_as_well(keep):
    store = keep()
    deliveries = taken(store, outgoing(id="m1"), outgoing(id="m2"))
    settle(store, deliveries[:1], HandBack())
    again = store.take(ME, count=1)
    settle(store, [*again, *deliveries[1:]])
    assert {found.id for found in newest(store)} == {"m1", "m2"}


def test_pages_follow_one_another(keep):
    store = keep()
    ids = [f"m{number}" for number in range(7)]
    for each in ids[:3]:
        settle(store, taken(store, outgoing(id=each)))
    settle(store, taken(store, *(outgoing(id=each) for each in ids[3:])))
    found, after = [], ""
    while page := [*history(store).newest(after=after, limit=2)]:
        assert len(page) <= 2
        found += [message.id for _, message in page]
        after = page[-1][0]
    assert found == ids[::-1]
    assert len(newest(store, after="nonsense")) == 7


def test_it_is_trimmed_by_count(keep, redis_client):
    store = keep(HISTORY={"AGE": DAY, "COUNT": 3})
    for number in range(8):
        settle(store, taken(store, outgoing(id=f"m{number}")))
    assert history(store).trim() == (5, True)
    assert history(store).trim() == (0, False)
    assert [found.id for found in newest(store)] == ["m7", "m6", "m5"]
    assert set(redis_client.hkeys(store.keys.handled_ids)) == {b"i:m5", b"i:m6", b"i:m7", b"total"}
    assert redis_client.hget(store.keys.handled_ids, "total") == b"3"
    assert history(store).find("m0") is None


def test_it_is_trimmed_by_age(keep, redis_client):
    store = keep(HISTORY=timedelta(hours=1))
    old = int(redis_client.time()[0] - 3601) * 1000
    redis_client.xadd(store.keys.handled, {"old": json.dumps({"name": "a", "ending": "handled"})}, id=f"{old}-0")
    redis_client.hset(store.keys.handled_ids, mapping={"i:old": f"{old}-0", "total": 1})
    settle(store, taken(store, outgoing(id="m1")))
    assert history(store).trim() == (1, False)
    assert [found.id for found in newest(store)] == ["m1"]
    assert redis_client.hgetall(store.keys.handled_ids).keys() == {b"i:m1", b"total"}


def test_a_message_that_was_handled_again_is_found_with_the_latest_also_after_a_trim(keep):
    store = keep(HISTORY={"AGE": DAY, "COUNT": 1})
    settle(store, taken(store, outgoing(id="m1")), Bury("no"))
    settle(store, taken(store, outgoing(id="m1")))
    assert history(store).find("m1").ending == "handled"
    assert len(newest(store)) == 2
    assert history(store).trim().removed == 1
    assert history(store).find("m1").ending == "handled"


def test_a_broken_total_removes_nothing_that_is_to_be_kept(keep, redis_client, subtests, forget):
    for total in ("x", "", "9" * 400, "1e999", "nan", "-5"):
        with subtests.test(total=total):
            forget()
            store = keep()
            settle(store, taken(store, outgoing(id="m1")))
            redis_client.hset(store.keys.handled_ids, "total", total)
            assert history(store).trim() == (0, False)
            settle(store, taken(store, outgoing(id="m2")))
            assert [found.id for found in newest(store)] == ["m2", "m1"]


def test_an_index_without_history_is_deleted(keep, redis_client):
    store = keep()
    redis_client.hset(store.keys.handled_ids, "i:m1", "1-1")
    assert history(store).find("m1") is None
    assert history(store).trim() == (0, False)
    assert not redis_client.exists(store.keys.handled_ids)


def test_a_history_that_cannot_be_written_settles_all_the_same(keep, redis_client):
    store = keep()
    redis_client.set(store.keys.handled, "x")
    assert settle(store, taken(store, outgoing(id="m1"))) == []
    assert redis_client.xlen(store.keys.ready) == 0
    assert not redis_client.exists(store.keys.handled_ids)


def test_a_foreign_line_is_no_message(subtests):
    for line in (
        b"",
        b"x",
        b"[]",
        b'{"name":1,"ending":"handled"}',
        b'{"name":"a"}',
        b'{"name":"a","ending":{}}',
        b'{"name":"a","ending":"other"}',
        70_000,
    ):
        with subtests.test(line=line):
            assert read_handled("1-1", "m1", line) is None


def test_wrong_values_in_a_line_are_left_out():
    wrong = {"key": 1, "unique": [], "attempt": "x", "published": -1, "micros": 1e300, "finished": 10**30}
    wrong |= {"size": None, "consumer": {}, "priority": "high", "headers": {"tenant": 1}}
    found = read_handled("1-1", "m1", json.dumps({"name": "a", "ending": "handled", **wrong}).encode())
    assert (found.key, found.unique, found.attempt, found.published_ms) == (None, None, 1, None)
    assert (found.micros, found.finished_ms, found.started_ms, found.size) == (None, None, None, 0)
    assert (found.consumer, found.priority, found.headers) == ("", 0, {})


def test_foreign_entries_are_passed_over(keep, redis_client):
    store = keep()
    redis_client.xadd(store.keys.handled, {b"\xff": b"\xff", "a": "b"})
    settle(store, taken(store, outgoing(id="m1")))
    assert [found and found.id for found in newest(store)] == ["m1", None, None]
    assert history(store).get("nonsense", "m1") is None
    assert history(store).get("1-1", "m1") is None
