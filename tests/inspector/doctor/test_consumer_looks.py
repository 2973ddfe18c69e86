"""What is said about queues, groups and their consumers, as heartbeats announce them."""

import pytest

from mq_django import __version__
from mq_django.conf import get_config
from mq_django.core.message_format import PROTOCOL
from mq_django.producers import topics
from mq_django.stores import open_store
from mq_django.transport.connections import open_transport
from tests.inspector.doctor.conftest import announce, levels
from tests.seeding import keep, publish, set_aside, take

pytestmark = pytest.mark.usefixtures("mq_settings")


def test_queues_with_consumers_are_no_finding(found):
    announce("default")
    announce("emails")
    assert found("D3") == []


def test_messages_that_nobody_will_handle(found):
    announce("default")
    assert levels(found("D301")) == [("D301", "note")]
    publish("emails", "welcome")
    (finding,) = found("D3")
    assert (finding.code, finding.level) == ("D301", "warning")
    assert finding.seen == "emails has 1 message and no running consumer. Is runconsumer started?"
    assert finding.advice.endswith("manage.py runconsumer emails")


def test_a_queue_of_other_programs_without_housekeeping(found, mq_settings):
    mq_settings(QUEUES={"default": {"EXTERNAL": True}})
    assert found("D3") == []
    publish("default", "welcome")
    assert levels(found("D3")) == [("D302", "warning")]
    keep("default")
    assert found("D302") == []


def test_consumers_of_other_versions(found, subtests):
    for announced in [{"version": "0.0.1"}, {"protocol": PROTOCOL + 1}, {"protocol": ["x"]}]:
        with subtests.test(announced=announced):
            announce("default")
            announce("emails", "s2", host="web2", **announced)
            (finding,) = found("D3")
            assert (finding.code, finding.level) == ("D303", "warning")
            assert f"{announced.get('version', __version__)} on web2" in finding.seen


def test_a_group_that_lags_towards_its_retention(found, mq_settings):
    mq_settings(QUEUES={}, TOPICS={"orders": {"RETENTION_COUNT": 10}})
    config = get_config().queue("orders:billing")
    open_store(config, open_transport("produce", "")).create_groups()
    announce("orders:billing")
    for count, expected in ((4, []), (2, [("D305", "warning")]), (4, [("D305", "error")])):
        for number in range(count):
            topics["orders"].publish("paid", number, on_commit=False)
        assert levels([each for each in found("D305") if "orders:billing" in each.seen]) == expected
    (finding,) = (each for each in found("D305") if "orders:billing" in each.seen)
    assert "orders:billing is 10 messages behind, 100% of what its topic keeps" in finding.seen


def test_the_time_until_messages_are_removed_is_told(found, mq_settings):
    mq_settings(QUEUES={}, TOPICS={"orders": {"RETENTION_COUNT": 2, "RETENTION": 7200}})
    config = get_config().queue("orders:billing")
    open_store(config, open_transport("produce", "")).create_groups()
    topics["orders"].publish("paid", 1, on_commit=False)
    (finding,) = (each for each in found("D305") if "orders:billing" in each.seen)
    assert finding.seen.endswith("The oldest of them is removed in 120 minutes.")


def test_messages_whose_name_nobody_handles(found):
    announce("default")
    announce("emails")
    set_aside("emails", "unknown")
    (finding,) = found("D3")
    assert (finding.code, finding.level) == ("D306", "warning")
    assert finding.seen == "emails has 1 message without a handler in any consumer."


def test_a_queue_that_cannot_be_read_is_a_note(found, redis_client):
    announce("default")
    redis_client.set(get_config().queues["emails"].keys.ready, "text")
    notes = [each for each in found("D199") if "emails could not be looked at" in each.seen]
    assert levels(notes) == [("D199", "note")]


def test_pending_messages_count_as_waiting(found):
    announce("default")
    publish("emails", "welcome")
    take("emails", 1)
    assert levels(found("D301")) == [("D301", "warning")]
