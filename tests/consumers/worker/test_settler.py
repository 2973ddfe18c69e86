"""Outcomes on their way to Redis, whatever happens to it or to them."""

import threading
from contextlib import suppress

import pytest

from mq_django.conf import get_config
from mq_django.consumers.processes import Grace
from mq_django.consumers.shared_state import SharedState
from mq_django.consumers.worker.consumer import Consumer, slots
from mq_django.consumers.worker.settler import FULL, Settler, SettleService
from mq_django.core.messages import ACK, Ack, HandBack, Retry
from mq_django.errors import ConnectionLost, WrongKeyType
from mq_django.signals import delivery_stale
from mq_django.stores import open_store
from mq_django.stores.base import Fetched, Settlement
from mq_django.stores.counters import WAITED, bucket, latency_bucket
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Session
from tests.hearing import hears
from tests.signal_docs import arguments_of
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster


class Broken:
    """A transport that breaks before or after the server has got the commands, as often as told."""

    def __init__(self, transport):
        self.transport = transport
        self.before = self.after = 0

    def pipeline(self, commands):
        if self.before:
            self.before -= 1
            raise ConnectionLost("before")
        replies = self.transport.pipeline(commands)
        if self.after:
            self.after -= 1
            raise ConnectionLost("after")
        return replies


@pytest.fixture
def transport(mq_settings):
    session = Session(get_client("chores"))
    yield Broken(session)
    session.release()


@pytest.fixture
def store(transport):
    return open_store(get_config().queue("default"), transport)


@pytest.fixture
def settler(store):
    return Settler(store, "default", "me", threading.Event(), threading.Event())


@pytest.fixture
def held(store, settler, publish):
    """Five deliveries that this consumer holds."""
    for number in range(5):
        publish(["sleep", number])
    store.create_groups()
    deliveries = store.take("me", count=5)
    settler.in_hand.update({(delivery.stream, delivery.entry): delivery.message.id for delivery in deliveries})
    return deliveries


def add(settler, deliveries, outcome):
    for delivery in deliveries:
        settler.add(Settlement(delivery, outcome))


@pytest.mark.parametrize(
    ("side", "way"), [("before", "settle_and_take"), ("after", "settle"), ("after", "settle_and_take")]
)
def test_what_a_broken_trip_carried_is_kept_settled_once_and_counted_once(
    settler, store, transport, held, caplog, redis_client, side, way
):
    add(settler, held[:3], ACK)
    add(settler, held[3:], Retry())
    setattr(transport, side, 1)
    with pytest.raises(ConnectionLost):
        getattr(settler, way)(store, **({"count": 1} if way == "settle_and_take" else {}))
    assert (len(settler), len(settler.in_hand)) == (5, 5)
    settler.settle(store)
    assert (len(settler), len(settler.in_hand)) == (0, 0)
    depths = store.depths()
    assert (depths.pending, depths.delayed, depths.ready) == (0, 2, 0)
    # Whether the first pipeline settled them nobody knew; that they were gone is no news.
    assert "no longer holds it" not in caplog.text
    settler.try_refused(store)
    assert all_counted(redis_client, store) == (3, 2)


def test_handling_times_are_added_up_once_although_a_trip_is_repeated(settler, store, transport, held):
    for delivery in held[:2]:
        settler.add(Settlement(delivery, ACK, micros=1500))
    transport.after = 1
    with pytest.raises(ConnectionLost):
        settler.settle(store)
    settler.settle(store)
    assert (settler.settled, settler.micros) == (2, 3000)


def test_what_redis_refuses_for_a_while_keeps_back_no_other_and_counts_once(settler, store, held, caplog, redis_client):
    redis_client.set(store.keys.due, "x")
    add(settler, held[:2], Retry())
    add(settler, held[2:], ACK)
    settler.settle(store)
    assert (len(settler), len(settler.in_hand)) == (0, 2)
    for _ in range(3):
        settler.try_refused(store)
    assert len(settler.in_hand) == 2
    redis_client.delete(store.keys.due)
    settler.try_refused(store)
    settler.try_refused(store)
    assert settler.in_hand == {}
    assert (store.depths().pending, store.depths().delayed) == (0, 2)
    assert all_counted(redis_client, store) == (3, 2)
    assert "no longer holds it" not in caplog.text


@pytest.fixture
def told():
    """What the receivers of `delivery_stale` were given. They raise."""
    with hears(delivery_stale, raises=RuntimeError("not our problem")) as found:
        yield found


def test_what_others_took_is_told_once_and_counted(settler, store, held, caplog, redis_client, told):
    store.reassign("me", "other", [(held[0].stream, held[0].entry)])
    add(settler, held, ACK)
    settler.settle(store)
    assert [given["message_id"] for given in told] == [held[0].message.id]
    assert set(told[0]) == arguments_of(delivery_stale)
    assert caplog.text.count("no longer holds it") == 1
    assert (len(settler), store.depths().pending) == (0, 1)
    add(settler, held[:1], HandBack())
    settler.settle(store)
    assert sum(counted(redis_client, store, "stale")) == 1 * 2  # once in the minutes, once in the hours


@pytest.mark.parametrize("settles", [Settler.settle, lambda settler, store: settler.settle_and_take(store, count=1)])
def test_what_others_took_is_counted_although_a_trip_fails(settler, transport, store, held, redis_client, settles):
    store.reassign("me", "other", [(held[0].stream, held[0].entry)])
    add(settler, held[:2], ACK)
    settler.settle(store)
    add(settler, held[2:], ACK)
    transport.before = 1
    with pytest.raises(ConnectionLost):
        settles(settler, store)
    settler.settle(store)
    assert sum(counted(redis_client, store, "stale")) == 1 * 2


def test_what_others_took_is_counted_when_no_batch_follows(settler, transport, store, held, redis_client):
    """At the end of the consumer."""
    store.reassign("me", "other", [(held[0].stream, held[0].entry)])
    add(settler, held, ACK)
    settler.settle(store)
    service = SettleService()
    service.add(settler, store)
    transport.before = 1
    with pytest.raises(ConnectionLost):
        service.count_stale()
    for _ in range(2):
        service.count_stale()
        assert sum(counted(redis_client, store, "stale")) == 1 * 2


def test_a_consumer_counts_at_its_end_what_others_took(store, redis_client):
    shared_state = SharedState.create(slots(1))
    consumer = Consumer("me", [get_config().queue("default")], threads=1, shared_state=shared_state)
    consumer._settlers[0]._stale = 1
    consumer.start()
    assert consumer.stop(Grace(60.0))
    assert sum(counted(redis_client, store, "stale")) == 1 * 2
    shared_state.close()


def all_counted(client, store):
    """Return how often an ack and a retry was counted: in the minutes and the hours, by name and in all."""
    return tuple(sum(counted(client, store, word)) / 4 for word in ("handled", "retried"))


def counted(client, store, word):
    for key in client.scan_iter(match=store.keys.ready.replace(":ready", ":counters:*")):
        for field, value in client.hgetall(key).items():
            if f"|{word}|".encode() in field:
                yield int(value)


def test_a_read_that_took_refused_outcomes_along_loses_nothing(settler, store, held, redis_client, publish):
    publish()
    redis_client.set(store.keys.due, "x")
    add(settler, held, Retry())
    with pytest.raises(WrongKeyType):
        settler.settle_and_take(store, count=1)
    redis_client.delete(store.keys.due)
    settler.settle(store)
    assert store.depths().delayed == 5
    # The message is in our own pending list, for the fetcher to find.
    assert len(store.held_by("me", limit=10)) == 1


def test_one_outcome_that_cannot_be_written_keeps_back_nobody(settler, store, held, caplog):
    add(settler, held[:4], ACK)
    settler.add(Settlement(held[4], Ack(result=object()), keeps_result=True))
    settler.settle(store)
    assert len(settler.in_hand) == 1
    settler.try_refused(store)
    assert settler.in_hand == {}
    assert store.depths().pending == store.depths().dead == 0
    assert "Cannot write an outcome" in caplog.text


def test_the_latency_of_a_batch_is_that_of_its_first(settler, store, held, redis_client):
    """Counted by one for all: those of a batch ended within a few milliseconds."""
    ready = int(held[0].entry.partition(b"-")[0])
    settler._first_ended = 0.0
    for delivery in held:
        settler.add(Settlement(delivery, ACK, micros=2_000_000))
    # As if the first had ended 9 s after it became ready, so begun 7 s after.
    settler._first_ended = ready / 1000 + 9.0
    settler.settle(store)
    # By name and in all, a minute and an hour.
    assert list(counted(redis_client, store, f"w{latency_bucket(7000)}")) == [5, 5, 5, 5]
    assert list(counted(redis_client, store, f"t{bucket(2_000_000)}")) == [5, 5, 5, 5]


def test_what_no_handler_ran_has_no_latency(settler, store, held, redis_client):
    add(settler, held, HandBack())
    settler.settle(store)
    assert [list(counted(redis_client, store, what)) for what in WAITED] == [[]] * len(WAITED)


@pytest.fixture
def service(store, settler):
    """A service that has the settler, and is not started."""
    found = SettleService()
    settler._due, settler._full = found.due, found.full
    found.add(settler, store)
    yield found
    found.stop()
    found.full.set()
    found.due.set()
    assert found.join(60)


def test_the_service_settles_within_milliseconds_and_by_the_number(store, settler, service, held):
    service.start()
    add(settler, held, ACK)
    wait_until(lambda: not settler.in_hand)
    service.stop()
    assert service.join(60)
    assert not service.full.is_set()
    assert store.depths().pending == 0
    add(settler, [held[0]] * FULL, ACK)
    assert service.full.is_set()


def test_the_service_holds_what_it_has_while_redis_is_away(store, settler, service, transport, held, caplog):
    transport.before = 3
    add(settler, held, ACK)
    service.start()
    wait_until(lambda: not settler.in_hand)
    service.stop()
    assert service.join(60)
    assert store.depths().pending == 0
    assert caplog.text.count("Waiting for Redis") == 1


# At once, while the fetcher waits for new messages.


@pytest.fixture
def long_wait(monkeypatch):
    """Outcomes wait for a minute for others of their batch."""
    monkeypatch.setattr("mq_django.consumers.worker.settler.MAX_WAIT", 60.0)


@pytest.mark.usefixtures("long_wait")
def test_what_no_other_outcome_can_join_is_settled_at_once(service, settler, store, held):
    service.start()
    in_hand = settler.in_hand.copy()
    for number, (receipt, message_id) in enumerate(in_hand.items()):
        settler.in_hand = {receipt: message_id}
        # One ends before the fetcher waits, the next one meanwhile.
        add(settler, held[number : number + 1] if number % 2 else [], ACK)
        with settler.no_more():
            add(settler, [] if number % 2 else held[number : number + 1], ACK)
            wait_until(lambda: not settler.in_hand, within=30)
    assert store.depths().pending == 0


def test_it_is_full_only_when_the_last_delivery_has_ended_while_the_fetcher_waits(service, settler, held):
    with settler.no_more():
        assert not service.full.is_set()
        assert not service.due.is_set()
    add(settler, held[:1], ACK)
    with settler.no_more():
        for number in range(1, 5):
            assert not service.full.is_set()
            add(settler, held[number : number + 1], ACK)
    assert service.full.is_set()


@pytest.mark.parametrize("error", [None, ConnectionLost("gone")])
def test_outcomes_are_left_to_a_fetch_when_the_wait_is_over(service, settler, held, error):
    with suppress(ConnectionLost), settler.no_more():
        if error is not None:
            raise error
    add(settler, held, ACK)
    assert not service.full.is_set()


def test_an_outcome_of_a_delivery_that_is_not_in_hand_does_not_keep_others_waiting(service, settler, held):
    """One that could not be started is not in hand, and is settled all the same."""
    settler.in_hand.pop((held[0].stream, held[0].entry))
    with settler.no_more():
        add(settler, held[1:], ACK)
        assert service.full.is_set()


class Ending:
    """A store during whose pipelines all deliveries end."""

    def __init__(self, settler, held, is_full):
        self.settler, self.held, self.is_full, self.seen = settler, held, is_full, []

    def take(self, consumer, *, count):
        add(self.settler, self.held, ACK)
        self.seen.append(self.is_full())
        return []

    def settle_and_take(self, consumer, settlements, *, count, **_):
        return Fetched(self.take(consumer, count=count), [])


@pytest.mark.parametrize("after_wait", [True, False])
def test_what_ends_during_the_first_fetch_after_a_wait_is_settled_at_once(service, settler, held, after_wait):
    ending = Ending(settler, held, service.full.is_set)
    assert settler.settle_and_take(ending, count=1, after_wait=after_wait) == []
    assert ending.seen == [after_wait]
    assert not settler._fetcher_waits


def test_what_ends_while_a_fetch_takes_others_along_is_left_to_the_next(service, settler, held):
    settler.in_hand.pop((held[0].stream, held[0].entry))
    add(settler, held[:1], ACK)
    ending = Ending(settler, held[1:], service.full.is_set)
    assert settler.settle_and_take(ending, count=1, after_wait=True) == []
    assert ending.seen == [False]
