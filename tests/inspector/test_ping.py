"""Which consumers fetch messages, for code."""

import pytest

from mq_django.conf import get_config
from mq_django.errors import StoreError, UnknownQueue
from mq_django.inspector import ping
from mq_django.stores import open_members
from mq_django.transport.connections import open_transport


def beat(queue, **consumers):
    for part in get_config().queue(queue).each_part:
        open_members(part, open_transport("inspect", part.connection)).beat("s1", {}, consumers)


def test_consumers_that_fetch_are_returned_with_their_queues(mq_settings):
    mq_settings(QUEUES={"default": {}, "parts": {"PARTITIONS": 3}, "idle": {}})
    assert ping() == {}
    others = {"new": {"starting": True}, "quiet": {"state": "quiet"}, "ends": {"state": "stopping"}}
    beat(
        "default", one={"threads": 2}, two={"threads": 2}, alone={"threads": 1, "quarantine": True}, line={"threads": 0}
    )
    beat("parts", one={"threads": 2}, **others)
    assert ping() == {"one": ["default", "parts"], "two": ["default"]}
    assert (ping("parts"), ping("idle")) == ({"one": ["parts"]}, {})
    with pytest.raises(UnknownQueue):
        ping("sms")


def test_redis_away_is_an_error_and_no_empty_answer(mq_settings):
    mq_settings(CONNECTION="redis://127.0.0.1:1")
    with pytest.raises(StoreError):
        ping()
