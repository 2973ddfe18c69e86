"""What measures a node: requests are recorded and sent again."""

import pytest
import redis

from benchmarks.scaling import node_costs
from benchmarks.scaling.node_costs import BARE, BULK, HANDLED, ONE_BY_ONE, ORDERED, PLAIN, figure
from benchmarks.scaling.recorder import Recorder
from benchmarks.scaling.replay import replay
from mq_django.transport.private_server import PrivateServer


@pytest.fixture(scope="module")
def url():
    with PrivateServer(tcp=True) as server:
        yield server.url


@pytest.fixture
def client(url):
    with redis.Redis.from_url(url, protocol=2) as client:
        yield client


def increments(name, count):
    return [b"*2\r\n$4\r\nINCR\r\n$%d\r\n%b\r\n" % (len(name), name)] * count


def test_requests_are_recorded_one_by_one(url):
    with Recorder(url) as recorder, redis.Redis.from_url(recorder.url, protocol=2) as client:
        assert [client.execute_command("INCR", "recorded") for _ in range(5)] == [1, 2, 3, 4, 5]
        assert client.set("large", "x" * 3_000_000)
        sent = [request for request in recorder.requests() if request]
    assert sent[-6:-1] == increments(b"recorded", 5)
    assert len(sent[-1]) > 3_000_000


def test_what_was_recorded_is_sent_again(url, client):
    replayed = replay(url, increments(b"again", 1), seconds=0.2)
    assert int(client.get("again")) >= replayed.rate * 0.2
    assert replayed.micros > 0
    assert replayed.received == pytest.approx(26, abs=2)
    assert replayed.sent < 26


def test_a_request_that_is_refused_is_told(url, client):
    client.rpush("list", "a")
    with pytest.raises(ValueError, match="WRONGTYPE"):
        replay(url, increments(b"list", 1), seconds=5)


def test_costs_are_compared_with_those_of_the_bare_client_of_the_same_run():
    figures = {
        figure(BARE, ONE_BY_ONE): 4.0,
        figure(BARE, BULK): 1.0,
        figure(BARE, HANDLED): 2.0,
        figure(PLAIN, ONE_BY_ONE): 12.0,
        figure(PLAIN, BULK): 2.0,
        figure(PLAIN, HANDLED): 3.0,
        figure(ORDERED, ONE_BY_ONE): 12.0,
        figure(ORDERED, HANDLED): 24.0,
    }
    assert node_costs.ratios(figures) == {
        node_costs.LIFE: 15 / 6,
        node_costs.BULK_LIFE: 5 / 3,
        node_costs.ORDERED_LIFE: 36 / 6,
    }
