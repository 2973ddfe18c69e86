"""What is said about the settings with which consumers were started."""

import pytest

from mq_django import registry
from mq_django.conf import get_config
from tests.inspector.doctor.conftest import announce
from tests.seeding import opened

pytestmark = pytest.mark.usefixtures("mq_settings")


def test_consumers_with_another_visibility_timeout(found):
    announce("default")
    announce("emails", visibility_ms=60_000)
    (finding,) = found("D3")
    assert (finding.code, finding.level) == ("D304", "warning")
    assert "other settings than this process: emails (VISIBILITY_TIMEOUT)." in finding.seen


def digests(name):
    return get_config().digests_of(get_config().queue(name))


def test_consumers_with_other_options(found, mq_settings):
    mq_settings(QUEUES={"emails": {"TIMEOUT": 60, "RETRY": {"delay": 5}}})
    before = digests("emails")
    announce("emails", options=before)
    assert found("D3") == []
    mq_settings(QUEUES={"emails": {"TIMEOUT": 90, "RETRY": {"delay": 5}, "MAX_ATTEMPTS": 3}})
    (finding,) = found("D3")
    assert (finding.code, finding.level) == ("D304", "warning")
    assert "emails (MAX_ATTEMPTS, TIMEOUT)." in finding.seen


def test_the_retention_of_a_topic_belongs_to_its_groups(found, mq_settings):
    mq_settings(QUEUES={}, TOPICS={"orders": {"RETENTION": 3600}})
    opened("orders:billing")
    before = digests("orders:billing")
    mq_settings(QUEUES={}, TOPICS={"orders": {"RETENTION": 7200}})
    announce("orders:billing", options=before)
    (finding,) = found("D304")
    assert "orders:billing (RETENTION)" in finding.seen


def test_what_is_not_announced_is_no_finding(found, subtests):
    for announced in [{}, {"options": []}, {"options": {"TIMEOUT": "12345678"}, "version": "0.0.1"}, {"grace": "x"}]:
        with subtests.test(announced=announced):
            announce("default")
            announce("emails", **announced)
            assert [each for each in found("D3") if each.code in ("D304", "D307")] == []


def test_strange_options_are_shown_safely(found):
    announce("default")
    announce("emails", options={"\x1b[31m": {"a": 1}, "x" * 1000: ""})
    (finding,) = found("D304")
    assert "\x1b" not in finding.seen
    assert len(finding.seen) < 300


def test_handlers_that_may_run_for_longer_than_the_grace_period(found, mq_settings):
    mq_settings(QUEUES={"emails": {"TIMEOUT": 60}})
    announce("emails", options=digests("emails"), grace=60.0)
    assert found("D3") == []
    announce("emails", options=digests("emails"), grace=30)
    (finding,) = found("D3")
    assert (finding.code, finding.level) == ("D307", "note")
    assert "emails (60 s, --grace 30)" in finding.seen


def test_the_timeout_of_a_handler_counts_as_well(found, mq_settings, monkeypatch):
    monkeypatch.setattr(registry, "_handlers", {})
    registry.handler("emails", "slow", timeout=600)(lambda message: None)
    mq_settings(QUEUES={"emails": {"TIMEOUT": 5}})
    announce("emails", options=digests("emails"), grace=30)
    assert ["emails (600 s, --grace 30)" in each.seen for each in found("D307")] == [True]
