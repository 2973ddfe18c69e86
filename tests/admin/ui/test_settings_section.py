from datetime import timedelta

import pytest

from mq_django import RetryPolicy
from mq_django.admin.ui.settings_section import settings_of
from mq_django.conf import DeliveryOptions, QueueConfig, RsmqConfig, TopicConfig
from mq_django.core.options import options_of


@pytest.fixture(autouse=True)
def project(mq_settings):
    retry = RetryPolicy(delay=timedelta(seconds=2), factor=1.5, max_delay=timedelta(minutes=5), max_attempts=3)
    mq_settings(
        QUEUES={
            "default": {},
            "fair": {"FAIR": True, "ORDERED": True},
            "weighted": {"FAIR": {"big": 5, "small": 0.5}},
            "emails": {"RETRY": retry, "TIMEOUT": 30, "MAX_DEPTH": 20_000, "RATE_LIMIT": "5/s"},
            "jobs": {
                "STORE": "rsmq",
                "VT": 60,
                "REALTIME": True,
                "CONNECTION": "redis://u:secret@queues.internal:6380/1?protocol=3",
            },
        },
        TOPICS={"orders": {"RETENTION": None, "RETENTION_BYTES": 3 * 1024 * 1024, "MAX_ATTEMPTS": 7}},
    )


@pytest.mark.parametrize(
    ("name", "option", "shown"),
    [
        ("default", "VISIBILITY_TIMEOUT", "10 s"),
        ("default", "TIMEOUT", "none"),
        ("default", "MAX_ATTEMPTS", "25"),
        ("default", "MAX_SIZE", "256 KiB"),
        ("default", "MAX_DEPTH", "none"),
        ("default", "RESULT_TTL", "1 d"),
        ("default", "STORE", "stream"),
        ("default", "FAIR", "none"),
        ("fair", "FAIR", "True"),
        ("fair", "ORDERED", "True"),
        ("weighted", "FAIR", "big: 5, small: 0.5"),
        ("default", "RETRY", "after 1 s, then 2 times longer, at most 1 h"),
        ("emails", "RETRY", "after 2 s, then 1.5 times longer, at most 5 min; 3 attempts"),
        ("emails", "TIMEOUT", "30 s"),
        ("emails", "MAX_DEPTH", "20,000"),
        ("jobs", "VT", "1 min"),
        ("jobs", "NAMESPACE", "rsmq"),
        ("jobs", "MAXSIZE", "65,536"),
        ("jobs", "REALTIME", "True"),
        ("default", "CONNECTION", "that of the project"),
        ("jobs", "CONNECTION", "redis://queues.internal:6380/1"),
        ("orders", "RETENTION", "none"),
        ("orders", "RETENTION_BYTES", "3,072 KiB"),
        ("orders", "RETENTION_ALARM", "80 %"),
        ("orders", "DUPLICATE_WINDOW", "5 min"),
        ("orders:billing", "MAX_ATTEMPTS", "7"),
    ],
)
def test_an_option_is_shown_by_its_name(name, option, shown):
    assert dict(settings_of(name))[option] == shown


@pytest.mark.parametrize(
    ("name", "config", "elsewhere"),
    [
        ("emails", QueueConfig, {"RATE_LIMIT", "CONCURRENCY"}),
        ("jobs", RsmqConfig, set()),
        ("orders", TopicConfig, set()),
        ("orders:billing", DeliveryOptions, set()),
    ],
)
def test_every_option_is_shown_and_limits_in_their_own_table(name, config, elsewhere):
    assert {option for option, _ in settings_of(name)} == set(options_of(config)) - elsewhere
