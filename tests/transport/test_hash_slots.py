"""Which keys a command has, and that what goes together is in one hash slot."""

import re
import time
from pathlib import Path

import pytest
from redis import exceptions

import mq_django
from mq_django.core.keys import KINDS, QueueKeys, RsmqKeys, TopicKeys
from mq_django.core.queue_configs import QueueConfig
from mq_django.inspector.doctor.server_checks import commands_of
from mq_django.transport import failures, scripts
from mq_django.transport.cluster_topology import hash_slot, keys_of
from mq_django.transport.connections import get_client
from mq_django.transport.scripts import in_full
from mq_django.transport.sessions import Session

SCRIPT = scripts.command("control_pause", keys=["mq:{a}:control", "mq:{a}:permit-wakeups"], args=["x"])

#: Commands as the package sends them, by their names.
EXAMPLES = {
    "ASKING": [("ASKING",)],
    "COMMAND": [("COMMAND", "INFO", "EXPIRETIME")],
    "DEL": [("DEL", "k")],
    "EVAL": [in_full(SCRIPT)],
    "EVALSHA": [SCRIPT],
    "GETRANGE": [("GETRANGE", "k", 0, 1)],
    "DUMP": [("DUMP", "k")],
    "EXISTS": [("EXISTS", "k")],
    "HDEL": [("HDEL", "k", "a", "b")],
    "HGET": [("HGET", "k", "a")],
    "HGETALL": [("HGETALL", "k")],
    "HMGET": [("HMGET", "k", "a", "b")],
    "HSCAN": [("HSCAN", "k", 0, "COUNT", 1000)],
    "MEMORY": [("MEMORY", "USAGE", "k")],
    "PING": [("PING",)],
    "PTTL": [("PTTL", "k")],
    "RESTORE": [("RESTORE", "k", 0, b"dump", "REPLACE")],
    "SCAN": [("SCAN", b"0", "MATCH", "k*", "COUNT", 1000)],
    "SET": [("SET", "k", b"text", "PX", 1)],
    "SMEMBERS": [("SMEMBERS", "k")],
    "SUBSCRIBE": [("SUBSCRIBE", "a", "b")],
    "UNLINK": [("UNLINK", "k")],
    "UNSUBSCRIBE": [("UNSUBSCRIBE", "a", "b")],
    "WAIT": [("WAIT", 1, 500)],
    "XINFO": [("XINFO", "STREAM", "k"), ("XINFO", "GROUPS", "k")],
    "XLEN": [("XLEN", "k")],
    "XPENDING": [("XPENDING", "k", "g"), ("XPENDING", "k", "g", "-", "+", 1, "c")],
    "XREVRANGE": [("XREVRANGE", b"k", "+", "-")],
    "XRANGE": [("XRANGE", b"k", "-", "+")],
    "XREAD": [("XREAD", "COUNT", 1, "STREAMS", "{k}a", "{k}b", "0-0", "1-1")],
    "XREADGROUP": [
        ("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", "k", ">"),
        ("XREADGROUP", "GROUP", "STREAMS", "STREAMS", "COUNT", 1, "BLOCK", 5, "STREAMS", "{k}a", "{k}b", ">", ">"),
        ("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "BLOCK", 5, "NOACK", "STREAMS", "k", ">"),
    ],
    "ZCARD": [("ZCARD", "k")],
    "ZCOUNT": [("ZCOUNT", "k", 1, 2)],
    "ZMSCORE": [("ZMSCORE", "k", "m", "n")],
    "ZRANK": [("ZRANK", "k", "m")],
    "ZREVRANGEBYSCORE": [("ZREVRANGEBYSCORE", "k", "+inf", "-inf", "WITHSCORES", "LIMIT", 0, 200)],
    "ZRANDMEMBER": [("ZRANDMEMBER", "k", 500, "WITHSCORES")],
    "ZSCORE": [("ZSCORE", "k", "m")],
    "CLUSTER": [("CLUSTER", "INFO")],
    "CONFIG": [("CONFIG", "GET", "maxclients")],
    "HLEN": [("HLEN", "k")],
    "INFO": [("INFO",)],
    "MULTI": [("MULTI",)],
    "TIME": [("TIME",)],
}
#: The commands whose rights are tried.
TRIED = commands_of(QueueConfig(name="k"))
for each in TRIED:
    EXAMPLES.setdefault(each[0].upper(), []).append(each)


def capitals():
    """Return the words in capitals that tuples of the package begin with: commands are among them."""
    # failures.py has the first words of error replies, one of which is also a command.
    for path in set(Path(mq_django.__file__).parent.rglob("*.py")) - {Path(failures.__file__)}:
        yield from re.findall(r'(?<!\w)\(\s*"([A-Z]+)",', path.read_text())


@pytest.fixture
def session(mq_settings):
    found = Session(get_client("inspect"))
    yield found
    found.close()


def test_there_is_an_example_of_each_command_that_the_package_sends(session):
    words = sorted({*capitals(), *(each[0].upper() for each in TRIED)})
    known = session.pipeline([("COMMAND", "INFO", *words)])[0]
    assert {word for word, found in zip(words, known, strict=True) if found} == set(EXAMPLES)


def test_the_keys_of_a_command_are_those_that_redis_takes(session, subtests):
    for command in [command for examples in EXAMPLES.values() for command in examples]:
        with subtests.test(command=command):
            (reply,) = session.pipeline([("COMMAND", "GETKEYS", *command)])
            taken = [] if isinstance(reply, exceptions.ResponseError) else reply  # it says that there are none
            assert [key if isinstance(key, bytes) else key.encode() for key in keys_of(command)] == taken


def test_all_keys_of_a_queue_are_in_one_slot(subtests):
    for keys in [QueueKeys("mq", "emails"), TopicKeys("mq", "orders").group("billing"), RsmqKeys("{rsmq}", "emails")]:
        with subtests.test(keys=keys):
            named = [getattr(keys, kind) for kind in KINDS]
            assert (
                len(
                    {
                        hash_slot(key)
                        for key in [*named, *keys.streams(), keys.minutes(7), keys.hours(7), keys.result("a")]
                    }
                )
                == 1
            )


def test_a_topic_is_in_the_slot_of_its_groups():
    topic = TopicKeys("mq", "orders")
    keys = [topic.log, topic.control, topic.published, topic.minutes(7), topic.hours(7)]
    assert {hash_slot(key) for key in [*keys, *topic.group("billing").all(time.time())]} == {hash_slot("{orders}")}


def test_a_slot_is_that_of_redis_cluster():
    assert (hash_slot("123456789"), hash_slot(b"a{foo}b"), hash_slot("foo")) == (12739, 12182, 12182)


def test_a_trip_for_two_slots_is_noticed_and_two_trips_are_not(session, mixed_trips):
    both = [("HGETALL", "mq:{a}:control"), ("HGETALL", "mq:{b}:control")]
    session.pipelines([[command] for command in both])
    assert mixed_trips == []
    session.pipeline(both)
    assert mixed_trips == [both]
    mixed_trips.clear()


def test_a_script_without_a_key_is_noticed(session, mixed_trips):
    command = scripts.command("control_pause", keys=[], args=[])
    session.pipeline([command])
    assert mixed_trips == [command]
    mixed_trips.clear()
