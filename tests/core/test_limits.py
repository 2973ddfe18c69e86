from datetime import timedelta

import pytest

from mq_django.conf import read
from mq_django.core.limits import Limits, Rate


def test_a_rate_is_a_count_and_a_time(subtests):
    for text, count, seconds in [
        *(("10/s", 10, 1), ("100/m", 100, 60), ("5/10s", 5, 10), ("1/h", 1, 3600), ("50000/d", 50_000, 86_400)),
        ("3 / 2m", 3, 120),
    ]:
        with subtests.test(text=text):
            rate = Rate.parse(text)
            assert (rate.count, rate.window, rate.micros) == (count, timedelta(seconds=seconds), seconds * 1_000_000)


def test_what_is_no_rate_is_refused(subtests):
    for text in ["", "10", "10/", "/s", "0/s", "10/0s", "-1/s", "1.5/s", "10/w", "1000001/s", 10, None]:
        with subtests.test(text=text), pytest.raises(ValueError, match="not a rate"):
            Rate.parse(text)


def limits(**options):
    config, problems = read({"QUEUES": {"emails": options}})
    assert problems == []
    return config.queue("emails").limits


def test_a_queue_has_no_limits_unless_it_is_given_some():
    assert not limits()
    assert not limits(RATE_LIMIT={"queue": None}, CONCURRENCY={"key": None})


def test_limits_are_of_the_queue_of_each_key_or_of_both():
    assert limits(RATE_LIMIT="10/s", CONCURRENCY=5) == Limits(rate=Rate.parse("10/s"), concurrency=5)
    of_keys = limits(RATE_LIMIT={"key": "10/s"}, CONCURRENCY={"queue": 9, "key": 1})
    assert of_keys == Limits(key_rate=Rate.parse("10/s"), concurrency=9, key_concurrency=1)
    assert of_keys.of_keys
    assert of_keys.of_queue


def test_what_is_no_limit_is_named(subtests):
    for options in [
        *({"RATE_LIMIT": "fast"}, {"RATE_LIMIT": 10}, {"RATE_LIMIT": {}}, {"RATE_LIMIT": {"tenant": "10/s"}}),
        *({"RATE_LIMIT": {"key": "fast"}}, {"CONCURRENCY": 0}, {"CONCURRENCY": True}, {"CONCURRENCY": {"key": "1"}}),
    ]:
        with subtests.test(options=options):
            _, problems = read({"QUEUES": {"emails": options}})
            assert [problem.setting.split("'")[-2] for problem in problems] == list(options)
