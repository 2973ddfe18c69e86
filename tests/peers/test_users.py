"""Producers and `runconsumer` as a Redis user who has the keys of one queue only, with real processes."""

import pytest

from mq_django import queues, topics
from tests.users import rules_of, user
from tests.waiting import wait_until

RETRY = {"RETRY": {"delay": 0.05}}


@pytest.mark.parametrize("store", ["stream", "topic", "rsmq"])
def test_a_user_with_the_keys_of_one_queue_publishes_and_consumes(store, project, redis_client, redis_url, namespace):
    # The handlers of these tests write down what they did under a key of their own.
    rules = [*rules_of(store, namespace), f"~{namespace}:handled"]
    named, parts = {
        "stream": ("emails", {"QUEUES": {"emails": RETRY}}),
        "topic": ("orders", {"QUEUES": {}, "TOPICS": {"orders": RETRY}}),
        "rsmq": ("jobs", {"QUEUES": {"jobs": {"STORE": "rsmq", "NAMESPACE": f"{namespace}:r", **RETRY}}}),
    }[store]
    with user(redis_client, redis_url, rules) as url:
        shop = project(CONNECTION=url, **parts)
        program = shop.runconsumer(named)
        if store == "topic":
            wait_until(lambda: len(topics["orders"].groups()) == 2, timeout=20)
            sent = [topics["orders"].publish("order.paid", data, message_id=str(data)) for data in ("fails once", 2)]
            expected = [*sent, *sent]
        else:
            name = "welcome" if store == "stream" else "slow"
            expected = [queues[named].publish(name, 0.01), queues[named].publish(name, 0.02, delay=0.3)]
        told = shop.wait_handled(len(expected))
        assert sorted(each["id"] for each in told) == sorted(expected)
        said = program.stop_and_tell()
        assert program.process.returncode == 0
        assert "NOPERM" not in said
        assert "No permissions" not in said
