"""What is said about replication: with real masters, replicas and Sentinels."""

import os
import signal
import socket
import subprocess

import pytest
import redis

from mq_django.transport.private_server import PrivateServer, answers, find_server
from tests.inspector.doctor.conftest import levels
from tests.waiting import wait_until

#: By default a master waits for five seconds for more replicas before it sends its data to the first.
AT_ONCE = {"repl_diskless_sync_delay": "0"}


def client_of(server):
    return redis.Redis.from_url(server.url)


@pytest.fixture
def replica_of():
    """Start a replica of a server."""
    started = []

    def start(master):
        replica = PrivateServer(tcp=True).start()
        started.append(replica)
        with client_of(replica) as client:
            client.replicaof("127.0.0.1", master.port)
        return replica

    yield start
    for replica in started:
        os.kill(replica.pid, signal.SIGCONT)
        replica.stop()


def wait_until_online(master):
    with client_of(master) as client:
        wait_until(lambda: client.info("replication").get("slave0", {}).get("state") == "online", timeout=20)


def test_a_replica_that_is_up_to_date_is_no_finding(server_with, replica_of, found):
    master = server_with(**AT_ONCE)
    replica_of(master)
    wait_until_online(master)
    assert found("D1") == []


def test_a_replica_without_its_master(server_with, found, mq_settings):
    master, replica = server_with(**AT_ONCE), server_with()
    with client_of(replica) as client:
        client.replicaof("127.0.0.1", master.port)
        wait_until(lambda: client.info("replication")["master_link_status"] == "up", timeout=20)
        (finding,) = found("D110")
        assert finding.seen == f"This Redis is a replica of 127.0.0.1:{master.port}, so it accepts no writes."
        client.config_set("replica-read-only", "no")
        master.stop()
        wait_until(lambda: client.info("replication")["master_link_status"] == "down", timeout=20)
    (finding,) = found("D110")
    assert "what is written to it is lost. It has no connection to its master" in finding.seen


@pytest.fixture
def sentinel(tmp_path):
    """Start a Sentinel that monitors a server as `shop`, and return its port."""
    started = []

    def start(master, quorum=1, name="shop"):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        config = tmp_path / f"sentinel-{port}.conf"
        config.write_text(
            f"port {port}\nbind 127.0.0.1\ndir {tmp_path}\nsentinel monitor {name} 127.0.0.1 {master.port} {quorum}\n",
            encoding="utf-8",
        )
        command = [str(find_server().path), str(config), "--sentinel"]
        with (tmp_path / "log-sentinel").open("ab") as output:
            started.append(subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL))
        wait_until(lambda: answers(("127.0.0.1", port)))
        return port

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture(params=["alias", "url"])
def by_sentinels(request, settings, mq_settings):
    """Connect by the word of these Sentinels."""

    def connect(*ports):
        if request.param == "url":
            mq_settings(CONNECTION=f"redis+sentinel://{','.join(f'127.0.0.1:{port}' for port in ports)}/shop")
            return
        alias = {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": "redis://shop/0",
            "OPTIONS": {
                "CLIENT_CLASS": "django_redis.client.SentinelClient",
                "CONNECTION_FACTORY": "django_redis.pool.SentinelConnectionFactory",
                "SENTINELS": [("127.0.0.1", port) for port in ports],
            },
        }
        settings.CACHES = {**settings.CACHES, "mq": alias}
        mq_settings(CONNECTION="mq")

    return connect


def test_sentinels_that_agree_are_no_finding(server_with, sentinel, by_sentinels, found):
    master = server_with()
    by_sentinels(sentinel(master), sentinel(master))
    assert [finding for finding in found("D1") if finding.code == "D118"] == []


def test_sentinels_that_name_different_masters(server_with, sentinel, by_sentinels, found):
    first, second = server_with(), server_with()
    by_sentinels(sentinel(first), sentinel(second))
    (finding,) = found("D118")
    assert (finding.code, finding.level) == ("D118", "error")
    assert f"127.0.0.1:{first.port} by" in finding.seen
    assert f"127.0.0.1:{second.port} by" in finding.seen


def test_sentinels_that_are_missing_or_too_few(server_with, sentinel, by_sentinels, found):
    master = server_with()
    lonely, other = sentinel(master, quorum=3), sentinel(master, name="other")
    by_sentinels(lonely, other, 1)
    (finding,) = found("D118")
    assert levels([finding]) == [("D118", "warning")]
    assert f"127.0.0.1:{lonely} says: NOQUORUM" in finding.seen
    assert f"127.0.0.1:{other} does not know this name" in finding.seen
    assert "127.0.0.1:1 does not answer" in finding.seen
