"""Shares of the limits that the partitions of a queue have in common."""

import pytest

from mq_django.conf import get_config
from mq_django.stores.line_store import Shares
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled


@pytest.fixture
def consumers(mq_settings):
    """Return a function that returns two consumers of a queue with these limits."""

    def make(**options):
        mq_settings(QUEUES={"default": {"PARTITIONS": 4, "VISIBILITY_TIMEOUT": 600, **options}})
        transport = Pooled(get_client("consume"))
        return [Shares(get_config().queue("default"), transport, name) for name in ("a:0", "b:0")]

    return make


def test_the_shares_of_all_are_no_more_than_may_run(consumers):
    a, b = consumers(CONCURRENCY=5)
    assert a.ask(0, 3).messages == 3
    assert b.ask(0, 4).messages == 2
    assert a.ask(3, 1) == (0, None)
    # One of a's has ended, and b holds both of its.
    assert a.ask(2, 0) == (0, 0)
    assert b.ask(2, 9).messages == 1
    assert b.ask(3, 1) == (0, None)


def test_what_was_not_used_is_there_for_others(consumers):
    a, b = consumers(CONCURRENCY=5)
    assert a.ask(0, 5).messages == 5
    assert b.ask(0, 1).messages == 0
    a.give_back(4)
    assert a.is_due(1)
    a.ask(1, 0)
    assert not a.is_due(1)
    assert b.ask(0, 9).messages == 4


def test_a_rate_is_that_of_all_together(consumers):
    a, b = consumers(RATE_LIMIT="5/d")
    assert a.ask(0, 3).messages == 3
    assert b.ask(0, 3).messages == 2
    messages, wait = a.ask(3, 1)
    assert (messages, 80_000 < wait <= 86_401) == (0, True)
    # b has found one message only.
    b.give_back(1)
    b.ask(1, 0)
    assert a.ask(3, 9).messages == 1
