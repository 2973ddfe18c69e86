"""A replica takes the master's place: behind an address that stays, and by the word of a Sentinel."""

import contextlib
import socket
import subprocess
import time

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from mq_django.errors import StoreError
from mq_django.transport.private_server import PrivateServer, answers
from mq_django.transport.servers import find_server
from tests.consumers.proxy import Proxy
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.single_server(why="it has a master and a replica of its own")]

#: Seconds in which consumers work again once there is a master.
BACK = 10.0
#: Milliseconds without an answer until the Sentinel gives a master up.
DOWN_AFTER_MS = 1000
#: Threads of two processes. What they say to a master in its last moment need not reach its replica.
HANDLERS = 2 * 8


class Pair:
    """A master, and a replica that has all of its data."""

    def __init__(self):
        # By default a master waits for five seconds for more replicas before it sends its data to the first.
        self.master = PrivateServer(tcp=True, settings={"repl-diskless-sync-delay": "0"}).start()
        self.replica = PrivateServer(tcp=True).start()
        with client_of(self.replica) as client:
            client.replicaof("127.0.0.1", self.master.port)
            wait_until(lambda: client.info("replication")["master_link_status"] == "up")

    def wait_for_replica(self):
        """Wait until the replica has what the master has: what has not reached it is lost with its master."""

        def has_all():
            with client_of(self.master) as master, client_of(self.replica) as replica:
                there = master.info("replication")["master_repl_offset"]
                return replica.info("replication")["slave_repl_offset"] >= there

        wait_until(has_all)

    def close(self):
        self.replica.stop()
        self.master.stop()


def client_of(server):
    return redis.Redis.from_url(server.url, socket_timeout=20, retry=Retry(NoBackoff(), 0))


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
    proxy.redirect(pair.replica.port)


@contextlib.contextmanager
def unplanned(pair, proxy):
    """The master dies, and somebody promotes the replica."""
    pair.wait_for_replica()
    pair.master.kill()
    yield
    with client_of(pair.replica) as client:
        client.replicaof("NO", "ONE")
    proxy.redirect(pair.replica.port)


@pytest.mark.parametrize(("failover", "doubled"), [(planned, 0), (unplanned, HANDLERS)], ids=["planned", "unplanned"])
def test_behind_an_address_that_stays_consumers_work_again(trees, publish, history, pair, failover, doubled):
    proxy = Proxy(pair.master.port)
    tree = trees("--processes", "2", CONNECTION=proxy.url)
    publish()
    history.wait_for("effect")
    children = set(tree.children())
    running = [publish(["sleep", 1.0]) for _ in range(8)]
    waiting = [publish(delay=3.0), *(publish(["sleep", 0.2]) for _ in range(40))]
    history.wait_for("start", 9)
    with failover(pair, proxy):
        wait_until(lambda: set(history.counts()) >= set(running))
    works_again(publish, history, [*running, *waiting], doubled=doubled)
    assert set(tree.children()) == children
    proxy.close()


@pytest.fixture
def sentinel(pair, tmp_path):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    config = tmp_path / "sentinel.conf"
    config.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {tmp_path}\nsentinel monitor shop 127.0.0.1 {pair.master.port} 1\n"
        f"sentinel down-after-milliseconds shop {DOWN_AFTER_MS}\nsentinel failover-timeout shop 5000\n",
        encoding="utf-8",
    )
    with (tmp_path / "log-sentinel").open("wb") as output:
        process = subprocess.Popen(
            [str(find_server().path), str(config), "--sentinel"], stdout=output, stderr=output, stdin=subprocess.DEVNULL
        )
    wait_until(lambda: answers(("127.0.0.1", port)))
    with redis.Redis(port=port) as client:
        wait_until(lambda: client.sentinel_master("shop")["num-slaves"] == 1, timeout=20)
        yield client
    process.kill()
    process.wait()


def test_by_a_sentinels_word_consumers_and_producers_find_the_new_master(
    trees, publish, history, pair, sentinel, settings, mq_settings
):
    port = sentinel.connection_pool.connection_kwargs["port"]
    settings.CACHES = {
        **settings.CACHES,
        "mq": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": "redis://shop/0",
            "OPTIONS": {
                "CONNECTION_FACTORY": "django_redis.pool.SentinelConnectionFactory",
                # The first is not there: one Sentinel less must not matter.
                "SENTINELS": [("127.0.0.1", 1), ("127.0.0.1", port)],
            },
        },
    }
    tree = trees("--processes", "2", CONNECTION="mq")
    publish()
    history.wait_for("effect")
    children = set(tree.children())
    running = [publish(["sleep", 1.0]) for _ in range(8)]
    waiting = [publish(delay=3.0), *(publish(["sleep", 0.2]) for _ in range(40))]
    history.wait_for("start", 9)
    pair.wait_for_replica()
    pair.master.kill()
    wait_until(lambda: sentinel.sentinel_get_master_addr_by_name("shop")[1] == pair.replica.port, timeout=40)
    works_again(publish, history, [*running, *waiting], doubled=HANDLERS)
    assert set(tree.children()) == children


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
