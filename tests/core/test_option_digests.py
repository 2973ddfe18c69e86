"""Digests tell options apart, and show none."""

from datetime import timedelta

from mq_django.core.project import option_digests
from mq_django.core.queue_configs import GroupConfig, QueueConfig, TopicConfig
from mq_django.core.retries import RetryPolicy


def test_defaults_have_no_digest():
    assert option_digests(QueueConfig(name="emails")) == {}
    assert option_digests(GroupConfig(name="a:b", topic="a", group="b"), TopicConfig(name="a")) == {}


def test_what_all_processes_know_anyway_has_none():
    config = QueueConfig(
        name="emails", namespace="x", connection="redis://:secret@host", visibility_timeout=timedelta(seconds=60)
    )
    assert option_digests(config) == {}


def test_equal_options_have_the_same_digest_and_others_have_not():
    one, same, other = (
        option_digests(QueueConfig(name="emails", retry=RetryPolicy(delay=delay, bury_on=(ValueError,)), max_depth=5))
        for delay in (2, timedelta(seconds=2), 3)
    )
    assert one == same
    assert set(one) == {"RETRY", "MAX_DEPTH"}
    assert one["RETRY"] != other["RETRY"]
    assert one["MAX_DEPTH"] == other["MAX_DEPTH"]
    assert {len(digest) for digest in one.values()} == {8}
