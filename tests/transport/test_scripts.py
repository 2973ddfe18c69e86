"""The clock that scripts see, when tests move it."""

import time

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from mq_django import queues
from mq_django.conf import get_config
from mq_django.stores.log import Log
from mq_django.transport import scripts
from mq_django.transport.connections import get_client
from mq_django.transport.private_server import PrivateServer
from mq_django.transport.sessions import Session
from tests.stores.cases import outgoing
from tests.stores.lua_names import free_names

HOUR = 3_600_000


@pytest.fixture(scope="module")
def redis_url():
    """The key that moves the clock is one for the whole server."""
    with PrivateServer() as server:
        yield server.url


@pytest.fixture
def redis_client(redis_url):
    with redis.Redis.from_url(redis_url, protocol=2, socket_timeout=10, retry=Retry(NoBackoff(), 0)) as client:
        yield client


@pytest.fixture
def advance(monkeypatch, mq_settings, redis_client):
    """Move the clock of the scripts by milliseconds."""
    monkeypatch.setattr(scripts, "_prelude", "")
    scripts.use_moved_clock()
    yield lambda ms: redis_client.set(scripts.MOVED_CLOCK, ms)
    redis_client.delete(scripts.MOVED_CLOCK)
    monkeypatch.undo()
    scripts.load.cache_clear()


def clock():
    (micros,) = Session(get_client("consume")).pipeline([scripts.command("clock_read", keys=["k"], args=[])])
    return micros


def run(redis_client, text, *keys):
    return redis_client.eval(scripts._read("testing/clock") + text, len(keys), *keys)


def test_a_script_is_what_its_file_says_unless_tests_move_its_clock(advance, monkeypatch):
    assert scripts.load("clock_read").text == scripts._read("testing/clock") + scripts._read("clock_read")
    monkeypatch.setattr(scripts, "_prelude", "")
    scripts.load.cache_clear()
    assert scripts.load("clock_read").text == scripts._read("clock_read")


def test_the_moved_clock_takes_no_names_from_the_script_behind_it():
    assert free_names(scripts._read("testing/clock")) == set()


def test_the_clock_is_moved_and_goes_on(advance, subtests):
    for moved_ms in [None, 0, HOUR, -HOUR]:
        with subtests.test(moved_ms=moved_ms):
            if moved_ms is not None:
                advance(moved_ms)
            before, found, after = time.time_ns() // 1000, clock(), time.time_ns() // 1000
            assert before - 1 <= found - (moved_ms or 0) * 1000 <= after + 1


def test_time_is_answered_as_redis_does(advance, redis_client):
    advance(HOUR)
    seconds, micros = run(redis_client, "return redis.call('TIME')")
    assert abs(int(seconds) - time.time() - 3600) < 60
    assert 0 <= int(micros) < 1_000_000


def test_entries_have_ids_of_the_moved_time_and_increase_when_it_is_moved_back(advance, redis_client):
    ready, ids = queues["emails"].config.keys.ready, []
    for moved_ms in (0, HOUR, HOUR, 0):
        advance(moved_ms)
        queues["emails"].publish("welcome", moved_ms)
        ids = [tuple(map(int, entry.split(b"-"))) for entry, _ in redis_client.xrange(ready)]
    first, *later = ids
    assert first < later[0] < later[1] < later[2]
    assert all(abs(ms - first[0] - HOUR) < 60_000 for ms, _ in later)


def test_only_an_id_is_replaced(advance, redis_client, namespace, subtests):
    for arguments, begins in [
        ("'*', 'f', '1'", None),
        ("'maxlen', '~', 16, '*', 'f', '*'", None),
        ("'nomkstream', '*', 'f', '*'", None),
        ("'5-1', '*', '*'", b"5-1"),
    ]:
        with subtests.test(arguments=arguments, begins=begins):
            advance(HOUR)
            key = f"{namespace}:*"
            if "nomkstream" in arguments:
                redis_client.xadd(key, {"f": "0"}, id="1-1")
            entry = run(redis_client, f"return redis.call('XADD', KEYS[1], {arguments})", key)
            found, fields = redis_client.xrange(key)[-1]
            assert found == entry
            assert b"*" in {*fields, *fields.values()} or fields == {b"f": b"1"}
            if begins:
                assert entry == begins
            else:
                assert abs(int(entry.split(b"-")[0]) / 1000 - time.time() - 3600) < 60
            redis_client.delete(key)


def test_an_error_of_redis_stays_the_same(advance, redis_client, namespace):
    redis_client.set(f"{namespace}:text", "x")
    for call in ("call", "pcall"):
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            run(redis_client, f"return redis.{call}('xadd', KEYS[1], '*', 'f', '1')", f"{namespace}:text")


def test_the_retention_of_a_log_takes_what_is_old_by_the_moved_clock(advance, mq_settings, redis_client):
    mq_settings(QUEUES={}, TOPICS={"orders": {"RETENTION": 60}})
    log = Log(get_config().topic("orders"), Session(get_client("produce")))
    log.publish([outgoing(data=f"old {number}") for number in range(250)])
    advance(HOUR)
    log.publish([outgoing(data=f"new {number}") for number in range(250)])
    # Node by node, so up to a node of a hundred more stays.
    assert 100 <= log.trim().removed <= 250
    assert redis_client.xlen(log.keys.log) >= 250
    assert log.trim().removed == 0
