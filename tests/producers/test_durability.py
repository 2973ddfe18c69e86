"""With DURABILITY a publish returns when a replica has the message, or says that none has it."""

import os
import signal

import pytest
import redis

from mq_django import queues, topics
from mq_django.errors import NotReplicated, QueueFull
from mq_django.signals import message_published
from mq_django.transport.private_server import PrivateServer
from tests.hearing import hears
from tests.sentinel_rig import Pair, client_of

OPTIONS = {"DURABILITY": "replica"}


@pytest.fixture(scope="module")
def pair():
    found = Pair()
    yield found
    found.close()


@pytest.fixture
def durable(pair, mq_settings):
    mq_settings(
        CONNECTION=pair.master.url,
        QUEUES={
            "default": OPTIONS,
            "plain": {},
            "full": {**OPTIONS, "MAX_DEPTH": 1},
            "rsmq": {**OPTIONS, "STORE": "rsmq"},
        },
        TOPICS={"orders": OPTIONS},
    )
    return pair


@pytest.fixture
def no_replica(durable, monkeypatch):
    """The replica confirms nothing."""
    monkeypatch.setattr("mq_django.transport.sessions.REPLICA_MS", 1)
    os.kill(durable.replica.pid, signal.SIGSTOP)
    yield durable
    os.kill(durable.replica.pid, signal.SIGCONT)
    durable.wait_for_replica()


WAYS = {
    "publish": lambda: queues["default"].publish("welcome", 1),
    "delay": lambda: queues["default"].publish("welcome", 1, delay=60),
    "priority": lambda: queues["default"].publish("welcome", 1, priority=5),
    "unique": lambda: queues["default"].publish("welcome", 1, unique="one", delay=60),
    "many": lambda: queues["default"].publish_many([("welcome", n) for n in range(3)]),
    "topic": lambda: topics["orders"].publish("order.paid", 1),
    "topic, many": lambda: topics["orders"].publish_many([("order.paid", n) for n in range(3)]),
    "rsmq": lambda: queues["rsmq"].publish("welcome", 1),
}


def test_with_a_replica_it_returns_as_without(durable, monkeypatch, subtests):
    # A replica on a busy machine may take longer than a publish waits for it.
    monkeypatch.setattr("mq_django.transport.sessions.REPLICA_MS", 30_000)
    for way in WAYS:
        with subtests.test(way=way):
            assert WAYS[way]()
            queues["default"].cancel(unique="one")


def test_without_a_confirmation_it_says_so_and_the_message_is_there(no_replica, subtests):
    for way in WAYS:
        with subtests.test(way=way):
            with client_of(no_replica.master) as client:
                before = client.info("replication")["master_repl_offset"]
                with pytest.raises(NotReplicated, match="no replica has confirmed them within 500 ms") as caught:
                    WAYS[way]()
                assert client.info("replication")["master_repl_offset"] > before
            assert len(caught.value.message_ids) == (3 if "many" in way else 1)
            queues["default"].cancel(unique="one")


def test_the_message_is_announced_although_it_may_be_lost(no_replica):
    with hears(message_published) as told, pytest.raises(NotReplicated) as caught:
        queues["default"].publish("welcome", 1)
    assert [given["message_id"] for given in told] == list(caught.value.message_ids)


def test_what_is_refused_is_refused_with_its_own_error(no_replica):
    with pytest.raises(NotReplicated):
        queues["full"].publish("welcome", 1)
    with pytest.raises(QueueFull):
        queues["full"].publish("welcome", 1)


def test_without_the_option_nothing_waits(no_replica):
    with client_of(no_replica.master) as client:
        client.config_resetstat()
        assert queues["plain"].publish("welcome", 1)
        assert "cmdstat_wait" not in client.info("commandstats")


def test_a_server_that_has_forgotten_its_scripts_waits_behind_them(no_replica):
    with pytest.raises(NotReplicated):
        queues["default"].publish("welcome", 1)
    with client_of(no_replica.master) as client:
        client.script_flush()
    with pytest.raises(NotReplicated):
        queues["default"].publish("welcome", 1)


def test_a_user_without_the_right_is_not_confirmed(mq_settings):
    with PrivateServer(tcp=True) as server, redis.Redis.from_url(server.url) as client:
        client.acl_setuser("shop", enabled=True, passwords=["+p"], keys=["*"], categories=["+@all"], commands=["-wait"])
        mq_settings(CONNECTION=server.url.replace("//", "//shop:p@"), QUEUES={"default": OPTIONS})
        with pytest.raises(NotReplicated):
            queues["default"].publish("welcome", 1)
