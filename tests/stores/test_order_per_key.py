"""Order per key on a real Redis: what a key waits for, and what lets it go on."""

from contextlib import suppress

import pytest

from mq_django import queues
from mq_django.conf import get_config
from mq_django.core.messages import ACK, Bury, Cancel, CancelResult, Expire, HandBack, Retry, SetAside
from mq_django.errors import ConnectionLost, NotSupported
from mq_django.stores import open_store
from mq_django.stores.base import Settlement
from mq_django.stores.dead_letters import open_dead_letters
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Session
from tests.purging import purge
from tests.waiting import wait_until


@pytest.fixture
def opened(open_queue):
    """Open an ordered queue."""
    return lambda number=1, **options: open_queue(number, **{"ORDERED": True, **options})


@pytest.fixture
def store(opened):
    return opened()


def publish(*texts, **options):
    """Publish messages whose key is the first letter of their data."""
    return [queues["emails"].publish("sms", text, key=text[0], **options) for text in texts]


def data(deliveries):
    return [item.message.data for item in deliveries]


def settle(store, deliveries, outcome=ACK, *, consumer="c1", **more):
    assert store.settle(consumer, [Settlement(item, outcome, **more) for item in deliveries]) == []


def keys():
    return get_config().queue("emails").keys


def dead():
    return open_dead_letters(get_config().queue("emails"), Session(get_client("consume")))


def test_of_each_key_one_message_runs_and_the_next_is_the_one_that_came_next(store, redis_client):
    publish("a1", "a2", "b1", "a3", "b2", "c1")
    order = []
    while held := store.take("c1", count=10):
        order.append(data(held))
        settle(store, held)
    assert order == [["a1", "b1", "c1"], ["a2", "b2"], ["a3"]]
    # At rest nothing of a line is left.
    kinds = ("parked", "next_checks", "permits", "waiting", "unique", "tags", "rates")
    assert not redis_client.exists(*(getattr(keys(), kind) for kind in kinds))


def test_what_runs_at_once_is_of_different_keys_for_any_number_of_consumers(opened):
    stores = opened(3)
    publish("a1", "b1", "a2", "c1", "b2", "a3")
    held = [store.take(f"c{number}", count=1) for number, store in enumerate(stores)]
    assert [data(each) for each in held] == [["a1"], ["b1"], ["c1"]]
    assert [store.take(f"c{number}", count=5) for number, store in enumerate(stores)] == [[], [], []]
    settle(stores[1], held[1], consumer="c1")
    assert data(stores[0].take("c0", count=5)) == ["b2"]


def test_plain_entries_with_a_partitionkey_have_the_same_order(store, redis_client):
    for text in ("a1", "a2", "b1"):
        redis_client.xadd(keys().ready, {"type": "sms", "data": f'"{text}"', "partitionkey": text[0]})
    held = store.take("c1", count=10)
    assert data(held) == ["a1", "b1"]
    settle(store, held)
    assert data(store.take("c1", count=10)) == ["a2"]


def test_the_key_is_found_in_an_object_however_it_is_written(store, redis_client, subtests, forget):
    for body in (
        '{"partitionkey":"ä","type":"sms","data":1}',
        '{"type":"sms","data":1,"partitionkey":"\\u00e4"}',
        ' { "type" : "sms" , "partitionkey" : "ä" , "data" : {"partitionkey":"other"} }',
    ):
        with subtests.test(body=body):
            forget()
            store.create_groups()
            queues["emails"].publish("sms", 0, key="ä")
            redis_client.xadd(keys().ready, {"message": body})
            held = store.take("c1", count=10)
            assert data(held) == [0]
            assert store.depths().parked == 1
            settle(store, held)
            assert [item.message.key for item in store.take("c1", count=10)] == ["ä"]


def test_messages_without_a_key_have_no_order(store):
    for number in range(3):
        queues["emails"].publish("sms", number)
    assert data(store.take("c1", count=10)) == [0, 1, 2]


def test_a_retry_keeps_its_place_and_its_key_waits_for_it(store):
    publish("a1", "a2", "b1")
    held = store.take("c1", count=10)
    settle(store, held[:1], Retry(), delay_ms=60_000)
    settle(store, held[1:])
    assert store.take("c1", count=10) == []
    assert store.reschedule(held[0].message.id, delay_ms=0) is CancelResult.RESCHEDULED
    store.promote(limit=10)
    again = store.take("c1", count=10)
    assert [(item.message.data, item.message.attempt) for item in again] == [("a1", 2)]
    settle(store, again)
    assert data(store.take("c1", count=10)) == ["a2"]


def test_a_retry_that_is_cancelled_lets_its_key_go_on(store):
    publish("a1", "a2")
    (held,) = store.take("c1", count=10)
    settle(store, [held], Retry(), delay_ms=60_000)
    assert store.cancel(held.message.id) is CancelResult.CANCELLED
    assert data(store.take("c1", count=10)) == ["a2"]


@pytest.mark.parametrize("outcome", [HandBack(), SetAside()], ids=["hand back", "nobody knows its name"])
def test_a_message_that_comes_again_is_the_next_of_its_key(store, outcome):
    publish("a1", "a2", "b1", "b2")
    settle(store, store.take("c1", count=1), outcome)
    if outcome == SetAside():
        held = store.take("c1", count=10)
        assert data(held) == ["b1"]
        settle(store, held, HandBack())
        store.release_unhandled(["sms"], limit=10)
    held = store.take("c1", count=10)
    assert sorted(data(held)) == ["a1", "b1"]
    settle(store, held)
    assert sorted(data(store.take("c1", count=10))) == ["a2", "b2"]


def test_every_end_lets_the_next_message_of_the_key_run(store, subtests, forget):
    for outcome in (ACK, Expire(), Bury("no"), Cancel()):
        with subtests.test(outcome=outcome):
            forget()
            store.create_groups()
            publish("a1", "a2")
            settle(store, store.take("c1", count=10), outcome)
            assert data(store.take("c1", count=10)) == ["a2"]


def test_a_dead_letter_that_is_redriven_after_its_key_went_on_comes_last(store):
    publish("a1", "a2", "a3")
    (held,) = store.take("c1", count=10)
    settle(store, [held], Bury("no"))
    assert dead().redrive(dead().find([held.message.id])) == ["REDRIVEN"]
    order = []
    while held := store.take("c1", count=10):
        order += data(held)
        settle(store, held)
    assert order == ["a2", "a3", "a1"]


@pytest.fixture
def held_key(opened):
    """Return a queue whose key `a` waits for a dead letter, and the entry of this."""
    store = opened(ON_DEAD_LETTER="hold")
    publish("a1", "a2", "b1")
    held = store.take("c1", count=10)
    settle(store, held[:1], Bury("no"))
    settle(store, held[1:])
    assert store.take("c1", count=10) == []
    return store, dead().find([held[0].message.id])


@pytest.mark.parametrize("corrected", [False, True])
def test_with_hold_the_key_waits_until_its_dead_letter_is_redriven_in_place_also_a_corrected_one(held_key, corrected):
    store, (entry,) = held_key
    if corrected:
        assert dead().resubmit(entry, message_id="new", text=b'"a1, corrected"') == "REDRIVEN"
    else:
        assert dead().redrive([entry]) == ["REDRIVEN"]
    held = store.take("c1", count=10)
    assert data(held) == ["a1, corrected" if corrected else "a1"]
    settle(store, held)
    assert data(store.take("c1", count=10)) == ["a2"]


def test_with_hold_the_key_goes_on_when_its_dead_letter_is_deleted(held_key):
    store, entries = held_key
    assert dead().delete(entries) == ["DELETED"]
    assert data(store.take("c1", count=10)) == ["a2"]


def test_a_purge_of_the_head_lets_its_key_go_on(store, subtests, forget):
    for place in ("ready", "delayed", "unhandled", ""):
        with subtests.test(place=place):
            forget()
            store.create_groups()
            publish("a1")
            held = store.take("c1", count=10)
            outcome = {"ready": HandBack(), "unhandled": SetAside()}.get(place, Retry())
            publish("a2")
            if place != "ready":
                # In the line of the key, unless everything is purged.
                assert store.take("c1", count=10) == []
            settle(store, held, outcome, delay_ms=60_000)
            purge(store.config, *filter(None, [place]))
            publish("a3")
            assert data(store.take("c1", count=1)) == (["a3"] if place in ("ready", "") else ["a2"])


def test_the_deliveries_of_a_dead_consumer_keep_their_places(opened):
    first, second = opened(2)
    publish("a1", "a2", "b1")
    assert data(first.take("dead", count=10)) == ["a1", "b1"]
    held = second.held_by("dead", limit=10)
    settle(second, held, HandBack(lost=True), consumer="dead")
    again = second.take("c2", count=10)
    assert data(again) == ["a1", "b1"]
    # It goes on after all, and changes nothing.
    assert first.settle("dead", [Settlement(item, ACK) for item in held]) == [item.message.id for item in held]
    assert second.take("c2", count=10) == []
    settle(second, again, consumer="c2")
    assert data(second.take("c2", count=10)) == ["a2"]


class OneTrip:
    """A connection that breaks after its first round trip, like that of a consumer that dies."""

    def __init__(self, session):
        self._session = session

    def pipeline(self, commands):
        if self._session is None:
            raise ConnectionLost("it has died")
        session, self._session = self._session, None
        return session.pipeline(commands)


def test_whoever_dies_right_after_it_has_settled_does_not_block_its_keys(opened):
    first, second = opened(2)
    publish("a1", "a2")
    held = first.take("c1", count=10)
    dying = open_store(get_config().queue("emails"), OneTrip(first._transport))
    with suppress(ConnectionLost):
        dying.settle("c1", [Settlement(item, ACK) for item in held])
    assert data(second.take("c2", count=10)) == ["a2"]


@pytest.mark.parametrize("waits", [False, True])
def test_what_comes_while_a_consumer_waits_has_its_order_too(opened, waits):
    first, second = opened(2)
    publish("a1")
    held = first.take("c1", count=10)
    if waits:
        assert second.take("c2", count=10) == []
    publish("a2", "a3", "b1", "b2")
    assert data(second.fetch("c2", count=10, block_ms=10)) == ["b1"]
    settle(first, held)
    assert data(second.take("c2", count=10)) == ["a2"]


def test_a_delivery_that_is_passed_on_keeps_its_key(store):
    publish("a1", "a2")
    (held,) = store.take("c1", count=10)
    assert store.reassign("c1", "quarantine", [(held.stream, held.entry)]) == []
    assert store.take("c1", count=10) == []
    settle(store, [held], consumer="quarantine")
    assert data(store.take("c1", count=10)) == ["a2"]


@pytest.mark.parametrize("is_pending", [True, False])
def test_a_head_that_another_program_deletes_does_not_block_its_key_for_ever(store, redis_client, is_pending):
    publish("a1", "a2")
    (held,) = store.take("c1", count=10)
    assert store.take("c1", count=10) == []
    if is_pending:
        redis_client.xdel(keys().ready, held.entry)
        # Its handler may still run.
        redis_client.zadd(keys().next_checks, dict.fromkeys(redis_client.zrange(keys().next_checks, 0, -1), 1))
        assert store.take("c1", count=10) == []
        settle(store, [held])
    else:
        redis_client.xack(keys().ready, "mq", held.entry)
        redis_client.zadd(keys().next_checks, dict.fromkeys(redis_client.zrange(keys().next_checks, 0, -1), 1))
    assert data(store.take("c1", count=10)) == ["a2"]


def test_a_head_that_is_deleted_before_it_is_passed_on_lets_its_key_go_on(store, redis_client):
    publish("a1", "a2")
    (held,) = store.take("c1", count=10)
    receipt = (held.stream, held.entry)
    redis_client.xdel(keys().ready, held.entry)
    # Extended it stays: its handler may still run.
    assert store.extend("c1", [receipt]) == []
    assert store.take("c1", count=10) == []
    # Nobody else can run it.
    assert store.reassign("c1", "quarantine", [receipt]) == [receipt]
    assert data(store.take("c1", count=10)) == ["a2"]
    assert redis_client.xpending(keys().ready, "mq")["pending"] == 0


def test_messages_that_cannot_be_read_have_their_places_too(store, redis_client):
    for data_text in ('"a1"', "{broken", '"a3"'):
        redis_client.xadd(keys().ready, {"type": "sms", "data": data_text, "partitionkey": "a"})
    settle(store, store.take("c1", count=10))
    (broken,) = store.take("c1", count=10)
    assert broken.fields[:4] == [b"type", b"sms", b"data", b"{broken"]
    settle(store, [broken], Bury("undecodable"))
    assert data(store.take("c1", count=10)) == ["a3"]


def test_thousands_of_messages_of_one_key_do_not_hold_up_another(store):
    queues["emails"].publish_many([("sms", n) for n in range(1500)], key="flood")
    publish("b1")
    seen = data(store.take("c1", count=10))
    for _ in range(20):
        seen += data(store.take("c1", count=10))
    assert seen == [0, "b1"]
    assert store.depths().parked == 1499


def test_a_priority_is_refused_before_anything_is_written(store, redis_client):
    with pytest.raises(NotSupported, match="ORDERED or FAIR, which priorities would break"):
        publish("a1", priority=1)
    assert redis_client.xlen(keys().ready) == 0


@pytest.fixture
def asks_again_at_once(monkeypatch):
    monkeypatch.setattr("mq_django.stores.control.ASK_AGAIN", 0.0)


@pytest.mark.usefixtures("asks_again_at_once")
def test_order_is_switched_off_only_when_nobody_goes_by_the_other_setting(opened, redis_client, caplog):
    ordered = opened()
    publish("a1", "a2", "a3")
    held = ordered.take("c0", count=10)
    redis_client.hset(keys().consumers, "supervisor:old", '{"host":"web1","ordered":true}')
    plain = opened(ORDERED=False)
    assert plain.take("c1", count=10) == []
    assert plain.rest() > 0
    assert "started with another ORDERED" in caplog.text
    assert plain.promote(limit=10).moved == 0
    redis_client.hdel(keys().consumers, "supervisor:old")
    settle(ordered, held, consumer="c0")
    wait_until(lambda: plain.rest() == 0)
    assert not redis_client.exists(keys().permits)
    plain.promote(limit=10)
    assert data(plain.take("c1", count=10)) == ["a2", "a3"]


@pytest.mark.usefixtures("asks_again_at_once")
def test_order_is_switched_on_only_when_nobody_goes_by_the_other_setting(opened, redis_client, caplog):
    plain = opened(ORDERED=False)
    publish("a1", "a2")
    (held, other) = plain.take("c0", count=10)
    ordered = opened()
    publish("a3")
    assert ordered.take("c1", count=10) == []
    assert ordered.rest() > 0
    assert "started with another ORDERED" in caplog.text
    settle(plain, [held, other], consumer="c0")
    redis_client.hset(keys().consumers, "supervisor:old", '{"host":"web1"}')
    assert ordered.take("c1", count=10) == []
    redis_client.hdel(keys().consumers, "supervisor:old")
    redis_client.hset(keys().consumers, "supervisor:new", '{"host":"web1","ordered":true}')
    wait_until(lambda: ordered.rest() == 0)
    assert data(ordered.take("c1", count=10)) == ["a3"]
