"""Histories are no longer than their queues allow."""

from datetime import timedelta

import pytest

from mq_django.conf import get_config
from mq_django.consumers.supervisor import chores
from mq_django.consumers.supervisor.chores import HistoryTrimmer
from mq_django.consumers.supervisor.services import ServerServices
from mq_django.inspector.message_lists import messages as list_messages
from mq_django.stores.handled import MessageHistory
from mq_django.transport.connections import open_transport
from tests.seeding import handle


def left(queue):
    return [row.id for row in list_messages(queue, "handled", limit=100).rows]


@pytest.fixture
def histories(mq_settings):
    """Return those of two queues, which may have three messages, and have twelve."""
    options = {"HISTORY": {"AGE": timedelta(days=1), "COUNT": 3}}
    mq_settings(QUEUES={"default": options, "emails": options})
    for queue in ("default", "emails"):
        for number in range(12):
            handle(queue, message_id=f"m{number}")
    return [MessageHistory(get_config().queue(name), open_transport("produce")) for name in ("default", "emails")]


def test_each_queue_is_trimmed_to_its_end_and_one_with_too_much_does_not_delay_the_others(histories, monkeypatch):
    monkeypatch.setattr(chores, "HISTORY_TRIMS", 1)
    trimmer = HistoryTrimmer(histories)
    trimmer.run_once()
    assert len(left("default")) == len(left("emails")) == 7
    assert trimmer.run_once() == chores.HISTORY_INTERVAL
    assert left("default") == left("emails") == ["m11", "m10", "m9"]


@pytest.mark.parametrize(("options", "there"), [({}, False), ({"HISTORY": 60}, True)])
def test_a_supervisor_has_it_only_if_a_queue_keeps_a_history(mq_settings, options, there):
    mq_settings(QUEUES={"default": {}, "emails": options})
    queues = dict(enumerate(get_config().queues.values()))
    nothing = lambda *args: None  # noqa: E731
    made = ServerServices(queues, None, "s", announce=nothing, evicted=nothing, asked=nothing)
    assert any(isinstance(service, HistoryTrimmer) for service in made.services) == there
