"""Every promise of `mq_django.stores.base.Store`, held against every store."""

import threading
import time
from operator import attrgetter

import pytest

from mq_django.consumers import decisions
from mq_django.consumers.decisions import Evidence
from mq_django.consumers.shared_state import Receipt
from mq_django.core.messages import ACK, Bury, Delivery, Expire, HandBack, LookupState, Retry, SetAside, Undecodable
from mq_django.core.publication import publication
from mq_django.core.retries import read_history
from mq_django.errors import AlreadyPublished, ConfigurationError, NotSupported, QueueFull
from mq_django.inspector.queues import quick_stats
from mq_django.stores.base import Also, Depths, Settlement
from mq_django.transport import scripts
from tests.purging import purge
from tests.stores.cases import CASES, GROUP, LINES, OPTIONS, RSMQ, STREAM, outgoing
from tests.stores.declared import guarded
from tests.stores.lua_files import lua_files
from tests.waiting import wait_until

pytestmark = [pytest.mark.versions, pytest.mark.cluster]

FORMS = [*CASES, LINES]
ME, OTHER = "host-1-me", "host-2-other"
#: Each outcome, with where it leaves a message. Dead letters stay, so the last one makes some.
LEFT = {
    ACK: {},
    Expire(): {},
    Retry(): {"delayed": 1},
    HandBack(): {"ready": 1},
    SetAside(): {"unhandled": 1},
    Bury("no"): {"dead": 1},
}


def name_of(case):
    return case.name


#: For tests that publish to the store itself: that of a topic is then as that of a group.
published_to_itself = pytest.mark.parametrize("case", [STREAM, LINES, GROUP, RSMQ], ids=name_of, indirect=True)


@pytest.fixture(params=FORMS, ids=name_of)
def case(request, mq_settings, namespace):
    mq_settings(**request.param.namespaced(namespace))
    return request.param


@pytest.fixture
def store(case):
    opened = case.open()
    # Whoever takes first makes the consumer group.
    assert opened.take("host-0-first", count=1) == []
    return opened


@pytest.fixture(autouse=True, scope="module")
def load_scripts(session_client):
    """Let the server know every script: one that it does not know runs after the others of its pipeline."""
    texts = [guarded(scripts.load)(name).text for name in lua_files()]

    def load():
        for text in texts:
            session_client.script_load(text)

    load()
    return load


@pytest.fixture
def publish(case, store):
    def publish(*some):
        return case.publish(store, *some)

    return publish


def numbers(deliveries):
    return [delivery.message.data for delivery in deliveries]


def settled(store, delivery, outcome, delay_ms=0, *, who=ME, **options):
    """Settle one delivery and tell whether it was still held."""
    stale = store.settle(who, [Settlement(delivery, outcome, delay_ms, **options)])
    return stale == []


def take_one(store, who=ME):
    (delivery,) = store.take(who, count=10)
    return delivery


def empty(store):
    return store.depths() == Depths(0, 0, 0, 0, 0)


def promoted(store):
    """Promote until something is ready, and take it."""

    def one():
        store.promote(limit=10)
        return store.take(ME, count=10)

    (delivery,) = wait_until(one)
    return delivery


def test_a_message_arrives_as_it_was_published(store, publish):
    before = int(time.time() * 1000) - 5
    some = outgoing(
        "order.paid",
        {"list": [], "big": 2**70, "text": "héllo ☃ 😀", "null": None, "x": 1.5},
        key="order:7",
        headers={"tenant": "a"},
        expires_ms=4_000_000_000_000,
        published_ms=before,
    )
    (message_id,) = publish(some)
    delivery = take_one(store)
    assert isinstance(delivery, Delivery)
    found = delivery.message
    assert (found.id, found.name, found.data) == (message_id, "order.paid", some.message.data)
    assert (found.key, dict(found.headers)) == ("order:7", {"tenant": "a"})
    assert (found.expires_ms, found.attempt) == (4_000_000_000_000, 1)
    assert found.queue == store.config.name
    assert found.published_ms is not None
    assert before <= found.published_ms <= time.time() * 1000 + 5


def test_a_batch_arrives_in_its_order(store, publish):
    publish(*(outgoing(data=n) for n in range(5)))
    publish(outgoing(data=5))
    assert numbers(store.take(ME, count=10)) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("outcome", [Retry(), SetAside(), HandBack()], ids=lambda outcome: type(outcome).__name__)
def test_messages_that_share_an_id_all_come_back(case, store, publish, outcome):
    if "message_id" in case.refuses:
        return  # Each has an id of its store.
    publish(*(outgoing(data=n, id="same") for n in range(4)))
    for _ in range(2):
        # Some of them wait already when the others do.
        held = [Settlement(item, outcome, 0) for some in (2, 2) for item in store.take(ME, count=some)]
        assert store.settle(ME, held[:3]) == store.settle(ME, held[3:]) == []
        store.release_unhandled(["welcome"], limit=10)
        wait_until(lambda: store.promote(limit=10).moved == 0 and store.depths().delayed == 0)
    found = store.take(ME, count=10)
    assert sorted(numbers(found)) == [0, 1, 2, 3]
    assert {item.message.id for item in found} == {"same"}
    assert {item.message.attempt for item in found} == {3 if isinstance(outcome, Retry) else 1}
    assert store.settle(ME, [Settlement(item, ACK) for item in found]) == []
    assert empty(store)


def test_a_message_goes_to_one_consumer_that_gets_no_more_than_it_asks_for(store, publish):
    publish(*(outgoing(data=n) for n in range(4)))
    mine, others = store.take(ME, count=2), store.take(OTHER, count=10)
    assert (numbers(mine), numbers(others)) == ([0, 1], [2, 3])
    assert store.take(ME, count=10) == store.take(OTHER, count=10) == []


def test_a_fetch_waits_for_a_message_and_not_longer(case, store, publish):
    assert store.take(ME, count=10) == store.fetch(ME, count=10, block_ms=20) == []
    publisher = case.open()
    timer = threading.Timer(0.1, lambda: case.publish(publisher, outgoing(data="late")))
    began = time.monotonic()
    timer.start()
    found = wait_until(lambda: store.fetch(ME, count=10, block_ms=100_000), timeout=200)
    assert numbers(found) == ["late"]
    assert time.monotonic() - began < 90
    timer.join()


def test_a_full_queue_refuses_and_writes_nothing(case, mq_settings, namespace):
    mq_settings(**case.limited(namespace, MAX_DEPTH=2))
    if "MAX_DEPTH" in case.lacks:
        with pytest.raises(ConfigurationError):
            case.open()
        return
    store = case.open()
    store.publish([outgoing(data=1)])
    with pytest.raises(QueueFull):
        store.publish([outgoing(data=2), outgoing(data=3)])
    with pytest.raises(QueueFull):
        store.publish([outgoing(data=2, delay_ms=1000), outgoing(data=3, delay_ms=1000)])
    if "claim" not in case.refuses:
        store.publish([outgoing(data=2, unique="a", claim_ms=0, on_conflict="error")])
        with pytest.raises(QueueFull):
            store.publish([outgoing(data=3, unique="b", claim_ms=0, on_conflict="error")])
        assert store.depths().depth == 2
        return
    assert store.depths().depth == 1


def test_what_has_expired_is_gone_and_its_id_is_known(store, publish):
    (message_id,) = publish(outgoing())
    assert store.find(message_id).state is LookupState.NOT_WAITING
    assert settled(store, take_one(store), Expire())
    assert empty(store)
    assert store.find(message_id).state is LookupState.EXPIRED


def test_who_does_not_hold_a_delivery_changes_nothing(store, publish):
    (message_id,) = publish(outgoing())
    delivery = take_one(store)
    for outcome in LEFT:
        assert store.settle(OTHER, [Settlement(delivery, outcome)]) == [message_id], outcome
        assert store.depths() == Depths(ready=0, delayed=0, unhandled=0, pending=1, dead=0), outcome
    assert settled(store, delivery, ACK)


def test_a_delivery_is_settled_once_and_goes_to_one_place(store, publish):
    for outcome, left in LEFT.items():
        publish(outgoing())
        delivery = take_one(store)
        assert settled(store, delivery, outcome, 60_000), outcome
        after = store.depths()
        assert {place: count for place, count in after._asdict().items() if count} == left, outcome
        for late in (outcome, ACK, Bury("no")):
            assert not settled(store, delivery, late, 60_000), (outcome, late)
        assert store.depths() == after, outcome
        clear(store)


def clear(store):
    """Leave only dead letters, which later ones do not disturb."""
    store.release_unhandled(None, limit=10)
    for delivery in store.take(ME, count=10):
        assert settled(store, delivery, ACK)
    purge(store.config, "delayed")


def test_a_retry_comes_again_with_the_next_attempt_and_the_same_message(store, publish):
    (message_id,) = publish(outgoing(data={"a": []}, key="k", headers={"tenant": "a"}))
    first = take_one(store)
    assert settled(store, first, Retry(), 0)
    second = promoted(store)
    assert second.message == first.message._replace(attempt=2)
    assert second.message.id == message_id
    assert [(item.entry, item.message.attempt) for item in store.held_by(ME, limit=10)] == [(second.entry, 2)]
    assert settled(store, second, HandBack())
    again = take_one(store)
    assert again.message.attempt == 2
    assert settled(store, again, Retry(), 0)
    assert promoted(store).message.attempt == 3


def test_a_retry_without_a_charge_has_the_same_attempt_again(store, publish):
    publish(outgoing())
    first = take_one(store)
    assert settled(store, first, Retry(error="away"), 0, uncharged=True)
    second = promoted(store)
    assert second.message.attempt == 1
    assert settled(store, second, Retry(error="away"), 0, uncharged=True)
    third = promoted(store)
    assert third.message.attempt == 1
    assert [(attempt.number, attempt.error) for attempt in read_history(third.history)] == [(1, "away")] * 2
    assert settled(store, third, Retry(), 0)
    assert promoted(store).message.attempt == 2


def test_what_is_handed_back_comes_first_and_uncharged(store, publish):
    publish(*(outgoing(data=n, key="k") for n in range(3)))
    taken = store.take(ME, count=2)
    assert store.settle(ME, [Settlement(delivery, HandBack()) for delivery in taken]) == []
    again = store.take(OTHER, count=10)
    assert numbers(again) == [0, 1, 2]
    assert [delivery.message.attempt for delivery in again] == [1, 1, 1]
    assert again[0].message == taken[0].message


def test_what_is_handed_back_reaches_a_waiting_consumer(case, store, publish):
    publish(outgoing(data=1))
    delivery = take_one(store)
    waiting = case.open()
    assert waiting.take(OTHER, count=1) == []
    timer = threading.Timer(0.1, lambda: settled(store, delivery, HandBack()))
    timer.start()
    began = time.monotonic()
    assert numbers(wait_until(lambda: waiting.fetch(OTHER, count=1, block_ms=100_000), timeout=200)) == [1]
    assert time.monotonic() - began < 90
    timer.join()


def test_what_is_buried_is_a_dead_letter_with_its_reason(store, publish, redis_client):
    (message_id,) = publish(outgoing("welcome", {"n": 1}, key="k"))
    assert settled(store, take_one(store), Bury("ValueError: no", "the traceback", reason="attempts"))
    assert store.depths() == Depths(ready=0, delayed=0, unhandled=0, pending=0, dead=1)
    ((entry, fields),) = redis_client.xrange(store.keys.dead)
    assert fields[b"id"].decode() == message_id
    assert (fields[b"type"], fields[b"data"], fields[b"partitionkey"]) == (b"welcome", b'{"n":1}', b"k")
    assert fields[b"deadreason"] == b"attempts"
    assert (fields[b"deaderror"], fields[b"deadtraceback"]) == (b"ValueError: no", b"the traceback")
    assert fields[b"deadattempts"] == b"1"
    assert redis_client.hget(store.keys.dead_ids, message_id) == entry


def test_what_nobody_here_can_handle_waits_for_who_can(store, publish):
    publish(*(outgoing(name, n) for n, name in enumerate(["new", "known", "new"])))
    new1, known, new2 = store.take(ME, count=10)
    assert store.settle(ME, [Settlement(new1, SetAside()), Settlement(known, ACK), Settlement(new2, SetAside())]) == []
    assert store.depths() == Depths(ready=0, delayed=0, unhandled=2, pending=0, dead=0)
    assert store.find(new1.message.id).state is LookupState.UNHANDLED
    assert store.take(ME, count=10) == []
    assert store.promote(limit=10).unhandled == 2
    assert store.release_unhandled(["known", "other"], limit=10) == 0
    assert store.release_unhandled(["known", "new"], limit=10) == 2
    again = store.take(ME, count=10)
    assert sorted((item.message for item in again), key=attrgetter("data")) == [new1.message, new2.message]


def test_a_mixed_batch_settles_in_one_trip_and_brings_the_next(store, publish):
    publish(*(outgoing(data=n) for n in range(8)))
    held = store.take(ME, count=4)
    (foreign,) = store.take(OTHER, count=1)
    outcomes = [ACK, Retry(), Bury("no"), HandBack()]
    batch = [Settlement(delivery, outcome, 60_000) for delivery, outcome in zip(held, outcomes, strict=True)]
    fetched = store.settle_and_take(ME, [*batch, Settlement(foreign, ACK)], count=2)
    assert fetched.stale == [foreign.message.id]
    assert numbers(fetched.deliveries) == [3, 5]
    assert store.depths() == Depths(ready=2, delayed=1, unhandled=0, pending=3, dead=1)


def test_commands_travel_along(store, publish, redis_client):
    first, second = (store.keys.result(name) for name in ("first", "second"))
    publish(outgoing())
    store.settle(ME, [Settlement(take_one(store), ACK)], also=Also([("SET", first, "1")]))
    assert redis_client.get(first) == b"1"
    publish(outgoing())
    store.settle_and_take(ME, [Settlement(take_one(store), ACK)], count=1, also=Also([("SET", second, "1")]))
    assert redis_client.get(second) == b"1"


def test_what_is_no_message_is_buried_with_its_bytes(case, store, redis_client):
    case.publish_garbage(store, redis_client, b"\xff\x00 not a message")
    (item,) = store.take(ME, count=10)
    assert isinstance(item, Undecodable)
    assert settled(store, item, Bury(item.reason, reason="undecodable"))
    assert store.depths() == Depths(ready=0, delayed=0, unhandled=0, pending=0, dead=1)
    ((_, fields),) = redis_client.xrange(store.keys.dead)
    assert b"\xff\x00 not a message" in fields[b"deadraw"]
    assert fields[b"deadreason"] == b"undecodable"


@published_to_itself
def test_a_delayed_message_is_never_early(store):
    store.publish([outgoing(data="late", delay_ms=50_000)])
    assert store.take(ME, count=10) == []
    due = time.time() * 1000 + 150
    store.publish([outgoing(data=1, delay_ms=150)])
    assert numbers([promoted(store)]) == [1]
    assert time.time() * 1000 >= due
    assert store.depths().delayed == 1


@published_to_itself
def test_a_message_can_wait_for_a_moment_and_is_then_at_its_first_attempt(store):
    store.publish([outgoing(data=1, due_ms=int(time.time() * 1000) + 100_000), outgoing(data=2, due_ms=1000)])
    found = promoted(store)
    assert (found.message.data, found.message.attempt) == (2, 1)


@published_to_itself
def test_the_next_due_time_is_told(store):
    assert store.promote(limit=10).next_us is None
    store.publish([outgoing(delay_ms=900_000)])
    store.publish([outgoing(delay_ms=500_000)])
    assert 400_000_000 < store.promote(limit=10).next_us <= 500_001_000


@published_to_itself
def test_a_message_can_be_cancelled_once_unless_somebody_holds_it(store):
    (message_id,) = store.publish([outgoing(delay_ms=50_000)])
    assert store.cancel(message_id)
    assert not store.cancel(message_id)
    assert empty(store)
    (message_id,) = store.publish([outgoing()])
    delivery = take_one(store)
    assert not store.cancel(message_id)
    assert settled(store, delivery, ACK)


def test_a_paused_queue_gives_nothing_and_goes_on(store, publish, redis_client):
    publish(outgoing(data=1))
    redis_client.hset(store.keys.control, "paused", "1")
    assert store.take(ME, count=10) == []
    assert store.promote(limit=10).paused
    redis_client.hdel(store.keys.control, "paused")
    assert numbers([take_one(store)]) == [1]


def test_what_a_consumer_holds_is_told_without_counting(store, publish):
    publish(*(outgoing(data=n) for n in range(4)))
    mine = store.take(ME, count=2)
    store.take(OTHER, count=2)
    for _ in range(2):
        assert [item.entry for item in store.held_by(ME, limit=10)] == [item.entry for item in mine]
    assert [item.message for item in store.held_by(ME, limit=10)] == [item.message for item in mine]
    assert len(store.held_by(ME, limit=1)) == 1
    assert list(store.held_by("nobody", limit=10)) == []
    assert store.settle(ME, [Settlement(item, HandBack()) for item in store.held_by(ME, limit=10)]) == []
    assert [item.message.attempt for item in store.take(OTHER, count=10)] == [1, 1]


def test_a_consumer_that_holds_something_stays_on_the_roll(case, store, publish):
    publish(outgoing())
    members = case.members()
    membership = members.beat("s1", {"pid": 1}, {ME: {"pid": 2}})
    assert (membership.beats, set(membership.consumers)) == ({"s1": 1}, {ME})
    delivery = take_one(store)
    assert members.leave([ME], supervisor="s1") == [ME]
    assert settled(store, delivery, ACK)
    assert members.leave([ME], supervisor="s1") == []
    assert members.beat("s2", {}, {}).consumers == {}


def test_a_server_that_lost_its_scripts_loses_nothing(case, store, publish, redis_client, load_scripts):
    publish(outgoing(data=1))
    redis_client.script_flush()
    publish(outgoing(data=2))
    redis_client.script_flush()
    first, second = store.take(ME, count=10)
    redis_client.script_flush()
    assert store.settle(ME, [Settlement(first, ACK), Settlement(second, Bury("no"))]) == []
    assert store.depths() == Depths(ready=0, delayed=0, unhandled=0, pending=0, dead=1)
    load_scripts()


@published_to_itself
def test_what_a_store_cannot_do_is_refused(case, store):
    tried = {
        "priority": {"priority": 5},
        "unique": {"unique": "u", "delay": 1},
        "claim": {"unique": "v", "unique_for": 1},
        "message_id": {"message_id": "any"},
    }
    assert case.refuses <= set(tried)
    for what, options in tried.items():
        if what in case.refuses:
            # It says who cannot, and what.
            with pytest.raises(NotSupported, match=r"RSMQ's format, which has no |read in one order"):
                publication(store.config, "welcome", 1, **options)
        else:
            store.publish([publication(store.config, "welcome", 1, **options)])
    assert store.depths().depth == len(set(tried) - case.refuses)


def test_an_option_that_a_store_does_not_have_is_a_problem_of_the_settings(case, mq_settings, namespace):
    for option, value in OPTIONS.items():
        mq_settings(**case.limited(namespace, **{option: value}))
        if option in case.lacks:
            with pytest.raises(ConfigurationError, match=option):
                case.open()
        else:
            assert case.open().config.name == case.queue, option


def test_a_store_without_limits_holds_nobody_up(store, publish):
    publish(*(outgoing(data=n, key="k") for n in range(3)))
    taken = store.take(ME, count=3)
    assert store.rest() == 0.0
    assert list(store.admit(ME, taken)) == list(taken)


@published_to_itself
def test_a_unique_message_is_there_once(case, store):
    first, second = (outgoing(data=n, unique="u", delay_ms=50_000) for n in range(2))
    kept_out, refused = (outgoing(unique="u", delay_ms=50_000, on_conflict=word) for word in ("keep", "error"))
    if "unique" in case.refuses:
        return
    assert store.publish([first]) == [first.message.id]
    assert store.publish([second]) == [second.message.id]
    assert store.publish([kept_out]) == [second.message.id]
    with pytest.raises(AlreadyPublished):
        store.publish([refused])
    assert store.depths() == Depths(ready=0, delayed=1, unhandled=0, pending=0, dead=0)
    assert store.find("u:u").message.data == 1
    assert store.cancel("u:u")
    assert empty(store)


@published_to_itself
def test_a_delayed_message_is_found_and_rescheduled(store):
    before = time.time() * 1000
    (message_id,) = store.publish([outgoing("welcome", {"n": [1]}, delay_ms=50_000, key="k")])
    found = store.find(message_id)
    assert (found.state, found.message.id, found.message.data) == (LookupState.DELAYED, message_id, {"n": [1]})
    assert (found.message.name, found.message.key) == ("welcome", "k")
    assert before + 40_000 < found.due_ms < time.time() * 1000 + 60_000
    assert store.reschedule(message_id, due_ms=4_000_000_000_000)
    assert store.find(message_id).due_ms == 4_000_000_000_000
    assert store.reschedule(message_id, delay_ms=1)
    assert promoted(store).message.id == message_id
    assert not store.reschedule(message_id, delay_ms=1)
    assert not store.find("nobody")
    assert not store.reschedule("nobody", delay_ms=1)


def test_a_retry_is_not_early_and_can_come_at_once_or_be_cancelled(store, publish):
    (message_id,) = publish(outgoing(data=7))
    assert settled(store, take_one(store), Retry(), 60_000)
    result = store.promote(limit=10)
    assert (result.moved, store.take(ME, count=1)) == (0, [])
    assert 0 < result.next_us <= 60_001_000
    found = store.find(message_id)
    assert (found.state, found.message.attempt, found.message.data) == (LookupState.DELAYED, 2, 7)
    assert store.reschedule(message_id, delay_ms=0)
    again = promoted(store)
    assert again.message.attempt == 2
    assert settled(store, again, Retry(), 60_000)
    assert store.cancel(message_id)
    assert empty(store)


def test_a_purge_deletes_what_nobody_holds_and_nothing_else(store, publish):
    publish(*(outgoing(data=n) for n in range(3)))
    (held,) = store.take(ME, count=1)
    store.publish([outgoing(delay_ms=50_000)])
    assert len(purge(store.config, "delayed")) == 1
    assert store.depths().delayed == 0
    # What a group has not read stays in the log of its topic, for other groups.
    left = quick_stats(store.config.name).lag
    assert len(purge(store.config)) == 2 - left
    assert store.depths() == Depths(ready=left, delayed=0, unhandled=0, pending=1, dead=0)
    assert settled(store, held, ACK)


def test_what_is_released_is_bounded(store, publish):
    publish(*(outgoing("new", n) for n in range(5)))
    taken = store.take(ME, count=20)
    assert store.settle(ME, [Settlement(item, SetAside()) for item in taken]) == []
    assert store.release_unhandled(["new"], limit=3) == 3
    assert store.release_unhandled(["new"], limit=3) == 2
    assert store.release_unhandled(["new"], limit=3) == 0
    assert sorted(numbers(store.take(ME, count=20))) == [0, 1, 2, 3, 4]


def test_many_consumers_handle_each_message_once(case, store, publish):
    ids = publish(*(outgoing(data=n) for n in range(300)))
    done: list[str] = []
    stale: list[str] = []

    def consume(name):
        mine = case.open()
        while taken := mine.take(name, count=7):
            lost = mine.settle(name, [Settlement(item, ACK) for item in taken])
            stale.extend(lost)
            done.extend(item.message.id for item in taken)

    threads = [threading.Thread(target=consume, args=(f"host-{n}-c",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(done) == sorted(ids)
    assert stale == []
    assert empty(store)


def test_deliveries_stay_and_move_with_who_holds_them(store, publish):
    publish(*(outgoing(data=n) for n in range(4)))
    mine, others = store.take(ME, count=2), store.take(OTHER, count=2)
    receipts = [(item.stream, item.entry) for item in mine]
    foreign = [(item.stream, item.entry) for item in others]
    assert store.extend(ME, receipts + foreign) == foreign
    assert store.reassign(ME, "host-3-heir", receipts + foreign) == foreign
    assert list(store.held_by(ME, limit=10)) == []
    assert store.settle(ME, [Settlement(mine[0], ACK)]) == [mine[0].message.id]
    held = store.held_by("host-3-heir", limit=10)
    assert [item.message for item in held] == [item.message for item in mine]
    assert store.settle("host-3-heir", [Settlement(item, ACK) for item in held]) == []
    assert store.extend(ME, receipts) == receipts
    assert store.settle(OTHER, [Settlement(item, ACK) for item in others]) == []
    assert empty(store)


def test_what_was_running_when_its_process_died_runs_alone(store, publish):
    publish(outgoing())
    assert settled(store, take_one(store), Retry(), 0, alone=True)
    again = promoted(store)
    assert (again.alone, again.message.attempt) == (True, 2)
    assert settled(store, again, HandBack())
    again = take_one(store)
    assert (again.alone, again.message.attempt) == (True, 2)


def test_what_loses_its_machine_twice_runs_alone(store, publish):
    publish(outgoing())
    assert settled(store, take_one(store), HandBack(lost=True))
    again = take_one(store)
    assert not again.alone
    assert settled(store, again, HandBack(lost=True))
    assert take_one(store).alone


def test_what_ran_beside_others_when_their_process_died_runs_alone_uncharged(store, publish):
    publish(outgoing())
    assert settled(store, take_one(store), HandBack(suspect=True))
    again = take_one(store)
    assert (again.alone, again.suspect, again.message.attempt) == (True, True, 1)
    # Whoever stops with it gives it back as it is.
    assert settled(store, again, HandBack())
    again = take_one(store)
    assert (again.alone, again.suspect, again.message.attempt) == (True, True, 1)
    assert settled(store, again, ACK)
    assert empty(store)


def test_who_kills_alone_is_charged_for_the_first_time_as_well(store, publish):
    publish(outgoing())
    assert settled(store, take_one(store), HandBack(suspect=True))
    assert store.settle(ME, [crashed(store)]) == []
    again = promoted(store)
    assert (again.alone, again.suspect, again.message.attempt) == (True, False, 3)
    assert store.settle(ME, [crashed(store, again)]) == []
    assert promoted(store).message.attempt == 4


def crashed(store, delivery=None):
    """Return what was running alone when its process died, and how that is settled."""
    found = delivery or take_one(store)
    receipt = Receipt(0, found.stream, found.entry)
    return decisions.settlement(store.config, 0, found, Evidence(running=[receipt]))


def test_a_suspect_that_only_fails_is_charged_once_and_has_company_again(store, publish):
    publish(outgoing())
    assert settled(store, take_one(store), HandBack(suspect=True))
    assert settled(store, take_one(store), Retry())
    again = promoted(store)
    assert (again.alone, again.suspect, again.message.attempt) == (False, False, 2)
