"""What is asked about several queues in one script is answered as if each was asked about alone."""

import pytest
import redis

from mq_django.conf import get_config
from mq_django.stores import open_members, open_store
from mq_django.transport import scripts
from mq_django.transport.connections import get_client, open_session
from mq_django.transport.sessions import Session
from tests.users import user

NAMES = ("a", "b", "c")


@pytest.fixture
def queues(mq_settings):
    mq_settings(QUEUES={name: {} for name in NAMES})
    return [get_config().queue(name) for name in NAMES]


@pytest.fixture
def session(queues):
    found = Session(get_client("chores"))
    yield found
    found.close()


def beats(queues, session):
    return [open_members(each, session).beat_command("s1", {}, {"c1": {}}, generation="") for each in queues]


@pytest.mark.single_server(why="all keys are on one server")
def test_several_queues_are_one_command_and_each_has_its_reply(queues, session, sent_commands, redis_client):
    redis_client.zadd(queues[1].keys.unhandled, {"m": 1})
    stores = [open_store(each, session) for each in queues]
    replies = session.together([store.due_command() for store in stores])
    assert [store.read_due(reply).unhandled for store, reply in zip(stores, replies, strict=True)] == [0, 1, 0]
    assert len(sent_commands) == 1

    session.together([store.due_command() for store in stores], most=2)
    assert len(sent_commands) == 1 + 2


@pytest.mark.single_server(why="all keys are on one server")
def test_what_is_wrong_with_one_queue_is_its_own_error(queues, session, redis_client):
    redis_client.set(queues[1].keys.consumers, "x")
    replies = session.together(beats(queues, session))
    assert "WRONGTYPE" in str(replies[1])
    assert [isinstance(reply, Exception) for reply in replies] == [False, True, False]
    assert [redis_client.exists(each.keys.consumers) for each in queues] == [1, 1, 1]
    assert redis_client.hget(queues[2].keys.consumers, "beat:s1") == b"1"


@pytest.mark.single_server(why="all keys are on one server")
def test_any_command_of_a_key_goes_together_too(queues, session, sent_commands, redis_client):
    redis_client.hset(queues[0].keys.jobs, mapping={"x": 1, "y": 2})
    redis_client.set(queues[2].keys.jobs, "x")
    first, second, third = session.together([("HMGET", each.keys.jobs, "y", "z") for each in queues])
    assert (first, second, len(sent_commands)) == ([b"2", None], [None, None], 1)
    assert "WRONGTYPE" in str(third)


@pytest.mark.single_server(why="all keys are on one server")
def test_commands_that_differ_are_sent_by_kind_and_answered_in_order(queues, session, sent_commands, redis_client):
    redis_client.hset(queues[0].keys.jobs, "x", 1)
    commands = [command for each in queues for command in (("HLEN", each.keys.jobs), ("XLEN", each.keys.ready))]
    assert session.together(commands) == [1, 0, 0, 0, 0, 0]
    assert len(sent_commands) == 2
    assert session.together([]) == []


@pytest.mark.single_server(why="a user of one server")
def test_without_a_right_on_one_queue_the_others_are_asked_alone(queues, redis_client, redis_url):
    rules = ["+@all", *(f"~{each.keys.jobs}" for each in queues[:2])]
    with user(redis_client, redis_url, rules) as url:
        client = redis.Redis.from_url(url)
        narrow = Session(client)
        first, second, third = narrow.together([("HLEN", each.keys.jobs) for each in queues])
        narrow.close()
        client.close()
    assert (first, second) == (0, 0)
    assert isinstance(third, redis.exceptions.NoPermissionError)


def test_a_script_for_several_has_the_name_of_that_for_one(queues, session):
    assert scripts.name_of(scripts.several(beats(queues, session))) == "members_heartbeat"


def test_on_every_kind_of_server_all_are_answered(queues):
    session = open_session("chores")
    try:
        assert session.together([("HLEN", each.keys.jobs) for each in queues]) == [0, 0, 0]
    finally:
        session.close()
