"""Queues on two servers, as on the nodes of a cluster: with a wire that chooses the server, nothing else changes."""

import pytest
import redis
from redis import exceptions

from mq_django import inspector, topics
from mq_django.conf import get_config
from mq_django.core.messages import Message
from mq_django.core.outcomes import ACK
from mq_django.core.publication import Publication, PublishOptions
from mq_django.errors import ConnectionLost
from mq_django.inspector import dead_letters
from mq_django.stores.results import find_result, ready_command
from mq_django.transport import connections
from mq_django.transport.hash_slots import hash_slot, keys_of
from mq_django.transport.private_server import PrivateServer
from mq_django.transport.sessions import Pooled, Wire
from tests.seeding import beat, bury, publish, settle, take, tally

NAMES = [f"q{n}" for n in range(8)]


class TwoServers(Wire):
    """Sends the trips for even slots to one server, and those for odd ones to the other."""

    def __init__(self, wires):
        self._wires = wires

    def trip(self, commands):
        (server,) = {server_of(key) for command in commands for key in keys_of(command)}
        return self._wires[server].trip(commands)

    def trips(self, trips):
        return [self._trip_or_errors(commands) for commands in trips]

    def _trip_or_errors(self, commands):
        try:
            return self.trip(commands) if commands else []
        except ConnectionLost as error:
            return [exceptions.ConnectionError(str(error)) for _ in commands]


def server_of(key):
    return hash_slot(key) % 2


@pytest.fixture
def other():
    with PrivateServer() as server:
        yield server


@pytest.fixture
def clients(redis_client, other, mq_settings, monkeypatch):
    """The clients of both servers, after each wire has become one to both."""
    pool = redis.ConnectionPool.from_url(other.url, protocol=2, socket_timeout=2)
    found = (redis_client, redis.Redis(connection_pool=pool))
    monkeypatch.setattr(connections, "Pooled", lambda client: TwoServers((Pooled(client), Pooled(found[1]))))
    mq_settings(QUEUES={name: {} for name in NAMES}, TOPICS={"t0": {}, "t1": {}})
    yield found
    pool.disconnect()


def queues_on(server):
    return {name for name in NAMES if server_of(get_config().queue(name).keys.ready) == server}


def test_each_queue_works_on_its_own_server(clients):
    for name in NAMES:
        publish(name, "welcome", 1)
        publish(name, "welcome", 2, delay=60)
        settle(name, take(name, 1), ACK)
        tally(name, {("handled", "welcome"): 1})
        beat(name)
        bury(name)

    assert queues_on(0)
    assert queues_on(1)
    for server, client in enumerate(clients):
        there = {name for name in NAMES if client.exists(get_config().queue(name).keys.ready)}
        assert there == queues_on(server)


def test_pages_show_the_queues_and_topics_of_both_servers(clients):
    for name in NAMES:
        bury(name)
        beat(name)
    for topic in topics.values():
        topic.publish("created", 1)

    assert [view.dead for view in inspector.overview()] == [1] * len(NAMES)
    totals = inspector.totals()
    assert (totals.published, totals.dead) == (len(NAMES) + 2, len(NAMES))
    assert [view.length for view in inspector.topics.topics()] == [1, 1]
    for name in NAMES:
        assert dead_letters.page(name, limit=5).total == 1
        assert inspector.queue(name).consumers


def test_a_result_is_found_on_either_server(clients, namespace):
    wire = connections.open_wire("produce")
    for name in NAMES:
        config, message = get_config().queue(name), Message(f"m-{name}", "tasks.send", {}, name, published_ms=1000)
        wire.trip([ready_command(config, Publication(message, b"{}", PublishOptions(config)))])
    for name in NAMES:
        assert find_result([wire] * len(NAMES), list(get_config().queues.values()), f"m-{name}").queue == name


def test_a_server_that_is_away_hides_no_queue_of_the_other(clients, other):
    for name in NAMES:
        publish(name, "welcome", 1)
    other.kill()

    views = {view.name: view for view in inspector.overview()}

    assert {name for name, view in views.items() if view.error} == queues_on(1)
    assert {views[name].ready for name in queues_on(0)} == {1}
