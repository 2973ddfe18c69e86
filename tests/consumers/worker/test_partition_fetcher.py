"""A fetcher of partitions: it looks at them when it hears of messages, and from time to time."""

import time

import pytest

from mq_django.conf import get_config
from mq_django.consumers.worker import fetchers
from mq_django.consumers.worker.consumer import Fetchers
from mq_django.errors import ConnectionLost
from mq_django.producers import queues
from mq_django.registry import Handler
from mq_django.stores import open_store
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Session
from tests.consumers.rig import Pools
from tests.waiting import wait_until

pytestmark = pytest.mark.single_server(why="on a cluster there is a fetcher for each node")

PARTITIONS = 4
#: Seconds that no test waits.
NEVER = 3600.0


class PartitionRig(Pools):
    """A fetcher of four partitions, which a test runs by hand."""

    def __init__(self):
        super().__init__(4)
        self.parts = get_config().queue("default").parts
        self.dispatchers, self.sessions = [], []
        for number, part in enumerate(self.parts):
            self.sessions.append(Session(get_client("produce")))
            store = open_store(part, self.sessions[-1])
            store.create_groups()
            self.dispatchers.append(self.dispatcher_of("default", store, number)[0])
            self.dispatchers[-1].remember("act", Handler(name="act", queue="default", call=lambda message: None))
            self.shared_state.hold_until(number, time.monotonic() + NEVER)
        (self.fetcher,) = Fetchers("me", self.parts, self.dispatchers, self.shared_state, self.demand_of).open()

    def taken(self):
        """Return the ids of the messages that the fetcher has passed on, by partition."""
        found = {}
        for number, dispatcher in enumerate(self.dispatchers):
            if ids := sorted(dispatcher.settler.in_hand.values()):
                found[number] = ids
        return found

    def rest(self):
        """Run the fetcher until it has found nothing in any partition."""
        while any(part.reader.busy or part.check_at <= time.monotonic() for part in self.fetcher._parts):
            self.fetcher.run_once()

    def run_until_taken(self, count):
        """Run the fetcher until it has taken so many messages."""
        wait_until(lambda: self.fetcher.run_once() is None or sum(map(len, self.taken().values())) >= count)

    def close(self):
        super().close()
        self.fetcher.close()
        for session in self.sessions:
            session.close()


@pytest.fixture
def rig(mq_settings, monkeypatch):
    mq_settings(QUEUES={"default": {"PARTITIONS": PARTITIONS}})
    monkeypatch.setattr(fetchers, "CHECK", NEVER)
    monkeypatch.setattr(fetchers, "CHECK_OTHERS", NEVER)
    made = PartitionRig()
    yield made
    made.close()


def key_of(part):
    """Return a key whose messages are in a partition."""
    whole = get_config().queue("default")
    return next(str(number) for number in range(1000) if whole.partition_for(key=str(number)) == part)


def publish(part, **options):
    return queues["default"].publish("act", 1, key=key_of(part), **options)


def test_the_messages_of_all_partitions_are_taken(rig):
    ids = {number: [publish(part)] for number, part in enumerate(rig.parts)}
    rig.rest()
    assert rig.taken() == ids


def test_a_message_that_comes_while_it_waits_is_heard_of(rig):
    rig.rest()
    message_id = publish(rig.parts[2])
    # Without a notification it would look again in an hour.
    rig.run_until_taken(1)
    assert rig.taken() == {2: [message_id]}
    rig.rest()
    other = publish(rig.parts[2])
    rig.run_until_taken(2)
    assert rig.taken() == {2: sorted([message_id, other])}


def test_a_partition_is_looked_at_without_a_notification(rig, redis_client, monkeypatch):
    rig.rest()
    redis_client.xadd(rig.parts[1].keys.ready, {"id": "m1", "type": "act", "data": "1"})
    monkeypatch.setattr(fetchers, "CHECK", 0.0)
    rig.shared_state.set_preferred(1, True)
    rig.fetcher._parts[0].check_at = 0.0
    rig.fetcher._check_all()
    rig.run_until_taken(1)
    assert rig.taken() == {1: ["m1"]}


def test_it_takes_no_more_than_can_run_and_from_all_in_turn(rig):
    for part in rig.parts:
        for _ in range(30):
            publish(part)
    for each in rig.fetcher._parts:
        each.reader.ahead = 500
    seen = []
    for _ in range(PARTITIONS):
        rig.fetcher._demand.messages = lambda seconds, in_hand, ahead: 50
        rig.fetcher.run_once()
        seen.append({number: len(ids) for number, ids in rig.taken().items()})
    assert seen[:3] == [{0: 30, 1: 20}, {0: 30, 1: 20, 2: 30, 3: 20}, {0: 30, 1: 30, 2: 30, 3: 30}]


def test_a_paused_partition_is_left_alone(rig):
    rig.shared_state.set_paused(0, True)
    ids = [publish(part) for part in rig.parts]
    rig.run_until_taken(3)
    assert rig.taken() == {number: [ids[number]] for number in (1, 2, 3)}
    rig.shared_state.set_paused(0, False)
    rig.run_until_taken(4)
    assert rig.taken()[0] == [ids[0]]


def test_a_lost_subscription_is_opened_again_and_all_is_looked_at(rig, redis_client):
    rig.rest()
    rig.fetcher.recover(ConnectionLost("gone"))
    redis_client.xadd(rig.parts[1].keys.ready, {"id": "m1", "type": "act", "data": "1"})
    rig.run_until_taken(1)
    assert rig.taken() == {1: ["m1"]}


def test_one_damaged_partition_does_not_stop_the_others(rig, redis_client):
    rig.rest()
    keys = rig.parts[0].keys
    redis_client.delete(keys.ready)
    redis_client.set(keys.ready, "x")
    message_id = publish(rig.parts[1])
    rig.fetcher._check_all()
    rig.run_until_taken(1)
    assert rig.taken() == {1: [message_id]}


def test_a_consumer_at_the_limit_of_the_queue_goes_on_when_its_own_handlers_end(rig, mq_settings, monkeypatch):
    mq_settings(QUEUES={"default": {"PARTITIONS": PARTITIONS, "CONCURRENCY": 1}})
    rig.close()
    limited, waits = PartitionRig(), []
    monkeypatch.setattr(fetchers, "LISTEN", NEVER)

    def messages(seconds):
        waits.append(seconds)
        if seconds:
            for dispatcher in limited.dispatchers:
                dispatcher.settler.in_hand.clear()
        return iter(())

    queues["default"].publish_many([("act", number) for number in range(2)])
    limited.run_until_taken(1)
    limited.fetcher._check_all()
    monkeypatch.setattr(limited.fetcher._subscription, "messages", messages)
    limited.run_until_taken(1)
    assert 0 < max(waits) <= fetchers.TELL
    limited.close()
