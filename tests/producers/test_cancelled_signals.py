"""The signal for messages that will not be handled, whoever deletes them."""

import pytest

from mq_django import CancelResult, queues
from mq_django.conf import get_config
from mq_django.inspector import actions
from mq_django.signals import message_cancelled
from tests.hearing import hears
from tests.purging import purge
from tests.signal_docs import arguments_of

CANCELLED, REPLACED = "Cancelled while it waited", "Replaced under its unique key"


@pytest.fixture
def told():
    """Collect (queue, id, error) of each signal."""
    found = []

    def receive(sender, queue, message_id, error, **given):
        assert sender is CancelResult
        assert {"sender", "queue", "message_id", "error", *given} == arguments_of(message_cancelled)
        found.append((queue, message_id, error))

    with hears(message_cancelled, to=receive):
        yield found


def test_each_way_to_delete_a_waiting_message_is_signalled(told, mq_settings, namespace, subtests):
    kinds = {
        "plain": {"RESULT_TTL": 0},
        "rsmq": {"STORE": "rsmq", "NAMESPACE": f"{namespace}:r"},
        "ordered": {"ORDERED": True},
    }
    mq_settings(QUEUES={**kinds, "parts": {"PARTITIONS": 3}})
    for name in (*kinds, "parts"):
        queue = queues[name]
        with subtests.test(queue=name):
            first, second = (queue.publish("remind", delay=60) for _ in range(2))
            queue.cancel(first)
            queue.cancel(first)
            actions.cancel(name, [second])
            assert told == [(name, each, CANCELLED) for each in (first, second)]
        told.clear()
    with subtests.test("under a unique key"):
        first, second = (queues["plain"].publish("remind", delay=60, unique="u") for _ in range(2))
        queues["plain"].cancel(unique="u")
        assert told == [("plain", first, REPLACED), ("plain", second, CANCELLED)]
    told.clear()
    with subtests.test("purged"):
        ids = [queues["plain"].publish("remind", delay=delay) for delay in (None, 60)]
        purge(get_config().queue("plain"))
        assert sorted(told) == sorted(("plain", each, CANCELLED) for each in ids)


def test_a_receiver_that_fails_changes_nothing(mq_settings):
    with hears(message_cancelled, raises=ValueError("no")):
        assert queues["default"].cancel(queues["default"].publish("remind", delay=60)) is CancelResult.CANCELLED
