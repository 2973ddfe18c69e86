"""Requests for stacks and their answers: each operator gets one that was made after asking."""

import pytest

from mq_django.conf import get_config
from mq_django.core.stacks import MAX_BYTES
from mq_django.errors import StoreError
from mq_django.stores import open_members
from mq_django.stores.control import KEPT_MS, StackRequests
from mq_django.stores.members import read_membership
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests.stores.cases import RSMQ, STREAM, TOPIC

FIELDS = (b"cancels:asked", b"stacks:asked")


@pytest.fixture(params=[STREAM, TOPIC, RSMQ], ids=lambda case: case.name)
def config(request, mq_settings, namespace):
    mq_settings(**{"QUEUES": {}, **request.param.namespaced(namespace)})
    found = get_config().queue(request.param.queue)
    open_members(found, Pooled(get_client("chores"))).beat("s", {}, {"c": {}})
    return found


@pytest.fixture
def requests(config):
    return StackRequests(config, Pooled(get_client("inspect")))


def test_a_request_is_answered(requests, config, redis_client):
    assert requests.ask("gone") is None
    assert redis_client.exists(config.keys.stacks) == 0
    assert requests.asked("c") is None
    asked = requests.ask("c")
    assert requests.asked("c") == asked
    assert requests.read("c", asked) is None
    requests.answer("c", asked, b'{"stacks":[]}')
    assert requests.read("c", asked) == b'{"stacks":[]}'
    assert requests.read("other", asked) is None
    for key in (config.keys.stacks, config.keys.stacks_of("c")):
        assert 0 < redis_client.pttl(key) <= KEPT_MS


def test_two_who_ask_at_once_get_the_same_answer_which_is_too_old_for_a_later_one(requests):
    first, second = requests.ask("c"), requests.ask("c")
    assert first < second
    requests.answer("c", second, b"both")
    assert requests.read("c", first) == requests.read("c", second) == b"both"
    third = requests.ask("c")
    assert requests.read("c", third) is None
    assert requests.read("c", first) == b"both"


def test_a_request_is_counted_for_the_heartbeats(requests, config, redis_client):
    def counts():
        return read_membership(redis_client.hgetall(config.keys.consumers)).requests

    before = counts()
    requests.ask("c")
    assert counts() != before
    redis_client.hdel(config.keys.consumers, *FIELDS)
    assert counts() == before


def test_what_another_program_has_written_is_no_answer(requests, config, redis_client, subtests):
    for text in (b"", b"\n", b"x\n{}", b"-1\n{}", b"9" * 15, b"9" * 5000 + b"\n{}", b"\xff" * 99):
        with subtests.test(text=text):
            redis_client.set(config.keys.stacks_of("c"), text)
            assert requests.read("c", 1) is None


def test_a_key_of_another_type_is_no_answer_and_the_next_answer_replaces_it(requests, config, redis_client):
    asked = requests.ask("c")
    redis_client.rpush(config.keys.stacks_of("c"), "x")
    assert requests.read("c", asked) is None
    requests.answer("c", asked, b"{}")
    assert requests.read("c", asked) == b"{}"
    redis_client.delete(config.keys.stacks)
    redis_client.set(config.keys.stacks, "x")
    for ask in (requests.ask, requests.asked):
        with pytest.raises(StoreError):
            ask("c")


def test_a_long_answer_is_not_read_to_its_end(requests, config, redis_client):
    redis_client.set(config.keys.stacks_of("c"), b"1795000000000\n" + b"x" * MAX_BYTES * 9)
    assert len(requests.read("c", 1)) <= MAX_BYTES + 16


def test_a_request_of_another_program_is_none(requests, config, redis_client, subtests):
    for value in ("x", "", "-1", "9" * 400, "inf"):
        with subtests.test(value=value):
            redis_client.hset(config.keys.stacks, "c", value)
            assert requests.asked("c") is None
            assert requests.ask("c") > 1_600_000_000_000
