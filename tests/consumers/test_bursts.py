"""A hundred thousand due at the same instant, and what waits beside them."""

import json
import os
import subprocess
import sys
import threading
import tracemalloc
from collections import Counter
from contextlib import ExitStack

import pytest
from django.conf import settings

from mq_django.conf import get_config
from mq_django.consumers.supervisor.listener import Listener
from mq_django.consumers.supervisor.promoter import BATCH, POLL, Promoter
from mq_django.core.outcomes import ACK
from mq_django.stores import open_store
from mq_django.stores.base import Settlement
from mq_django.transport.connections import get_client, open_session
from mq_django.transport.sessions import Session
from tests import places
from tests.consumers.trees import ROOT
from tests.waiting import wait_until

MANY = 100_000
PROMOTERS = 4
#: Redis serves nobody else while a script runs. A batch takes about 1 ms; the rest is for slow machines.
LONGEST_MS = 10
#: Scripts of a burst's thousand that may take longer, as a busy machine makes Redis wait in the middle of any of them.
STALLED = 5


def let_wait(client, keys, count, *, due_ms, first=0):
    """Seed messages as the smallest producer does, all due at one moment."""
    for start in range(first, first + count, 10_000):
        names = [f"m{number}" for number in range(start, min(start + 10_000, first + count))]
        pipeline = client.pipeline(transaction=False)
        pipeline.hset(keys.waiting, mapping=dict.fromkeys(names, '{"type":"note","data":1}'))
        pipeline.zadd(keys.due, dict.fromkeys(names, due_ms))
        pipeline.execute()


def promoting(config):
    """Start a process that promotes when it is told to."""
    env = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.consumers.project.settings",
        "MQ_TEST_CONFIG": json.dumps(config),
        "MQ_TEST_CACHES": json.dumps(settings.CACHES),
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "tests.consumers.promoting"]
    return subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def slowlog(redis_client):
    """Note every script of a millisecond and more."""
    before = redis_client.config_get("slowlog-*")
    redis_client.config_set("slowlog-log-slower-than", 1000)
    redis_client.config_set("slowlog-max-len", 10_000)
    yield redis_client
    for name, value in before.items():
        redis_client.config_set(name, value)


def slow_scripts(client):
    """Return the milliseconds that each script took, of those from one on."""
    return [entry["duration"] / 1000 for entry in client.slowlog_get(10_000) if entry["command"].startswith(b"EVAL")]


def test_a_burst_promoted_by_four_processes_loses_and_doubles_nothing_and_never_blocks_redis(
    mq_settings, slowlog, redis_client
):
    config = mq_settings()
    keys, go = get_config().queue("default").keys, f"{config['NAMESPACE']}:go"
    slowest = []
    # What else runs on this machine can only make a script longer: the quietest of five bursts tells.
    while len(slowest) < 5 and min(slowest, default=LONGEST_MS) >= LONGEST_MS:
        redis_client.delete(keys.ready, go)
        let_wait(redis_client, keys, MANY, due_ms=1)
        with ExitStack() as stack:
            processes = [stack.enter_context(promoting(config)) for _ in range(PROMOTERS)]
            assert [process.stdout.readline().strip() for process in processes] == ["ready"] * PROMOTERS
            redis_client.slowlog_reset()
            redis_client.set(go, 1)
            told = [json.loads(process.communicate(timeout=200)[0]) for process in processes]
        assert sum(one["moved"] for one in told) == MANY
        assert all(one["moved"] for one in told)
        assert len({fields[b"id"] for _, fields in redis_client.xrange(keys.ready)}) == MANY
        took = sorted(slow_scripts(redis_client), reverse=True)
        slowest.append(took[STALLED] if len(took) > STALLED else 0.0)
    assert not redis_client.exists(keys.due, keys.waiting)
    assert min(slowest) < LONGEST_MS


def test_a_burst_is_spread_over_the_consumers(mq_settings, redis_client):
    config, count = get_config().queue("default"), 20_000
    let_wait(redis_client, config.keys, count, due_ms=1)
    shares, done = Counter(), threading.Event()

    def consume(name):
        session = Session(get_client("consume"))
        own = open_store(config, session)
        own.create_groups()
        while not done.is_set():
            # As a consumer of slow handlers asks: for few.
            held = own.fetch(name, count=10, block_ms=200)
            own.settle(name, [Settlement(item, ACK) for item in held])
            shares[name] += len(held)
        session.release()

    threads = [threading.Thread(target=consume, args=(f"c{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    session = Session(get_client("chores"))
    promoter = Promoter({0: open_store(config, session)}, is_subscribed=lambda: True, seen=lambda *_: None)
    try:
        wait_until(lambda: promoter.run_once() is None or sum(shares.values()) == count, timeout=90)
    finally:
        done.set()
        for thread in threads:
            thread.join(10)
        session.release()
    assert max(shares.values()) < 1.5 * min(shares.values())


def test_a_promoter_s_memory_does_not_grow_with_what_waits(mq_settings, redis_client):
    config = get_config().queue("default")
    session = Session(get_client("chores"))
    promoter = Promoter({0: open_store(config, session)}, is_subscribed=lambda: True, seen=lambda *_: None)
    promoter.run_once()
    later = places.now_ms(redis_client) + 3_600_000

    def peak():
        tracemalloc.start()
        promoter.expect(0)
        promoter.run_once()
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak()
    empty = peak()
    let_wait(redis_client, config.keys, MANY, due_ms=later)
    let_wait(redis_client, config.keys, 10 * BATCH, due_ms=1, first=MANY)
    crowded = peak()
    session.release()
    assert redis_client.xlen(config.keys.ready) == BATCH
    assert crowded < empty + 50_000


def test_the_sleep_until_the_next_due_time_is_ended_by_an_earlier_one(mq_settings, publish, redis_client):
    config = get_config().queue("default")
    publish(delay=3600)
    session = Session(get_client("chores"))
    looks = []
    promoter = Promoter(
        {0: open_store(config, session)},
        is_subscribed=lambda: listener.is_subscribed,
        seen=lambda _, promoted: looks.append(promoted),
    )
    listener = Listener(open_session("consume"), {config.keys.wake: 0}, lambda number, _: promoter.expect(number))
    try:
        listener.start()
        wait_until(lambda: listener.is_subscribed)
        promoter.start()
        wait_until(lambda: looks)
        # It sleeps now, for the seconds of the fallback.
        assert POLL > 2
        publish(delay=0.001)
        wait_until(lambda: redis_client.exists(config.keys.ready), timeout=2)
    finally:
        for service in (listener, promoter):
            service.stop()
            assert service.join(5)
        session.release()
    assert redis_client.zcard(config.keys.due) == 1
