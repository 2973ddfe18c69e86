"""A replica takes the master's place: behind an address that stays, and by the word of a Sentinel."""

import contextlib
import time

import pytest

from mq_django.errors import StoreError
from tests.proxy import Proxy
from tests.sentinel_rig import MASTER, Pair, client_of, running_sentinel
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.single_server(why="it has a master and a replica of its own")]

#: Seconds in which consumers work again once there is a master.
BACK = 10.0
#: Threads of two processes. What they say to a master in its last moment need not reach its replica.
HANDLERS = 2 * 8


@pytest.fixture
def pair():
    found = Pair()
    yield found
    found.close()


@contextlib.contextmanager
def planned(pair, proxy):
    """The master lets the replica catch up, and becomes its replica: old connections get READONLY."""
    with client_of(pair.master) as client:
        client.execute_command("FAILOVER", "TO", "127.0.0.1", pair.replica.port)
        wait_until(lambda: client.info("replication")["role"] == "slave")
    yield
    proxy.redirect(pair.replica.url)


@contextlib.contextmanager
def unplanned(pair, proxy):
    """The master dies, and somebody promotes the replica."""
    pair.wait_for_replica()
    pair.master.kill()
    yield
    with client_of(pair.replica) as client:
        client.replicaof("NO", "ONE")
    proxy.redirect(pair.replica.url)


@pytest.mark.parametrize(("failover", "doubled"), [(planned, 0), (unplanned, HANDLERS)], ids=["planned", "unplanned"])
def test_behind_an_address_that_stays_consumers_work_again(trees, publish, history, pair, failover, doubled):
    proxy = Proxy(pair.master.url)
    tree = trees("--processes", "2", CONNECTION=proxy.url)
    children, ids = work_begins(tree, publish, history)
    with failover(pair, proxy):
        wait_until(lambda: set(history.counts()) >= set(ids[:8]))
    works_again(publish, history, ids, doubled=doubled)
    assert set(tree.children()) == children
    proxy.close()


@pytest.fixture
def sentinel(pair):
    with running_sentinel(pair.master.port) as found:
        found.wait_for_replicas()
        yield found


def test_by_a_sentinels_word_consumers_and_producers_find_the_new_master(
    trees, publish, history, pair, sentinel, settings, mq_settings
):
    """By an alias of django-redis. By a URL: `make chaos CHAOS=sentinel-failover`."""
    settings.CACHES = {
        **settings.CACHES,
        "mq": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": f"redis://{MASTER}/0",
            "OPTIONS": {
                "CONNECTION_FACTORY": "django_redis.pool.SentinelConnectionFactory",
                # The first is not there: one Sentinel less must not matter.
                "SENTINELS": [("127.0.0.1", 1), ("127.0.0.1", sentinel.port)],
            },
        },
    }
    tree = trees("--processes", "2", CONNECTION="mq")
    children, ids = work_begins(tree, publish, history)
    pair.wait_for_replica()
    pair.master.kill()
    wait_until(lambda: sentinel.master_port() == pair.replica.port, timeout=40)
    works_again(publish, history, ids, doubled=HANDLERS)
    assert set(tree.children()) == children


def work_begins(tree, publish, history):
    """Let some messages run, some be ready and one wait; return the consumers, and the messages."""
    publish()
    history.wait_for("effect")
    ids = [*(publish(["sleep", 1.0]) for _ in range(8)), publish(delay=3.0)]
    ids += [publish(["sleep", 0.2]) for _ in range(40)]
    history.wait_for("start", 9)
    return set(tree.children()), ids


def works_again(publish, history, ids, *, doubled):
    """See that everything is handled soon, nothing is lost, and no more is handled twice than may be."""
    began = time.monotonic()

    def attempt():
        with contextlib.suppress(StoreError):
            return publish()

    later = wait_until(attempt, timeout=15)
    wait_until(lambda: later in history.counts(), timeout=BACK + 5)
    assert time.monotonic() - began < BACK
    wait_until(lambda: set(history.counts()) >= set(ids), timeout=20)
    assert sum(history.counts()[found] - 1 for found in ids) <= doubled
