"""What is said about settings of a server that end connections: each with what it does to a client."""

import pytest
import redis

from mq_django.errors import ConnectionLost
from tests.inspector.doctor.conftest import levels
from tests.seeding import publish, publish_many, take


def client_of(server):
    return redis.Redis.from_url(server.url)


def test_a_server_that_limits_replies(server_with, found):
    with client_of(server_with()) as client:
        for limit, level in (("100kb", "error"), ("1mb", "warning"), ("64mb", ""), ("0", "")):
            client.config_set("client-output-buffer-limit", f"normal {limit} 0 0")
            assert levels(found("D120")) == ([("D120", level)] if level else [])


def test_with_such_a_limit_messages_cannot_be_fetched(server_with, found):
    server = server_with()
    publish_many("emails", [("welcome", "x" * 200_000)] * 8)
    with client_of(server) as client:
        client.config_set("client-output-buffer-limit", "normal 1mb 0 0")
        with pytest.raises(ConnectionLost):
            take("emails", 8)
        (finding,) = found("D120")
        assert (
            "larger than 1.0 MiB (client-output-buffer-limit normal), and 8 messages may have 2.0 MiB" in finding.seen
        )
        # What the finding says to do.
        client.config_set("client-output-buffer-limit", finding.advice.split('"')[1])
    publish("emails", "welcome", "x" * 200_000)
    assert len(take("emails", 8)) == 1
    assert found("D120") == []
