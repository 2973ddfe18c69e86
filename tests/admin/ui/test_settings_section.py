from datetime import timedelta

import pytest

from mq_django import RetryPolicy
from mq_django.admin.ui.text import settings_of
from mq_django.conf import DeliveryOptions, QueueConfig, RsmqConfig, TopicConfig
from mq_django.core.options import options_of


@pytest.fixture(autouse=True)
def project(mq_settings):
    retry = RetryPolicy(delay=timedelta(seconds=2), factor=1.5, max_delay=timedelta(minutes=5), max_attempts=3)
    mq_settings(
        QUEUES={
            "default": {},
            "fair": {"FAIR": True, "ORDERED": True, "BREAKER": {"on": ["OSError"], "probe": 60}},
            "weighted": {
                "FAIR": {"big": 5, "small": 0.5},
                "HISTORY": {"AGE": 3600, "COUNT": 5, "DATA": True},
                "STREAM": True,
            },
            "emails": {"RETRY": retry, "TIMEOUT": 30, "MAX_DEPTH": 20_000, "RATE_LIMIT": "5/s", "HISTORY": 86400},
            "jobs": {
                "STORE": "rsmq",
                "VT": 60,
                "REALTIME": True,
                "CONNECTION": "redis://u:secret@queues.internal:6380/1?protocol=3",
            },
        },
        TOPICS={"orders": {"RETENTION": None, "RETENTION_BYTES": 3 * 1024 * 1024, "MAX_ATTEMPTS": 7}},
    )


SHOWN = {
    "default": {
        "VISIBILITY_TIMEOUT": "5 s",
        "TIMEOUT": "none",
        "MAX_ATTEMPTS": "25",
        "MAX_SIZE": "256 KiB",
        "MAX_DEPTH": "none",
        "RESULT_TTL": "1 d",
        "STORE": "stream",
        "FAIR": "none",
        "RETRY": "after 1 s, then 2 times longer, at most 1 h",
        "CONNECTION": "that of the project",
    },
    "fair": {
        "FAIR": "True",
        "ORDERED": "True",
        "BREAKER": "when 50 % of the latest 20 results within 1 min are failures; probe after 1 min",
    },
    "weighted": {
        "FAIR": "big: 5, small: 0.5",
        "HISTORY": "for 1 h, of the latest 5, with data",
        "STREAM": "the latest 10,000 entries, of at most 1,024 KiB in all, until 1 h after the end",
    },
    "emails": {
        "RETRY": "after 2 s, then 1.5 times longer, at most 5 min; 3 attempts",
        "TIMEOUT": "30 s",
        "MAX_DEPTH": "20,000",
        "HISTORY": "for 1 d, of the latest 100,000",
    },
    "jobs": {
        "VT": "1 min",
        "NAMESPACE": "rsmq",
        "MAXSIZE": "65,536",
        "REALTIME": "True",
        "CONNECTION": "redis://queues.internal:6380/1",
    },
    "orders": {
        "RETENTION": "none",
        "RETENTION_BYTES": "3,072 KiB",
        "RETENTION_ALARM": "80 %",
        "DUPLICATE_WINDOW": "5 min",
    },
    "orders:billing": {"MAX_ATTEMPTS": "7"},
}


def test_an_option_is_shown_by_its_name():
    found = {name: dict(settings_of(name)) for name in SHOWN}
    assert {name: {option: found[name].get(option) for option in options} for name, options in SHOWN.items()} == SHOWN


def test_every_option_is_shown_and_limits_in_their_own_table():
    configs = {"emails": QueueConfig, "jobs": RsmqConfig, "orders": TopicConfig, "orders:billing": DeliveryOptions}
    shown = {name: {option for option, _ in settings_of(name)} for name in configs}
    shown["emails"] |= {"RATE_LIMIT", "CONCURRENCY"}
    assert shown == {name: set(options_of(config)) for name, config in configs.items()}
