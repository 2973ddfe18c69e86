"""A program that reads an ordered queue without its script is noticed, and consumers that work never are."""

import threading

import pytest

from mq_django import inspector, queues
from mq_django.conf import get_config
from mq_django.core.clock import now_ms
from mq_django.core.outcomes import ACK, Bury, Cancel, HandBack, Retry, SetAside
from mq_django.inspector.problem_sentences import sentence
from mq_django.inspector.queue_view import RECENT
from mq_django.stores.base import Settlement
from mq_django.stores.damage import REPEATED_AFTER, DamageCheck
from mq_django.stores.dead_letters import open_dead_letters
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Session

ME, STRANGER = "host-1-me", "other-program"


@pytest.fixture
def store(open_queue):
    return open_queue(ORDERED=True, ON_DEAD_LETTER="hold")


@pytest.fixture
def find(store):
    """Look for damage, as each heartbeat does."""
    return DamageCheck(get_config().queue("emails"), Session(get_client("chores"))).find


def publish(count, **options):
    for number in range(count):
        queues["emails"].publish("sms", number, **{"key": "a", **options})


def read_plainly(store, client, count=10):
    """Read as a program does that knows of no lines."""
    reply = client.xreadgroup(store.keys.group, STRANGER, {store.keys.ready: ">"}, count=count)
    return [entry for _, entries in reply for entry, _ in entries]


def settle(store, items, outcome=ACK, **more):
    assert store.settle(ME, [Settlement(item, outcome, **more) for item in items]) == []


def problems():
    view = inspector.queue("emails")
    return [sentence(view, what) for what in view.problems() if what == "damaged"]


def test_who_reads_without_the_script_is_named_once(store, find, redis_client):
    publish(3)
    assert find() == []
    read_plainly(store, redis_client)
    (damage,) = find()
    assert (damage.kind, damage.messages, damage.consumer) == ("UNORDERED", 3, STRANGER)
    assert f"consumer {STRANGER} holds messages with a key that lines_fetch did not deliver" in str(damage)
    (problem,) = problems()
    assert "messages of its keys are read without their order" in problem
    assert find() == []


def test_it_is_said_again_while_it_goes_on(store, find, redis_client):
    publish(1)
    read_plainly(store, redis_client)
    assert len(find()) == 1
    redis_client.hset(store.keys.control, "check:order", now_ms() - REPEATED_AFTER - 1)
    assert len(find()) == 1
    redis_client.hset(store.keys.control, "check:order", "nonsense")
    assert len(find()) == 1


def test_the_problem_does_not_end_before_it_is_said_again():
    assert REPEATED_AFTER < RECENT * 60_000


def test_a_stranger_is_found_among_consumers_that_hold_more(store, find, redis_client):
    for number in range(50):
        publish(1, key=f"k{number}")
    store.take(ME, count=50)
    publish(20, key=None)
    publish(1, key="z")
    redis_client.xreadgroup(store.keys.group, "b", {store.keys.ready: ">"}, count=20)
    read_plainly(store, redis_client)
    (damage,) = find()
    assert (damage.messages, damage.consumer) == (1, STRANGER)


def test_a_key_in_the_body_of_a_plain_xadd_counts(store, find, redis_client):
    redis_client.xadd(store.keys.ready, {"message": '{"type":"sms","partitionkey":"a","data":1}'})
    read_plainly(store, redis_client)
    assert [each.kind for each in find()] == ["UNORDERED"]


def test_a_message_without_a_key_has_no_order(store, find, redis_client):
    publish(3, key=None)
    redis_client.xadd(store.keys.ready, {"message": "nonsense"})
    read_plainly(store, redis_client)
    assert find() == []


def test_an_entry_that_was_deleted_is_no_reason(store, find, redis_client):
    publish(1)
    entries = read_plainly(store, redis_client)
    redis_client.xdel(store.keys.ready, *entries)
    assert "UNORDERED" not in [each.kind for each in find()]


def test_a_token_that_was_deleted_is_one(store, find, redis_client):
    publish(1)
    store.take(ME, count=1)
    redis_client.delete(store.keys.permits)
    assert [(each.kind, each.consumer) for each in find()] == [("UNORDERED", ME)]


def test_an_unprintable_name_is_shown_harmlessly(store, find, redis_client):
    publish(1)
    redis_client.xreadgroup(store.keys.group, b"a\n\xff" + b"b" * 500, {store.keys.ready: ">"})
    (damage,) = find()
    assert damage.consumer.startswith("a<U+000A>")
    assert len(damage.consumer) == 200


def test_without_order_nothing_is_looked_at(open_queue, redis_client, subtests, forget):
    for options in ({}, {"FAIR": True}, {"CONCURRENCY": {"key": 1}}):
        with subtests.test(options=options):
            forget()
            store, check = (
                open_queue(**options),
                DamageCheck(get_config().queue("emails"), Session(get_client("chores"))),
            )
            publish(2)
            read_plainly(store, redis_client)
            assert check.find() == []


def test_no_transition_of_a_message_is_taken_for_it(store, find):
    """A message keeps its token, or loses it with its delivery, wherever it goes."""
    publish(4)
    publish(2, key="b")
    dead = open_dead_letters(get_config().queue("emails"), Session(get_client("consume")))
    for outcome in (Retry(), HandBack(), SetAside(), Bury("no", reason="attempts"), Cancel(), ACK):
        taken = store.take(ME, count=10)
        assert taken
        assert find() == []
        store.reassign(ME, "host-1-quarantine", [(item.stream, item.entry) for item in taken])
        assert find() == []
        store.reassign("host-1-quarantine", ME, [(item.stream, item.entry) for item in taken])
        settle(store, taken, outcome)
        assert find() == []
        store.promote(limit=10)
        store.release_unhandled(None, limit=10)
        dead.redrive([entry for entry in dead.find([item.message.id for item in taken]) if entry])
        assert find() == []
    while taken := store.take(ME, count=10):
        assert find() == []
        settle(store, taken)
    assert find() == []
    assert problems() == []


def test_consumers_that_are_just_fetching_and_settling_are_not_taken_for_it(open_queue):
    """The checks run all the time between the scripts of two consumers."""
    one, other = open_queue(2, ORDERED=True)
    for number in range(60):
        publish(1, key=f"k{number % 7}")
    check, found = DamageCheck(get_config().queue("emails"), Session(get_client("chores"))), []
    threads = [threading.Thread(target=_work, args=(store, name)) for store, name in ((one, "c1"), (other, "c2"))]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        found += check.find()
    for thread in threads:
        thread.join()
    assert found == []
    assert one.depths().ready == 0


def _work(store, name):
    outcomes, number = [ACK, ACK, HandBack()], 0
    while store.depths().ready or store.depths().parked or store.depths().pending:
        for item in store.take(name, count=3):
            number += 1
            store.settle(name, [Settlement(item, outcomes[number % 3])])
